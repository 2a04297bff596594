//! What the Job controller makes of pods that end: the same on both servers. The pods are ended by the test.

use k8s_openapi::api::{
    batch::v1::{Job, JobStatus},
    core::v1::Pod,
};
use kaos_testkit::{PATIENCE, TestApi, eventually};
use kube::{
    Api, ResourceExt as _,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

struct Jobs {
    jobs: Api<Job>,
    pods: Api<Pod>,
    _api: TestApi,
}

impl Jobs {
    async fn start() -> Self {
        let api = TestApi::start_with_workloads().await;
        Self {
            jobs: api.api(),
            pods: api.api(),
            _api: api,
        }
    }

    async fn create(&self, fields: Value) {
        let mut spec = json!({ "template": { "spec": {
            "restartPolicy": "Never", "containers": [{ "name": "c", "image": "i:1" }] } } });
        for (field, value) in fields.as_object().unwrap() {
            spec[field] = value.clone();
        }
        let job = json!({ "metadata": { "name": "work" }, "spec": spec });
        let job: Job = serde_json::from_value(job).unwrap();
        self.jobs.create(&PostParams::default(), &job).await.unwrap();
    }

    /// Ends so many pods, as they come.
    async fn end(&self, phase: &str, count: usize) {
        for _ in 0..count {
            let goes_on = |pod: &Pod| {
                let phase = pod.status.as_ref().and_then(|status| status.phase.clone());
                phase.as_deref() == Some("Pending")
            };
            let find = async || {
                let pods = self.pods.list(&ListParams::default()).await.unwrap().items;
                pods.into_iter().find(goes_on)
            };
            let pod = eventually("a pod", PATIENCE, find).await;
            let status = Patch::Merge(json!({ "status": { "phase": phase } }));
            self.pods
                .patch_status(&pod.name_any(), &PatchParams::default(), &status)
                .await
                .unwrap();
        }
    }

    /// The status once a condition holds, and the conditions in it.
    async fn held(&self, kind: &str) -> (JobStatus, Vec<String>) {
        let find = async || {
            let status = self.jobs.get("work").await.unwrap().status?;
            let conditions: Vec<String> = status
                .conditions
                .iter()
                .flatten()
                .map(|condition| {
                    let text = |text: &Option<String>| text.clone().unwrap_or_default();
                    let (reason, message) = (text(&condition.reason), text(&condition.message));
                    format!("{}={} {reason}: {message}", condition.type_, condition.status)
                })
                .collect();
            let held = format!("{kind}=True ");
            let holds = conditions.iter().any(|condition| condition.starts_with(&held));
            holds.then_some((status, conditions))
        };
        eventually(kind, PATIENCE, find).await
    }
}

/// The numbers of a status: active, ready, terminating, succeeded, failed.
fn counts(status: &JobStatus) -> [Option<i32>; 5] {
    [
        status.active,
        status.ready,
        status.terminating,
        status.succeeded,
        status.failed,
    ]
}

#[tokio::test]
async fn a_job_whose_pods_succeed_is_complete() {
    let jobs = Jobs::start().await;
    jobs.create(json!({ "completions": 2, "parallelism": 2 })).await;
    jobs.end("Succeeded", 2).await;
    let (status, conditions) = jobs.held("Complete").await;
    assert_eq!(
        conditions,
        [
            "SuccessCriteriaMet=True CompletionsReached: Reached expected number of succeeded pods",
            "Complete=True CompletionsReached: Reached expected number of succeeded pods",
        ]
    );
    assert_eq!(counts(&status), [None, Some(0), Some(0), Some(2), None]);
    assert_eq!(status.uncounted_terminated_pods, Some(Default::default()));
    assert!(status.start_time.is_some() && status.completion_time.is_some());
    let pods = jobs.pods.list(&ListParams::default()).await.unwrap().items;
    assert!(pods.iter().all(|pod| pod.finalizers().is_empty()), "{pods:?}");
}

#[tokio::test]
async fn a_job_whose_pods_fail_too_often_has_failed() {
    let jobs = Jobs::start().await;
    jobs.create(json!({ "completions": 3, "parallelism": 2, "backoffLimit": 0 }))
        .await;
    jobs.end("Failed", 1).await;
    let (status, conditions) = jobs.held("Failed").await;
    assert_eq!(
        conditions,
        [
            "FailureTarget=True BackoffLimitExceeded: Job has reached the specified backoff limit",
            "Failed=True BackoffLimitExceeded: Job has reached the specified backoff limit",
        ]
    );
    // What had not ended when the Job failed has failed with it.
    assert_eq!(counts(&status), [None, Some(0), Some(0), None, Some(2)]);
    assert_eq!(status.completion_time, None);
}

#[tokio::test]
async fn a_job_is_suspended_and_resumed() {
    let jobs = Jobs::start().await;
    jobs.create(json!({ "suspend": true })).await;
    let (status, conditions) = jobs.held("Suspended").await;
    assert_eq!(conditions, ["Suspended=True JobSuspended: Job suspended"]);
    assert_eq!(status.start_time, None);
    let resume = Patch::Merge(json!({ "spec": { "suspend": false } }));
    jobs.jobs
        .patch("work", &PatchParams::default(), &resume)
        .await
        .unwrap();
    jobs.end("Succeeded", 1).await;
    let (_, conditions) = jobs.held("Complete").await;
    assert_eq!(conditions[0], "Suspended=False JobResumed: Job resumed");
}
