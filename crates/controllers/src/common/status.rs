//! From what was observed to phase, message and conditions.

use k8s_openapi::{
    api::apps::v1::Deployment,
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
};
use kaos_api::v1alpha1::{DeploymentStatus, Phase};
use kaos_kube_ext::{Observed, set_condition};
use kaos_seams::Clock;

use super::apply::Failure;

/// The condition that sums the others up.
pub(crate) const READY: &str = "Ready";

/// How far a resource has come, in the words of its status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) phase: Phase,
    /// Of the condition `Ready`.
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

impl Standing {
    /// Something has to be changed before it can work.
    pub(crate) fn failed(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            phase: Phase::Failed,
            reason,
            message: message.into(),
        }
    }

    /// Something it needs is not ready.
    pub(crate) fn waiting(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            phase: Phase::Waiting,
            reason,
            message: message.into(),
        }
    }

    /// Its objects could not be applied.
    pub(crate) fn of_failure(failure: &Failure) -> Self {
        Self::failed(failure.reason(), failure.message())
    }

    /// As far as its Deployment has come. What keeps a Deployment from going on (a quota, a deadline that has
    /// passed) is repeated.
    pub(crate) fn of(deployment: &Deployment) -> Self {
        let status = deployment.status.clone().unwrap_or_default();
        let ready = status.ready_replicas.unwrap_or_default();
        let message = format!("Deployment ready replicas: {ready}/{}", desired(deployment));
        if is_rolled_out(deployment) {
            return Self {
                phase: Phase::Ready,
                reason: "RolledOut",
                message,
            };
        }
        let stuck = status.conditions.iter().flatten().find(|condition| {
            matches!(
                (condition.type_.as_deref(), condition.status.as_deref()),
                (Some("ReplicaFailure"), Some("True")) | (Some("Progressing"), Some("False"))
            )
        });
        match stuck.and_then(|condition| condition.message.as_deref()) {
            Some(problem) => Self {
                phase: Phase::Pending,
                reason: "RolloutStuck",
                message: format!("{message}: {problem}"),
            },
            None => Self {
                phase: Phase::Pending,
                reason: "RollingOut",
                message,
            },
        }
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.phase == Phase::Ready
    }

    /// Puts the condition `Ready` in.
    pub(crate) fn put(&self, conditions: &mut Vec<Condition>, generation: Option<i64>, clock: &dyn Clock) {
        let observed = Observed {
            status: Some(self.is_ready()),
            reason: self.reason.to_owned(),
            message: self.message.clone(),
        };
        set_condition(conditions, READY, observed, generation, clock);
    }
}

fn desired(deployment: &Deployment) -> i32 {
    deployment.spec.replicas.unwrap_or(1)
}

/// Whether all pods run the present template and are available, and no other pods are left.
pub(crate) fn is_rolled_out(deployment: &Deployment) -> bool {
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

/// What the resource's status repeats of its Deployment's.
pub(crate) fn observed(deployment: &Deployment) -> Option<DeploymentStatus> {
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

    fn deployment(status: serde_json::Value) -> Deployment {
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
}
