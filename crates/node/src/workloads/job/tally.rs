//! What the pods of a Job say: how many have succeeded and failed, and when the next may be made.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::{
    batch::v1::{JobSpec, JobStatus},
    core::v1::{ContainerStatus, Pod},
};
use kube::ResourceExt as _;

use super::{left, tracking::is_tracked};
use crate::kubelet::Role;

/// How many pods may fail where the Job does not say.
const DEFAULT_BACKOFF_LIMIT: i32 = 6;
/// The pause after a first failure; each further one doubles it. In seconds, as Kubernetes has it.
const FIRST_PAUSE: i64 = 10;
/// The longest pause, in seconds.
const LONGEST_PAUSE: i64 = 600;

/// How many pods of a Job have ended, those included that its status does not count yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) succeeded: i32,
    pub(super) failed: i32,
    /// How often the containers of pods that go on were started again.
    restarts: i32,
}

impl Tally {
    pub(super) fn of(spec: &JobSpec, status: &JobStatus, pods: &[Pod]) -> Self {
        let uncounted = status.uncounted_terminated_pods.clone().unwrap_or_default();
        let (succeeded, failed) = (
            uncounted.succeeded.unwrap_or_default(),
            uncounted.failed.unwrap_or_default(),
        );
        let new = |holds: &dyn Fn(&Pod) -> bool| {
            let is_new = |pod: &&Pod| {
                let uid = pod.uid().unwrap_or_default();
                is_tracked(pod) && !succeeded.contains(&uid) && !failed.contains(&uid) && holds(pod)
            };
            pods.iter().filter(is_new).count()
        };
        let sum = |counted: Option<i32>, named: usize, new: usize| {
            let more = i32::try_from(named + new).unwrap_or(i32::MAX);
            counted.unwrap_or(0).saturating_add(more)
        };
        let goes_on = |pod: &&Pod| matches!(phase(pod), "Running" | "Pending");
        let restarts = pods.iter().filter(goes_on).flat_map(containers);
        Self {
            succeeded: sum(
                status.succeeded,
                succeeded.len(),
                new(&|pod| phase(pod) == "Succeeded"),
            ),
            failed: sum(status.failed, failed.len(), new(&|pod| is_failed(pod, spec))),
            restarts: restarts.map(|container| container.restart_count).sum(),
        }
    }

    /// Whether more has failed than may.
    pub(super) fn exceeds(&self, spec: &JobSpec) -> bool {
        let limit = spec.backoff_limit.unwrap_or(DEFAULT_BACKOFF_LIMIT);
        let policy = spec
            .template
            .spec
            .as_ref()
            .and_then(|pod| pod.restart_policy.as_deref());
        let too_many_restarts = policy == Some("OnFailure") && self.restarts > 0 && self.restarts >= limit;
        self.failed > limit || too_many_restarts
    }
}

pub(super) fn phase(pod: &Pod) -> &str {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    phase.unwrap_or("Pending")
}

/// Whether a pod was asked to end and has not.
pub(super) fn is_terminating(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some() && !matches!(phase(pod), "Succeeded" | "Failed")
}

/// Whether pods are only replaced when they have ended.
pub(super) fn replaces_ended_only(spec: &JobSpec) -> bool {
    spec.pod_replacement_policy.as_deref() == Some("Failed")
}

/// Whether a pod counts as failed: one that is deleted does before it has ended, where the Job says so.
pub(super) fn is_failed(pod: &Pod, spec: &JobSpec) -> bool {
    phase(pod) == "Failed" || (!replaces_ended_only(spec) && is_terminating(pod))
}

/// How long no pod may be made, after those that have failed since the last success. It is worked out of the pods
/// that are there, so that it outlives the controller.
pub(super) fn pause(pods: &[Pod], spec: &JobSpec, now: Timestamp) -> Duration {
    // A pod that was deleted because there were too many has lost its finalizer before.
    let was_counted = |pod: &&Pod| pod.metadata.deletion_timestamp.is_none() || is_tracked(pod);
    let ended = |holds: &dyn Fn(&Pod) -> bool| {
        let pods = pods.iter().filter(was_counted).filter(|pod| holds(pod));
        pods.map(finished_at).collect::<Vec<_>>()
    };
    let last_success = ended(&|pod| phase(pod) == "Succeeded").into_iter().max();
    let failures: Vec<Timestamp> = ended(&|pod| is_failed(pod, spec))
        .into_iter()
        .filter(|at| last_success.is_none_or(|success| *at > success))
        .collect();
    let Some(last) = failures.iter().max() else {
        return Duration::ZERO;
    };
    let doublings = u32::try_from(failures.len() - 1).unwrap_or(u32::MAX);
    let pause = FIRST_PAUSE
        .saturating_mul(2i64.saturating_pow(doublings))
        .min(LONGEST_PAUSE);
    left(*last, pause, now)
}

fn containers(pod: &Pod) -> impl Iterator<Item = &ContainerStatus> {
    let lists = pod
        .status
        .iter()
        .flat_map(|status| [&status.init_container_statuses, &status.container_statuses]);
    lists.flatten().flatten()
}

