//! Jobs: the test says which of their pods succeed and which fail.

use std::time::Duration;

use k8s_openapi::api::{
    batch::v1::{Job, JobStatus},
    core::v1::{Event, Pod},
};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, PropagationPolicy},
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::support::{World, until};

const TRACKED: &str = "batch.kubernetes.io/job-tracking";

struct Fixture {
    jobs: Api<Job>,
    pods: Api<Pod>,
    world: World,
}

impl Fixture {
    async fn start() -> Self {
        let world = World::start().await;
        Self {
            jobs: world.api(),
            pods: world.api(),
            world,
        }
    }

    /// A Job `work` whose spec has these fields.
    async fn create(&self, fields: Value) {
        let mut spec = json!({ "template": { "spec": {
            "restartPolicy": "Never", "containers": [{ "name": "c", "image": "i" }] } } });
        for (field, value) in fields.as_object().unwrap() {
            match field.as_str() {
                "restartPolicy" => spec["template"]["spec"][field] = value.clone(),
                _ => spec[field] = value.clone(),
            }
        }
        let job = json!({ "metadata": { "name": "work" }, "spec": spec });
        let job = serde_json::from_value(job).unwrap();
        self.jobs.create(&PostParams::default(), &job).await.unwrap();
    }

    async fn change(&self, spec: Value) {
        let patch = Patch::Merge(json!({ "spec": spec }));
        self.jobs
            .patch("work", &PatchParams::default(), &patch)
            .await
            .unwrap();
    }

    async fn status(&self) -> JobStatus {
        self.jobs.get("work").await.unwrap().status.unwrap_or_default()
    }

    /// The conditions that hold, with their reasons.
    async fn conditions(&self) -> Vec<(String, String)> {
        let all = self.status().await.conditions.unwrap_or_default();
        let held = all.into_iter().filter(|condition| condition.status == "True");
        held.map(|condition| (condition.type_, condition.reason.unwrap_or_default()))
            .collect()
    }

    async fn pods(&self) -> Vec<Pod> {
        self.pods.list(&ListParams::default()).await.unwrap().items
    }

    /// The names of the pods that have not ended.
    async fn running(&self) -> Vec<String> {
        let goes_on = |pod: &Pod| {
            let phase = pod.status.as_ref().and_then(|status| status.phase.clone());
            !matches!(phase.as_deref(), Some("Succeeded" | "Failed"))
                && pod.metadata.deletion_timestamp.is_none()
        };
        let pods = self.pods().await.into_iter().filter(goes_on);
        pods.map(|pod| pod.name_any()).collect()
    }

    /// Says what became of a pod, as a kubelet would.
    async fn set(&self, pod: &str, phase: &str, restarts: i32) {
        let now = self.world.seams.clock.now().to_string();
        let state = match phase {
            "Running" => json!({ "running": { "startedAt": now } }),
            _ => json!({ "terminated": { "exitCode": i32::from(phase == "Failed"), "finishedAt": now } }),
        };
        let status = json!({ "status": { "phase": phase, "containerStatuses": [{
            "name": "c", "image": "i", "imageID": "", "ready": false, "restartCount": restarts, "state": state }] } });
        self.pods
            .patch_status(pod, &PatchParams::default(), &Patch::Merge(status))
            .await
            .unwrap();
    }

    async fn until(&self, what: &str, holds: impl AsyncFn(&Self) -> bool) {
        let state = async || {
            let job = self.jobs.get_opt("work").await.unwrap();
            format!(
                "job {:#?}, pods {:?}",
                job.map(|job| job.status),
                self.running().await
            )
        };
        until(what, async || holds(self).await, state).await;
    }

    async fn until_running(&self, count: usize) -> Vec<String> {
        self.until("so many pods", async |f| f.running().await.len() == count)
            .await;
        self.running().await
    }

    async fn until_held(&self, kind: &str, reason: &str) {
        let wanted = (kind.to_owned(), reason.to_owned());
        self.until(kind, async |f| f.conditions().await.contains(&wanted))
            .await;
    }

