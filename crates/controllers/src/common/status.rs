//! From what was observed to phase, message and conditions.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kaos_api::{
    names::Kind,
    v1alpha1::{AgentStatus, DeploymentStatus, MCPServerStatus, ModelAPIStatus, Phase},
};
use kaos_kube_ext::{Observed, set_condition};
use kaos_seams::Clock;
use serde::Serialize;

use super::{children::Deployed, failure::Failure, plan::Note};

/// The condition that sums the others up.
pub(crate) const READY: &str = "Ready";
/// Work is under way. There only while it is true, as kstatus reads it.
pub(crate) const RECONCILING: &str = "Reconciling";
/// Nothing goes on without somebody's doing. There only while it is true, as kstatus reads it.
const STALLED: &str = "Stalled";
/// The spec, and what it refers to, make sense together.
const CONFIGURATION_VALID: &str = "ConfigurationValid";

/// Where the state of a resource comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// What the spec says.
    Spec,
    /// What the spec refers to.
    Dependency,
    /// The objects made for it, or its pods.
    Objects,
}

/// How far a resource has come, in the words of its status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) phase: Phase,
    /// Of the condition `Ready`.
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    pub(crate) cause: Cause,
}

/// The reason of a rollout under way.
pub(crate) const ROLLING_OUT: &str = "RollingOut";
/// The reason of a rollout that does not go on by itself.
pub(crate) const ROLLOUT_STUCK: &str = "RolloutStuck";
/// The reason of pods that are not ready though their rollout was finished.
pub(crate) const PODS_NOT_READY: &str = "PodsNotReady";
/// The reason of a rollout that somebody holds up.
const PAUSED: &str = "Paused";
/// The reason of a workload that is to have no pods.
pub(crate) const SCALED_TO_ZERO: &str = "ScaledToZero";

impl Standing {
    /// The spec has to be changed before it can work.
    pub(crate) fn failed(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            phase: Phase::Failed,
            reason,
            message: message.into(),
            cause: Cause::Spec,
        }
    }

    /// Something it refers to does not exist.
    pub(crate) fn missing(message: impl Into<String>) -> Self {
        Self {
            cause: Cause::Dependency,
            ..Self::failed("DependencyNotFound", message)
        }
    }

    /// Something it needs is not ready.
    pub(crate) fn waiting(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            phase: Phase::Waiting,
            reason,
            message: message.into(),
            cause: Cause::Dependency,
        }
    }

    /// Its pods are not as they should be yet.
    pub(crate) fn pending(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            phase: Phase::Pending,
            reason,
            message: message.into(),
            cause: Cause::Objects,
        }
    }

    /// Its objects could not be applied.
    pub(crate) fn of_failure(failure: &Failure) -> Self {
        Self {
            cause: if failure.is_users() {
                Cause::Spec
            } else {
                Cause::Objects
            },
            ..Self::failed(failure.reason(), failure.to_string())
        }
    }

    /// Its Deployment is not seen yet.
    pub(crate) fn unmade() -> Self {
        Self::pending(ROLLING_OUT, "its Deployment is being made")
    }

    /// As far as its Deployment has come. What keeps a Deployment from going on (a quota, a deadline that has
    /// passed) is repeated.
    pub(crate) fn of(deployment: &Deployed) -> Self {
        let status = deployment.status.clone().unwrap_or_default();
        let ready = status.ready_replicas.unwrap_or_default();
        let message = format!("Deployment ready replicas: {ready}/{}", desired(deployment));
        if is_rolled_out(deployment) {
            return Self {
                phase: Phase::Ready,
                reason: "RolledOut",
                message,
                cause: Cause::Objects,
            };
        }
        if desired(deployment) == 0 {
            return Self::pending(SCALED_TO_ZERO, format!("{message}: it is scaled to zero"));
        }
        if deployment.spec.paused == Some(true) {
            let name = deployment.metadata.name.as_deref().unwrap_or_default();
            let resume = format!("`kubectl rollout resume deployment/{name}` lets it go on");
            return Self::pending(
                PAUSED,
                format!("{message}: the Deployment {name} is paused; {resume}"),
            );
        }
        let stuck = status.conditions.iter().flatten().find(|condition| {
            matches!(
                (condition.type_.as_deref(), condition.status.as_deref()),
                (Some("ReplicaFailure"), Some("True")) | (Some("Progressing"), Some("False"))
            )
        });
        match stuck.and_then(|condition| condition.message.as_deref()) {
            Some(problem) => Self::pending(ROLLOUT_STUCK, format!("{message}: {problem}")),
            None if was_rolled_out(deployment) => {
                let unavailable = status.conditions.iter().flatten().find(|condition| {
                    (condition.type_.as_deref(), condition.status.as_deref())
                        == (Some("Available"), Some("False"))
                });
                let why = unavailable.and_then(|condition| condition.message.as_deref());
                let why = why.unwrap_or("pods that were started are not ready");
                Self::pending(PODS_NOT_READY, format!("{message}: {why}"))
            }
            None => Self::pending(ROLLING_OUT, message),
        }
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.phase == Phase::Ready
    }

    fn is_stalled(&self) -> bool {
        self.phase == Phase::Failed || [ROLLOUT_STUCK, PAUSED].contains(&self.reason)
    }

    fn is_reconciling(&self) -> bool {
        let under_way = matches!(self.phase, Phase::Pending | Phase::Waiting);
        under_way && !self.is_stalled() && self.reason != SCALED_TO_ZERO
    }

    /// The conditions that every kind has.
    pub(crate) fn conditions(&self, notes: &[Note]) -> Vec<(&'static str, Observed)> {
        let observed = |status: bool| Observed {
            status: Some(status),
            reason: self.reason.to_owned(),
            message: self.message.clone(),
        };
        let mut conditions = vec![(READY, observed(self.is_ready()))];
        if self.is_reconciling() {
            conditions.push((RECONCILING, observed(true)));
        }
        if self.is_stalled() {
            conditions.push((STALLED, observed(true)));
        }
        let valid = if self.phase == Phase::Failed && self.cause == Cause::Spec {
            observed(false)
        } else {
            Observed {
                status: Some(true),
                reason: notes.first().map_or("Valid", |note| note.reason).to_owned(),
                message: notes
                    .iter()
                    .map(|note| note.text.as_str())
                    .collect::<Vec<_>>()
                    .join("; "),
            }
        };
        conditions.push((CONFIGURATION_VALID, valid));
        conditions
    }
}

