//! A Deployment's status and conditions, derived from its ReplicaSets as the API showed them.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::apps::v1::{Deployment, DeploymentCondition, DeploymentStatus, ReplicaSet},
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::ResourceExt;

use super::rollout::{limits, wanted};

const AVAILABLE: &str = "Available";
const PROGRESSING: &str = "Progressing";
const REPLICA_FAILURE: &str = "ReplicaFailure";

/// The reason of a finished rollout.
const NEW_AVAILABLE: &str = "NewReplicaSetAvailable";
/// The reason of one that took too long.
const TIMED_OUT: &str = "ProgressDeadlineExceeded";
const PAUSED: &str = "DeploymentPaused";

/// The value of `progressDeadlineSeconds` that stands for none.
const NO_DEADLINE: i32 = i32::MAX;

/// Whether the rollout is over: every pod is new, and all of them are available.
pub(super) fn is_complete(deployment: &Deployment, status: &DeploymentStatus) -> bool {
    let wanted = Some(wanted(deployment));
    status.updated_replicas.or(Some(0)) == wanted
        && status.replicas.or(Some(0)) == wanted
        && status.available_replicas.or(Some(0)) == wanted
        && status.observed_generation >= deployment.metadata.generation
}

/// The status of a Deployment whose ReplicaSets are `new` and `old`. `created` names a ReplicaSet made in
/// this pass.
pub(super) fn status(
    deployment: &Deployment,
    new: Option<&ReplicaSet>,
    old: &[ReplicaSet],
    created: Option<&str>,
    now: Timestamp,
) -> DeploymentStatus {
    let before = deployment.status.clone().unwrap_or_default();
    let all = || new.into_iter().chain(old);
    let sum = |count: fn(&ReplicaSet) -> Option<i32>| all().map(|set| count(set).unwrap_or(0)).sum::<i32>();
    let some = |count: i32| (count != 0).then_some(count);
    let replicas = sum(|set| set.status.as_ref().map(|status| status.replicas));
    let available = sum(|set| set.status.as_ref()?.available_replicas);
    let asked = sum(|set| set.spec.replicas);
    let mut status = DeploymentStatus {
        observed_generation: deployment.metadata.generation,
        replicas: some(replicas),
        updated_replicas: some(
            new.and_then(|set| set.status.as_ref())
                .map_or(0, |status| status.replicas),
        ),
        ready_replicas: some(sum(|set| set.status.as_ref()?.ready_replicas)),
        available_replicas: some(available),
        unavailable_replicas: some((asked - available).max(0)),
        terminating_replicas: Some(sum(|set| set.status.as_ref()?.terminating_replicas)),
        collision_count: before.collision_count,
        conditions: before.conditions.clone(),
    };
    let mut conditions = Conditions {
        list: before.conditions.clone().unwrap_or_default(),
        now,
    };

    let minimum = wanted(deployment) - limits(deployment).unavailable;
    if available >= minimum {
        let message = "Deployment has minimum availability.";
        conditions.set(AVAILABLE, "True", "MinimumReplicasAvailable", message);
    } else {
        let message = "Deployment does not have minimum availability.";
        conditions.set(AVAILABLE, "False", "MinimumReplicasUnavailable", message);
    }
    progressing(&mut conditions, deployment, &before, &status, new, created);
    replica_failure(&mut conditions, new, old);
    status.conditions = Some(conditions.list);
    status
}

fn progressing(
    conditions: &mut Conditions,
    deployment: &Deployment,
    before: &DeploymentStatus,
    status: &DeploymentStatus,
    new: Option<&ReplicaSet>,
    created: Option<&str>,
) {
    let Some(deadline) = deadline(deployment) else {
        conditions.remove(PROGRESSING);
        return;
    };
    let paused = is_paused(deployment);
    let current = conditions
        .get(PROGRESSING)
        .map(|condition| condition.reason.clone().unwrap_or_default());
    if paused {
        if current.as_deref() != Some(TIMED_OUT) {
            conditions.set(PROGRESSING, "Unknown", PAUSED, "Deployment is paused");
        }
        return;
    }
    if current.as_deref() == Some(PAUSED) {
        conditions.set(
            PROGRESSING,
            "Unknown",
            "DeploymentResumed",
            "Deployment is resumed",
        );
    }
    let name = new.map_or_else(|| deployment.name_any(), ResourceExt::name_any);
    let subject = if new.is_some() { "ReplicaSet" } else { "Deployment" };
    if let Some(created) = created {
        let message = format!("Created new replica set {created:?}");
        conditions.set(PROGRESSING, "True", "NewReplicaSetCreated", &message);
    } else if current.is_none() && new.is_some() {
        let message = format!("Found new replica set {name:?}");
        conditions.set(PROGRESSING, "True", "FoundNewReplicaSet", &message);
    }
    // A finished rollout stays finished when pods fail later: only its availability tells of that.
    let same_replicas = status.replicas.unwrap_or(0) == status.updated_replicas.unwrap_or(0);
    if same_replicas && current.as_deref() == Some(NEW_AVAILABLE) && created.is_none() {
        return;
    }
    if is_complete(deployment, status) {
        let message = format!("{subject} {name:?} has successfully progressed.");
        conditions.set(PROGRESSING, "True", NEW_AVAILABLE, &message);
    } else if has_progressed(before, status) {
        let message = format!("{subject} {name:?} is progressing.");
        conditions.renew(PROGRESSING, "True", "ReplicaSetUpdated", &message);
    } else if conditions.timed_out(deadline) {
        let message = format!("{subject} {name:?} has timed out progressing.");
        conditions.set(PROGRESSING, "False", TIMED_OUT, &message);
    }
}