/// When a pod that counts as ended has ended: when its last container did; else since when it is not ready, or when
/// it was deleted.
fn finished_at(pod: &Pod) -> Timestamp {
    let status = pod.status.as_ref();
    let sidecars: Vec<&str> = pod
        .spec
        .iter()
        .flat_map(|spec| spec.init_containers.iter().flatten())
        .filter(|container| Role::of_init(container) == Role::Sidecar)
        .map(|container| container.name.as_str())
        .collect();
    let main = status.and_then(|status| status.container_statuses.as_ref());
    let init = status.and_then(|status| status.init_container_statuses.as_ref());
    let counts = main.into_iter().flatten().chain(
        init.into_iter()
            .flatten()
            .filter(|container| sidecars.contains(&container.name.as_str())),
    );
    let ends: Option<Vec<Timestamp>> = counts
        .map(|container| {
            let ended = container.state.as_ref()?.terminated.as_ref()?;
            ended.finished_at.as_ref().map(|time| time.0)
        })
        .collect();
    let of_containers = || ends.into_iter().flatten().max();
    let of_condition = || {
        let conditions = status?.conditions.as_ref()?;
        let ready = conditions
            .iter()
            .find(|condition| condition.type_ == "Ready" && condition.status == "False")?;
        ready.last_transition_time.as_ref().map(|time| time.0)
    };
    let of_deletion = || {
        let deleted = pod.metadata.deletion_timestamp.as_ref()?.0;
        let grace = pod.metadata.deletion_grace_period_seconds.unwrap_or(0);
        deleted.checked_sub(SignedDuration::from_secs(grace)).ok()
    };
    of_containers()
        .or_else(of_condition)
        .or_else(of_deletion)
        .or_else(|| pod.creation_timestamp().map(|time| time.0))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn spec(more: Value) -> JobSpec {
        let mut spec = json!({ "template": { "spec": { "containers": [], "restartPolicy": "Never" } } });
        for (field, value) in more.as_object().unwrap() {
            spec[field] = value.clone();
        }
        serde_json::from_value(spec).unwrap()
    }

    /// A tracked pod of a phase, whose container ended at a second.
    fn pod(uid: &str, phase: &str, second: u32) -> Pod {
        let at = format!("2026-01-01T00:{:02}:{:02}Z", second / 60, second % 60);
        serde_json::from_value(json!({
            "metadata": { "uid": uid, "finalizers": [super::super::tracking::FINALIZER] },
            "status": { "phase": phase, "containerStatuses": [{ "name": "c", "image": "", "imageID": "",
                "ready": false, "restartCount": 2,
                "state": { "terminated": { "exitCode": 1, "finishedAt": at } } }] },
        }))
        .unwrap()
    }

    #[test]
    fn each_pod_is_counted_once() {
        let status: JobStatus = serde_json::from_value(json!({ "succeeded": 3, "failed": 1,
            "uncountedTerminatedPods": { "succeeded": ["a"], "failed": ["b"] } }))
        .unwrap();
        let mut counted = pod("d", "Failed", 1);
        counted.metadata.finalizers = None;
        let pods = [
            pod("a", "Succeeded", 1),
            pod("b", "Failed", 1),
            pod("c", "Succeeded", 1),
            counted,
            pod("e", "Running", 1),
        ];
        let tally = Tally::of(&spec(json!({})), &status, &pods);
        assert_eq!((tally.succeeded, tally.failed, tally.restarts), (5, 2, 2));
    }

    #[test]
    fn failures_and_restarts_beyond_the_limit_are_too_many() {
        let tally = |failed, restarts| Tally {
            succeeded: 0,
            failed,
            restarts,
        };
        let again = json!({ "template": { "spec": { "containers": [], "restartPolicy": "OnFailure" } },
                            "backoffLimit": 2 });
        for (spec, tally, expected) in [
            (spec(json!({})), tally(6, 0), false),
            (spec(json!({})), tally(7, 0), true),
            (spec(json!({ "backoffLimit": 0 })), tally(0, 9), false),
            (spec(json!({ "backoffLimit": 0 })), tally(1, 0), true),
            (spec(again.clone()), tally(0, 1), false),
            (spec(again), tally(0, 2), true),
        ] {
            assert_eq!(
                tally.exceeds(&spec),
                expected,
                "{tally:?} {:?}",
                spec.backoff_limit
            );
        }
    }

    #[test]
    fn the_pause_doubles_with_each_failure_since_the_last_success() {
        let at = |second: i64| Timestamp::constant(1_767_225_600 + second, 0);
        let paused = |pods: &[Pod], now| pause(pods, &spec(json!({})), at(now)).as_secs();
        assert_eq!(paused(&[pod("a", "Running", 0)], 5), 0);
        assert_eq!(paused(&[pod("a", "Failed", 0)], 4), 6);
        assert_eq!(paused(&[pod("a", "Failed", 0)], 10), 0);
        let three = [
            pod("a", "Failed", 0),
            pod("b", "Failed", 20),
            pod("c", "Failed", 60),
        ];
        assert_eq!(paused(&three, 61), 39);
        let mut after_success = three.to_vec();
        after_success.push(pod("s", "Succeeded", 30));
        assert_eq!(paused(&after_success, 61), 9);
        let many: Vec<Pod> = (0..20)
            .map(|index| pod(&index.to_string(), "Failed", 0))
            .collect();
        assert_eq!(paused(&many, 1), 599);
    }

    #[test]
    fn a_deleted_pod_counts_as_failed_unless_only_ended_ones_do() {
        let mut leaving = pod("a", "Running", 0);
        leaving.metadata.deletion_timestamp = Some(super::super::second(Timestamp::UNIX_EPOCH));
        assert!(is_failed(&leaving, &spec(json!({}))));
        assert!(!is_failed(
            &leaving,
            &spec(json!({ "podReplacementPolicy": "Failed" }))
        ));
    }
}