/// The conditions as they are to be: `wanted` and no others, with the times of their last changes from `before`.
pub(crate) fn timed(
    before: &[Condition],
    wanted: Vec<(&'static str, Observed)>,
    generation: Option<i64>,
    clock: &dyn Clock,
) -> Vec<Condition> {
    let mut timed: Vec<Condition> = Vec::with_capacity(wanted.len());
    for (type_, observed) in wanted {
        if !timed.iter().any(|condition| condition.type_ == type_) {
            timed.extend(before.iter().find(|condition| condition.type_ == type_).cloned());
        }
        set_condition(&mut timed, type_, observed, generation, clock);
    }
    timed
}

/// What a condition said before, to be said again.
pub(crate) fn said_before(before: &[Condition], type_: &str) -> Option<Observed> {
    kaos_kube_ext::condition(before, type_).map(|condition| Observed {
        status: match condition.status.as_str() {
            "True" => Some(true),
            "False" => Some(false),
            _ => None,
        },
        reason: condition.reason.clone(),
        message: condition.message.clone(),
    })
}

/// What a condition said before of the present objects: of this generation, or, where this one cannot be applied,
/// of whichever made them.
pub(crate) fn still_said(
    before: &[Condition],
    type_: &str,
    generation: Option<i64>,
    standing: &Standing,
) -> Option<Observed> {
    let said = kaos_kube_ext::condition(before, type_)?;
    let holds = said.observed_generation == generation || standing.phase == Phase::Failed;
    holds.then(|| said_before(before, type_)).flatten()
}

/// What every kind reports.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Common {
    pub(crate) phase: Phase,
    pub(crate) message: String,
    pub(crate) endpoint: Option<String>,
    pub(crate) observed_generation: Option<i64>,
    pub(crate) conditions: Vec<Condition>,
    pub(crate) replicas: Option<i32>,
    pub(crate) selector: Option<String>,
    pub(crate) deployment: Option<DeploymentStatus>,
}