fn replica_failure(conditions: &mut Conditions, new: Option<&ReplicaSet>, old: &[ReplicaSet]) {
    let failure = |set: &ReplicaSet| {
        let conditions = set.status.as_ref()?.conditions.as_ref()?;
        conditions
            .iter()
            .find(|condition| condition.type_.as_deref() == Some(REPLICA_FAILURE))
            .cloned()
    };
    match new.and_then(failure).or_else(|| old.iter().find_map(failure)) {
        Some(found) => conditions.set(
            REPLICA_FAILURE,
            found.status.as_deref().unwrap_or_default(),
            found.reason.as_deref().unwrap_or_default(),
            found.message.as_deref().unwrap_or_default(),
        ),
        None => conditions.remove(REPLICA_FAILURE),
    }
}

fn has_progressed(before: &DeploymentStatus, after: &DeploymentStatus) -> bool {
    let count = |count: Option<i32>| count.unwrap_or(0);
    let old_pods = |status: &DeploymentStatus| count(status.replicas) - count(status.updated_replicas);
    count(after.updated_replicas) > count(before.updated_replicas)
        || old_pods(after) < old_pods(before)
        || count(after.ready_replicas) > count(before.ready_replicas)
        || count(after.available_replicas) > count(before.available_replicas)
}

/// Whether a Deployment is paused: its pods are left as they are, but for their number.
pub(super) fn is_paused(deployment: &Deployment) -> bool {
    deployment.spec.paused == Some(true)
}

fn deadline(deployment: &Deployment) -> Option<SignedDuration> {
    let seconds = deployment.spec.progress_deadline_seconds?;
    (seconds != NO_DEADLINE).then(|| SignedDuration::from_secs(i64::from(seconds)))
}

/// When the deadline of a rollout that goes on must be looked at, if nothing happens until then.
pub(super) fn until_deadline(
    deployment: &Deployment,
    status: &DeploymentStatus,
    now: Timestamp,
) -> Option<Duration> {
    let deadline =
        deadline(deployment).filter(|_| !is_complete(deployment, status) && !is_paused(deployment))?;
    let condition = status
        .conditions
        .as_ref()?
        .iter()
        .find(|condition| condition.type_.as_deref() == Some(PROGRESSING))?;
    if matches!(condition.reason.as_deref(), Some(TIMED_OUT | NEW_AVAILABLE)) {
        return None;
    }
    let since = condition.last_update_time.as_ref()?.0;
    let left = deadline - now.duration_since(since);
    // The deadline is over when more than it has passed, in whole seconds.
    Some(left.max(SignedDuration::ZERO).unsigned_abs() + Duration::from_secs(1))
}

struct Conditions {
    list: Vec<DeploymentCondition>,
    now: Timestamp,
}

impl Conditions {
    fn get(&self, kind: &str) -> Option<&DeploymentCondition> {
        self.list
            .iter()
            .find(|condition| condition.type_.as_deref() == Some(kind))
    }

    fn remove(&mut self, kind: &str) {
        self.list
            .retain(|condition| condition.type_.as_deref() != Some(kind));
    }

    /// Sets a condition unless it says the same already.
    fn set(&mut self, kind: &str, status: &str, reason: &str, message: &str) {
        let same = self.get(kind).is_some_and(|condition| {
            condition.status.as_deref() == Some(status) && condition.reason.as_deref() == Some(reason)
        });
        if !same {
            self.renew(kind, status, reason, message);
        }
    }

    /// Sets a condition and the time of its update, even if it says the same.
    fn renew(&mut self, kind: &str, status: &str, reason: &str, message: &str) {
        // Kubernetes keeps times to the second.
        let now = Time(Timestamp::from_second(self.now.as_second()).unwrap_or(self.now));
        let since = self
            .get(kind)
            .filter(|condition| condition.status.as_deref() == Some(status));
        let since = since.and_then(|condition| condition.last_transition_time.clone());
        self.remove(kind);
        self.list.push(DeploymentCondition {
            type_: Some(kind.to_owned()),
            status: Some(status.to_owned()),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            last_transition_time: since.or_else(|| Some(now.clone())),
            last_update_time: Some(now),
        });
    }

