//! What a Job may ask for that this controller does not do: the Job fails at once, with the field and the fix.
//!
//! Every field is named here, so that one that Kubernetes adds does not compile until it is decided upon. What its
//! pods ask for and the node cannot give, the node says on the pods.

use k8s_openapi::api::batch::v1::JobSpec;

/// Why the Job cannot be run; `None` when it can.
pub(super) fn refusal(spec: &JobSpec) -> Option<String> {
    let JobSpec {
        // Refused below.
        backoff_limit_per_index,
        completion_mode,
        max_failed_indexes,
        pod_failure_policy,
        scheduling,
        success_policy,
        // Honoured.
        active_deadline_seconds: _,
        backoff_limit: _,
        completions: _,
        managed_by: _,
        manual_selector: _,
        parallelism: _,
        pod_replacement_policy: _,
        selector: _,
        suspend: _,
        template: _,
        ttl_seconds_after_finished: _,
    } = spec;
    if let Some(mode) = completion_mode.as_deref().filter(|mode| *mode != "NonIndexed") {
        return Some(format!(
            "spec.completionMode {mode:?} is not supported by the local node; use NonIndexed, with a Job for each \
             index"
        ));
    }
    let refused = [
        ("backoffLimitPerIndex", backoff_limit_per_index.is_some()),
        ("maxFailedIndexes", max_failed_indexes.is_some()),
        ("podFailurePolicy", pod_failure_policy.is_some()),
        ("scheduling", scheduling.is_some()),
        ("successPolicy", success_policy.is_some()),
    ];
    let (field, _) = refused.into_iter().find(|(_, is_asked)| *is_asked)?;
    Some(format!(
        "spec.{field} is not supported by the local node; leave it out"
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_not_done_is_refused_by_its_field() {
        for (more, start) in [
            (json!({}), None),
            (
                json!({ "completionMode": "NonIndexed", "managedBy": "a/b" }),
                None,
            ),
            (
                json!({ "completionMode": "Indexed" }),
                Some("spec.completionMode \"Indexed\" "),
            ),
            (
                json!({ "podFailurePolicy": { "rules": [] } }),
                Some("spec.podFailurePolicy "),
            ),
            (
                json!({ "successPolicy": { "rules": [] } }),
                Some("spec.successPolicy "),
            ),
            (
                json!({ "backoffLimitPerIndex": 1 }),
                Some("spec.backoffLimitPerIndex "),
            ),
        ] {
            let mut spec = json!({ "template": {} });
            for (field, value) in more.as_object().unwrap() {
                spec[field] = value.clone();
            }
            let found = refusal(&serde_json::from_value(spec).unwrap());
            assert_eq!(found.is_some(), start.is_some(), "{more}");
            assert!(
                found.unwrap_or_default().starts_with(start.unwrap_or_default()),
                "{more}"
            );
        }
    }
}