/// A status with the common fields in it.
pub(crate) trait Reported: Clone + Default + PartialEq + Serialize + Send + Sync {
    /// Puts these common fields in.
    fn put(&mut self, common: Common);
    /// The common fields of it.
    fn common(&self) -> Common;
}

macro_rules! reported {
    ($($status:ty),*) => {$(
        impl Reported for $status {
            fn put(&mut self, common: Common) {
                self.phase = Some(common.phase);
                self.ready = common.phase == Phase::Ready;
                self.message = Some(common.message);
                self.endpoint = common.endpoint;
                self.observed_generation = common.observed_generation;
                self.conditions = common.conditions;
                self.replicas = common.replicas;
                self.selector = common.selector;
                self.deployment = common.deployment;
            }

            fn common(&self) -> Common {
                let status = self.clone();
                Common {
                    phase: status.phase.unwrap_or_default(),
                    message: status.message.unwrap_or_default(),
                    endpoint: status.endpoint,
                    observed_generation: status.observed_generation,
                    conditions: status.conditions,
                    replicas: status.replicas,
                    selector: status.selector,
                    deployment: status.deployment,
                }
            }
        }
    )*};
}

reported!(AgentStatus, ModelAPIStatus, MCPServerStatus);

/// The labels that select the pods, as the scale subresource has them.
pub(crate) fn selector(kind: Kind, name: &str) -> String {
    let pairs: Vec<String> = kind
        .selector(name)
        .into_iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    pairs.join(",")
}

fn desired(deployment: &Deployed) -> i32 {
    deployment.spec.replicas.unwrap_or(1)
}

/// Whether all pods run the present template and are available, and no other pods are left.
pub(crate) fn is_rolled_out(deployment: &Deployed) -> bool {
    let Some(status) = &deployment.status else {
        return false;
    };
    let desired = desired(deployment);
    let all = |count: Option<i32>| count.unwrap_or_default() == desired;
    status.observed_generation >= deployment.metadata.generation
        && desired > 0
        && all(status.replicas)
        && all(status.updated_replicas)
        && all(status.ready_replicas)
        && all(status.available_replicas)
}

/// Whether the rollout of the present template came to its end once, and no pod of it is still to be made.
fn was_rolled_out(deployment: &Deployed) -> bool {
    let Some(status) = &deployment.status else {
        return false;
    };
    let is_complete = status.conditions.iter().flatten().any(|condition| {
        (condition.type_.as_deref(), condition.reason.as_deref())
            == (Some("Progressing"), Some("NewReplicaSetAvailable"))
    });
    is_complete
        && status.observed_generation >= deployment.metadata.generation
        && status.updated_replicas == Some(desired(deployment))
}