    fn timed_out(&self, deadline: SignedDuration) -> bool {
        let Some(condition) = self.get(PROGRESSING) else {
            return false;
        };
        match condition.reason.as_deref() {
            Some(NEW_AVAILABLE) => false,
            Some(TIMED_OUT) => true,
            _ => condition
                .last_update_time
                .as_ref()
                .is_some_and(|updated| self.now.duration_since(updated.0) > deadline),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn deployment(status: Option<DeploymentStatus>) -> Deployment {
        let mut deployment: Deployment = serde_json::from_value(json!({
            "metadata": { "name": "d", "generation": 2 },
            "spec": { "replicas": 2, "selector": {}, "template": {}, "progressDeadlineSeconds": 60,
                      "strategy": { "rollingUpdate": { "maxSurge": 1, "maxUnavailable": 0 } } } }))
        .unwrap();
        deployment.status = status;
        deployment
    }

    fn set(name: &str, asked: i32, pods: i32, available: i32) -> ReplicaSet {
        serde_json::from_value(json!({ "metadata": { "name": name },
            "spec": { "replicas": asked, "selector": {} },
            "status": { "replicas": pods, "readyReplicas": available, "availableReplicas": available } }))
        .unwrap()
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn reason<'a>(status: &'a DeploymentStatus, kind: &str) -> (&'a str, &'a str) {
        let found = status
            .conditions
            .iter()
            .flatten()
            .find(|condition| condition.type_.as_deref() == Some(kind))
            .unwrap();
        (found.status.as_deref().unwrap(), found.reason.as_deref().unwrap())
    }

    #[test]
    fn a_rollout_that_succeeds() {
        let created = status(&deployment(None), Some(&set("a", 2, 0, 0)), &[], Some("a"), at(0));
        assert_eq!(reason(&created, "Progressing"), ("True", "NewReplicaSetCreated"));
        assert_eq!(
            reason(&created, "Available"),
            ("False", "MinimumReplicasUnavailable")
        );
        let started = status(
            &deployment(Some(created)),
            Some(&set("a", 2, 2, 0)),
            &[],
            None,
            at(1),
        );
        assert_eq!(reason(&started, "Progressing"), ("True", "ReplicaSetUpdated"));
        assert_eq!(started.unavailable_replicas, Some(2));
        let done = status(
            &deployment(Some(started)),
            Some(&set("a", 2, 2, 2)),
            &[],
            None,
            at(2),
        );
        assert_eq!(reason(&done, "Progressing"), ("True", "NewReplicaSetAvailable"));
        assert_eq!(reason(&done, "Available"), ("True", "MinimumReplicasAvailable"));
        let later = status(
            &deployment(Some(done.clone())),
            Some(&set("a", 2, 2, 2)),
            &[],
            None,
            at(900),
        );
        assert_eq!(later, done, "nothing changed, so nothing would be written");
        // A pod that fails later makes it unavailable, not a failed rollout.
        let failed = status(
            &deployment(Some(done)),
            Some(&set("a", 2, 2, 1)),
            &[],
            None,
            at(999),
        );
        assert_eq!(reason(&failed, "Progressing"), ("True", "NewReplicaSetAvailable"));
        assert_eq!(
            reason(&failed, "Available"),
            ("False", "MinimumReplicasUnavailable")
        );
    }

    #[test]
    fn a_rollout_that_does_not_move_passes_its_deadline() {
        let old = [set("old", 2, 2, 2)];
        let new = set("new", 1, 1, 0);
        let settled = status(&deployment(None), None, &old, None, at(0));
        let settled = status(&deployment(Some(settled)), None, &old, None, at(0));
        let fresh = status(
            &deployment(Some(settled)),
            Some(&set("new", 1, 0, 0)),
            &old,
            Some("new"),
            at(0),
        );
        assert_eq!(reason(&fresh, "Progressing"), ("True", "NewReplicaSetCreated"));
        let created = status(&deployment(Some(fresh)), Some(&new), &old, None, at(0));
        let before = deployment(Some(created.clone()));
        let stuck = status(&before, Some(&new), &old, None, at(60));
        assert_eq!(reason(&stuck, "Progressing"), ("True", "ReplicaSetUpdated"));
        assert_eq!(
            until_deadline(&before, &created, at(10)),
            Some(Duration::from_secs(51))
        );
        let late = status(&before, Some(&new), &old, None, at(61));
        assert_eq!(
            reason(&late, "Progressing"),
            ("False", "ProgressDeadlineExceeded")
        );
        assert_eq!(
            reason(&late, "Available"),
            ("True", "MinimumReplicasAvailable"),
            "the old pods stay"
        );
        assert_eq!(until_deadline(&before, &late, at(61)), None);
    }

    #[test]
    fn pausing_is_told_and_has_no_deadline() {
        let mut paused = deployment(None);
        paused.spec.paused = Some(true);
        let told = status(&paused, None, &[], None, at(0));
        assert_eq!(reason(&told, "Progressing"), ("Unknown", "DeploymentPaused"));
        assert_eq!(until_deadline(&paused, &told, at(0)), None);
    }
}