    /// Waits until no pod has the finalizer.
    async fn until_counted(&self) {
        self.until("pods without finalizer", async |f| {
            let mut pods = f.pods().await.into_iter();
            pods.all(|pod| !pod.finalizers().contains(&TRACKED.to_owned()))
        })
        .await;
    }

    /// Waits for an event of the Job with this reason and message.
    async fn told(&self, reason: &str, message: &str) {
        let events: Api<Event> = self.world.api();
        self.until(reason, async |_| {
            let events = events.list(&ListParams::default()).await.unwrap().items;
            events.iter().any(|event| {
                event.involved_object.kind.as_deref() == Some("Job")
                    && event.reason.as_deref() == Some(reason)
                    && event
                        .message
                        .as_deref()
                        .is_some_and(|text| text.starts_with(message))
            })
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn pods_come_until_enough_have_succeeded() {
    let fixture = Fixture::start().await;
    fixture
        .create(json!({ "completions": 3, "parallelism": 2 }))
        .await;
    let first = fixture.until_running(2).await;
    fixture.told("SuccessfulCreate", "Created pod: work-").await;
    let status = fixture.status().await;
    assert!(status.start_time.is_some());
    assert_eq!((status.active, status.ready), (Some(2), Some(0)));

    fixture.set(&first[0], "Succeeded", 0).await;
    fixture
        .until("another pod", async |f| {
            f.status().await.succeeded == Some(1) && f.running().await.len() == 2
        })
        .await;
    fixture.set(&first[1], "Succeeded", 0).await;
    let last = fixture.until_running(1).await;
    fixture.set(&last[0], "Succeeded", 0).await;
    fixture.until_held("Complete", "CompletionsReached").await;

    let status = fixture.status().await;
    assert_eq!(
        (status.succeeded, status.failed, status.active),
        (Some(3), None, None)
    );
    assert!(status.completion_time.is_some());
    let held = fixture.conditions().await;
    assert_eq!(held[0].0, "SuccessCriteriaMet");
    fixture.told("Completed", "Job completed").await;
    fixture.until_counted().await;
    assert_eq!(fixture.pods().await.len(), 3);
    let pod = &fixture.pods().await[0];
    assert_eq!(pod.labels()["batch.kubernetes.io/job-name"], "work");
    assert_eq!(pod.owner_references()[0].kind, "Job");
}

#[tokio::test(start_paused = true)]
async fn a_failing_pod_is_replaced_after_growing_pauses_until_the_limit() {
    let fixture = Fixture::start().await;
    fixture.create(json!({ "backoffLimit": 2 })).await;
    let mut pauses = Vec::new();
    for _ in 0..2 {
        let pod = fixture.until_running(1).await;
        fixture.set(&pod[0], "Failed", 0).await;
        let failed = Instant::now();
        fixture.until_running(0).await;
        fixture.until_running(1).await;
        pauses.push(failed.elapsed().as_secs());
    }
    assert!((9..=11).contains(&pauses[0]), "{pauses:?}");
    assert!((19..=21).contains(&pauses[1]), "{pauses:?}");
    let pod = fixture.until_running(1).await;
    fixture.set(&pod[0], "Failed", 0).await;
    fixture.until_held("Failed", "BackoffLimitExceeded").await;
    let held = fixture.conditions().await;
    assert_eq!(
        held[0],
        ("FailureTarget".to_owned(), "BackoffLimitExceeded".to_owned())
    );
    let status = fixture.status().await;
    assert_eq!(
        (status.failed, status.succeeded, status.completion_time),
        (Some(3), None, None)
    );
    let message = "Job has reached the specified backoff limit";
    fixture.told("BackoffLimitExceeded", message).await;
    fixture.until_counted().await;
    sleep(Duration::from_secs(700)).await;
    assert_eq!(fixture.pods().await.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn containers_started_again_count_towards_the_limit() {
    let fixture = Fixture::start().await;
    fixture
        .create(json!({ "backoffLimit": 2, "restartPolicy": "OnFailure" }))
        .await;
    let pod = fixture.until_running(1).await;
    fixture.set(&pod[0], "Running", 1).await;
    sleep(Duration::from_secs(5)).await;
    assert_eq!(fixture.conditions().await, []);
    fixture.set(&pod[0], "Running", 2).await;
    fixture.until_held("Failed", "BackoffLimitExceeded").await;
    fixture
        .until("the end of the pod", async |f| f.pods().await.is_empty())
        .await;
    assert_eq!(fixture.status().await.failed, Some(1));
    fixture.told("SuccessfulDelete", "Deleted pod: work-").await;
}

#[tokio::test(start_paused = true)]
async fn a_job_that_takes_too_long_fails_and_its_pods_end() {
    let fixture = Fixture::start().await;
    fixture
        .create(json!({ "activeDeadlineSeconds": 40, "parallelism": 2, "completions": 2 }))
        .await;
    fixture.until_running(2).await;
    sleep(Duration::from_secs(35)).await;
    assert_eq!(fixture.conditions().await, []);
    fixture.until_held("Failed", "DeadlineExceeded").await;
    let message = "Job was active longer than specified deadline";
    fixture.told("DeadlineExceeded", message).await;
    assert_eq!(fixture.status().await.failed, Some(2));
    fixture
        .until("the end of the pods", async |f| f.pods().await.is_empty())
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_suspended_job_has_no_pods_and_fails_none() {
    let fixture = Fixture::start().await;
    fixture
        .create(json!({ "suspend": true, "activeDeadlineSeconds": 60, "backoffLimit": 0 }))
        .await;
    fixture.until_held("Suspended", "JobSuspended").await;
    assert_eq!(fixture.status().await.start_time, None);
    sleep(Duration::from_secs(100)).await;
    assert_eq!(fixture.pods().await.len(), 0);

    fixture.change(json!({ "suspend": false })).await;
    fixture.until_running(1).await;
    fixture.told("Resumed", "Job resumed").await;
    fixture.change(json!({ "suspend": true })).await;
    fixture
        .until("the end of the pod", async |f| f.pods().await.is_empty())
        .await;
    fixture.told("Suspended", "Job suspended").await;

    fixture.change(json!({ "suspend": false })).await;
    let pod = fixture.until_running(1).await;
    assert_eq!(fixture.status().await.failed, None);
    fixture.set(&pod[0], "Succeeded", 0).await;
    fixture.until_held("Complete", "CompletionsReached").await;
}

#[tokio::test(start_paused = true)]
async fn fewer_pods_at_once_end_the_surplus_without_counting_it() {
    let fixture = Fixture::start().await;
    fixture
        .create(json!({ "completions": 3, "parallelism": 3, "backoffLimit": 0 }))
        .await;
    fixture.until_running(3).await;
    fixture.change(json!({ "parallelism": 1 })).await;
    let left = fixture.until_running(1).await;
    for _ in 0..2 {
        let pod = fixture.until_running(1).await;
        fixture.set(&pod[0], "Succeeded", 0).await;
        fixture
            .until("the next pod", async |f| {
                f.running().await.first().is_some_and(|next| *next != pod[0])
            })
            .await;
    }
    let last = fixture.until_running(1).await;
    assert_ne!(left, last);
    fixture.set(&last[0], "Succeeded", 0).await;
    fixture.until_held("Complete", "CompletionsReached").await;
    assert_eq!(fixture.status().await.failed, None);
}

#[tokio::test(start_paused = true)]
async fn a_work_queue_is_done_when_one_has_succeeded_and_the_others_have_ended() {
    let fixture = Fixture::start().await;
    fixture.create(json!({ "parallelism": 2 })).await;
    let pods = fixture.until_running(2).await;
    fixture.set(&pods[0], "Succeeded", 0).await;
    sleep(Duration::from_secs(30)).await;
    assert_eq!(fixture.running().await, [pods[1].clone()]);
    assert_eq!(fixture.conditions().await, []);
    fixture.set(&pods[1], "Failed", 0).await;
    fixture.until_held("Complete", "CompletionsReached").await;
    let status = fixture.status().await;
    assert_eq!((status.succeeded, status.failed), (Some(1), Some(1)));
}

#[tokio::test(start_paused = true)]
async fn a_deleted_pod_counts_as_failed_and_is_replaced() {
    let fixture = Fixture::start().await;
    fixture.create(json!({})).await;
    let pod = fixture.until_running(1).await;
    fixture
        .pods
        .delete(&pod[0], &DeleteParams::default())
        .await
        .unwrap();
    fixture
        .until("another pod", async |f| {
            f.running().await.first().is_some_and(|next| *next != pod[0])
        })
        .await;
    assert_eq!(fixture.status().await.failed, Some(1));
}

#[tokio::test(start_paused = true)]
async fn a_finished_job_goes_with_its_pods_when_its_time_is_over() {
    let fixture = Fixture::start().await;
    fixture.create(json!({ "ttlSecondsAfterFinished": 50 })).await;
    let pod = fixture.until_running(1).await;
    fixture.set(&pod[0], "Succeeded", 0).await;
    fixture.until_held("Complete", "CompletionsReached").await;
    sleep(Duration::from_secs(45)).await;
    assert_eq!(fixture.pods().await.len(), 1);
    fixture
        .until("the end of the Job", async |f| {
            f.jobs.get_opt("work").await.unwrap().is_none() && f.pods().await.is_empty()
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn pods_go_with_their_job_or_are_let_go() {
    let fixture = Fixture::start().await;
    for policy in [
        PropagationPolicy::Background,
        PropagationPolicy::Foreground,
        PropagationPolicy::Orphan,
    ] {
        fixture.create(json!({})).await;
        fixture.until_running(1).await;
        let orphaned = matches!(policy, PropagationPolicy::Orphan);
        let params = DeleteParams {
            propagation_policy: Some(policy),
            ..DeleteParams::default()
        };
        fixture.jobs.delete("work", &params).await.unwrap();
        fixture
            .until("the end of the Job", async |f| {
                f.jobs.get_opt("work").await.unwrap().is_none()
            })
            .await;
        if orphaned {
            fixture.until_counted().await;
            assert_eq!(fixture.pods().await[0].owner_references(), []);
        } else {
            fixture
                .until("the end of the pod", async |f| f.pods().await.is_empty())
                .await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn each_pod_is_counted_once_whenever_the_controller_ends() {
    let mut fixture = Fixture::start().await;
    fixture
        .create(json!({ "completions": 3, "parallelism": 3 }))
        .await;
    let pods = fixture.until_running(3).await;
    fixture
        .until("a status", async |f| f.status().await.active == Some(3))
        .await;
    fixture.world.stop_controllers().await;
    // One pod has ended, one is named as ended, and one was named and has lost its finalizer.
    for pod in &pods {
        fixture.set(pod, "Succeeded", 0).await;
    }
    let mut uids = Vec::new();
    for pod in &pods[1..] {
        uids.push(fixture.pods.get(pod).await.unwrap().uid().unwrap());
    }
    let free = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    fixture
        .pods
        .patch(&pods[2], &PatchParams::default(), &free)
        .await
        .unwrap();
    let named = Patch::Merge(json!({ "status": { "uncountedTerminatedPods": { "succeeded": uids } } }));
    fixture
        .jobs
        .patch_status("work", &PatchParams::default(), &named)
        .await
        .unwrap();
    fixture.world.start_controllers();
    fixture.until_held("Complete", "CompletionsReached").await;
    let status = fixture.status().await;
    assert_eq!((status.succeeded, status.failed), (Some(3), None));
    assert_eq!(status.uncounted_terminated_pods, Some(Default::default()));
    assert_eq!(fixture.pods().await.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn what_is_not_done_fails_the_job_by_its_field() {
    let fixture = Fixture::start().await;
    fixture
        .create(json!({ "completionMode": "Indexed", "completions": 2 }))
        .await;
    fixture.until_held("Failed", "Unsupported").await;
    let message = "spec.completionMode \"Indexed\" is not supported by the local node; use NonIndexed";
    fixture.told("Unsupported", message).await;
    assert_eq!(fixture.pods().await.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_job_of_another_controller_is_left_alone() {
    let fixture = Fixture::start().await;
    fixture.create(json!({ "managedBy": "example.org/queue" })).await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(fixture.pods().await.len(), 0);
    assert_eq!(fixture.status().await, JobStatus::default());
}