/// What the resource's status repeats of its Deployment's.
pub(crate) fn observed(deployment: &Deployed) -> Option<DeploymentStatus> {
    let absent = deployment
        .metadata
        .creation_timestamp
        .clone()
        .unwrap_or(Time(jiff::Timestamp::UNIX_EPOCH));
    deployment
        .status
        .as_ref()
        .map(|status| DeploymentStatus::observed(status, &absent))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn deployment(status: serde_json::Value) -> Deployed {
        serde_json::from_value(json!({"metadata": {"generation": 3}, "spec": {"replicas": 2, "selector": {}, "template": {}}, "status": status}))
            .unwrap()
    }

    #[test]
    fn ready_is_a_finished_rollout_and_nothing_less() {
        let done = json!({"observedGeneration": 3, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 2, "availableReplicas": 2});
        assert!(is_rolled_out(&deployment(done.clone())));
        assert_eq!(
            Standing::of(&deployment(done.clone())).message,
            "Deployment ready replicas: 2/2"
        );
        for (what, field, value) in [
            (
                "the Deployment controller has not seen the template",
                "observedGeneration",
                2,
            ),
            ("an old pod is left", "replicas", 3),
            ("a pod is of the old template", "updatedReplicas", 1),
            ("a pod is not ready", "readyReplicas", 1),
            ("a pod is not available", "availableReplicas", 1),
        ] {
            let mut status = done.clone();
            status[field] = json!(value);
            assert!(!is_rolled_out(&deployment(status)), "{what}");
        }
        let mut stuck = done;
        stuck["updatedReplicas"] = json!(1);
        stuck["conditions"] =
            json!([{"type": "ReplicaFailure", "status": "True", "message": "exceeded quota"}]);
        let standing = Standing::of(&deployment(stuck));
        assert_eq!(standing.message, "Deployment ready replicas: 2/2: exceeded quota");
        assert_eq!(
            (standing.phase, standing.reason),
            (Phase::Pending, "RolloutStuck")
        );
        assert!(!is_rolled_out(&deployment(json!({}))));
        assert!(!is_rolled_out(&deployment(serde_json::Value::Null)));
    }

    #[test]
    fn pods_that_fail_after_their_rollout_are_no_rollout() {
        let mut crashed = json!({"observedGeneration": 3, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 1, "conditions": [
            {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable", "message": "done"},
            {"type": "Available", "status": "False", "message": "Deployment does not have minimum availability."},
        ]});
        let standing = Standing::of(&deployment(crashed.clone()));
        assert_eq!(
            (standing.phase, standing.reason),
            (Phase::Pending, "PodsNotReady")
        );
        assert_eq!(
            standing.message,
            "Deployment ready replicas: 1/2: Deployment does not have minimum availability."
        );
        crashed["observedGeneration"] = json!(2);
        let standing = Standing::of(&deployment(crashed.clone()));
        assert_eq!(standing.reason, "RollingOut", "another template is on its way");
        crashed["observedGeneration"] = json!(3);
        crashed["conditions"][0]["reason"] = json!("ReplicaSetUpdated");
        assert_eq!(Standing::of(&deployment(crashed)).reason, "RollingOut");
    }

    #[test]
    fn a_paused_rollout_waits_for_somebody() {
        let mut paused = deployment(json!({"observedGeneration": 3, "replicas": 2, "readyReplicas": 2}));
        paused.spec.paused = Some(true);
        paused.metadata.name = Some("agent-sam".to_owned());
        let standing = Standing::of(&paused);
        assert_eq!(
            standing.message,
            "Deployment ready replicas: 2/2: the Deployment agent-sam is paused; `kubectl rollout resume \
             deployment/agent-sam` lets it go on"
        );
        let types: Vec<_> = standing
            .conditions(&[])
            .into_iter()
            .map(|(type_, _)| type_)
            .collect();
        assert_eq!(types, [READY, STALLED, CONFIGURATION_VALID]);
    }

    #[test]
    fn a_workload_without_pods_is_neither_ready_nor_under_way_nor_stuck() {
        let mut none = deployment(json!({"observedGeneration": 3}));
        none.spec.replicas = Some(0);
        let standing = Standing::of(&none);
        assert_eq!(
            standing.message,
            "Deployment ready replicas: 0/0: it is scaled to zero"
        );
        let types: Vec<_> = standing
            .conditions(&[])
            .into_iter()
            .map(|(type_, _)| type_)
            .collect();
        assert_eq!(types, [READY, CONFIGURATION_VALID]);
    }

    #[test]
    fn conditions_agree_with_the_phase() {
        let valid = |standing: &Standing| {
            let conditions = standing.conditions(&[Note::older("use b")]);
            let (_, valid) = conditions.last().cloned().unwrap();
            let types: Vec<_> = conditions.into_iter().map(|(type_, _)| type_).collect();
            (types.join(" "), valid.status, valid.reason)
        };
        for (standing, expected) in [
            (
                Standing::failed("Wrong", "x"),
                ("Ready Stalled ConfigurationValid", Some(false), "Wrong"),
            ),
            (
                Standing::missing("x"),
                ("Ready Stalled ConfigurationValid", Some(true), "OlderSpelling"),
            ),
            (
                Standing::waiting("Waiting", "x"),
                (
                    "Ready Reconciling ConfigurationValid",
                    Some(true),
                    "OlderSpelling",
                ),
            ),
            (
                Standing::pending(ROLLOUT_STUCK, "x"),
                ("Ready Stalled ConfigurationValid", Some(true), "OlderSpelling"),
            ),
            (
                Standing::pending(ROLLING_OUT, "x"),
                (
                    "Ready Reconciling ConfigurationValid",
                    Some(true),
                    "OlderSpelling",
                ),
            ),
        ] {
            let (types, status, reason) = valid(&standing);
            assert_eq!(
                (types.as_str(), status, reason.as_str()),
                expected,
                "{standing:?}"
            );
        }
    }
}
