//! Conditions of the Gateway API's kinds.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kaos_kube_ext::{Observed, set_condition};
use kaos_seams::Clock;

pub(super) const ACCEPTED: &str = "Accepted";
pub(super) const PROGRAMMED: &str = "Programmed";
pub(super) const RESOLVED_REFS: &str = "ResolvedRefs";

/// One condition: its type, and what was observed.
pub(super) type Finding = (&'static str, Observed);

/// It is so.
pub(super) fn yes(type_: &'static str, message: impl Into<String>) -> Finding {
    observed(type_, true, type_, message.into())
}

/// It is not so, for this reason.
pub(super) fn no(type_: &'static str, reason: &str, message: impl Into<String>) -> Finding {
    observed(type_, false, reason, message.into())
}

fn observed(type_: &'static str, status: bool, reason: &str, message: String) -> Finding {
    let observed = Observed {
        status: Some(status),
        reason: reason.to_owned(),
        message,
    };
    (type_, observed)
}

/// The findings as conditions, with the times of those in `before` that have not changed. Conditions of other
/// types are not ours and are left out.
pub(super) fn conditions(
    before: &[Condition],
    findings: Vec<Finding>,
    generation: Option<i64>,
    clock: &dyn Clock,
) -> Vec<Condition> {
    let mut conditions: Vec<Condition> = before
        .iter()
        .filter(|condition| findings.iter().any(|(type_, _)| condition.type_ == *type_))
        .cloned()
        .collect();
    for (type_, observed) in findings {
        set_condition(&mut conditions, type_, observed, generation, clock);
    }
    // In one order, whatever the order they were found in.
    conditions.sort_by(|a, b| a.type_.cmp(&b.type_));
    conditions
}
