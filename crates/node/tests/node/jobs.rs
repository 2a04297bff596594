//! Jobs with real processes.

use std::fs;

use k8s_openapi::api::{
    batch::v1::{Job, JobStatus},
    core::v1::Pod,
};
use kaos_node::LogOptions;
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, ListParams},
};
use serde_json::{Value, json};

use crate::support::{Fixture, create, log, status, waiting};

/// A Job that runs a shell script.
fn job(name: &str, script: &str, policy: &str) -> Value {
    let container = json!({ "name": "main", "image": "example.org/shell:1", "args": ["-c", script] });
    json!({ "metadata": { "name": name }, "spec": { "template": { "spec": {
        "restartPolicy": policy, "terminationGracePeriodSeconds": 1, "containers": [container] } } } })
}

async fn until(fixture: &Fixture, name: &str, what: &str, holds: impl Fn(&JobStatus) -> bool) -> JobStatus {
    let jobs: Api<Job> = fixture.api();
    fixture
        .eventually(what, || async {
            jobs.get(name).await.ok()?.status.filter(|status| holds(status))
        })
        .await
}

async fn until_held(fixture: &Fixture, name: &str, kind: &str) -> JobStatus {
    let holds = |status: &JobStatus| {
        let mut conditions = status.conditions.iter().flatten();
        conditions.any(|condition| condition.type_ == kind && condition.status == "True")
    };
    until(fixture, name, kind, holds).await
}

/// The only pod of a Job.
async fn pod_of(fixture: &Fixture, name: &str) -> Pod {
    let pods: Api<Pod> = fixture.api();
    let own = ListParams::default().labels(&format!("batch.kubernetes.io/job-name={name}"));
    fixture
        .eventually("the Job's pod", || async {
            pods.list(&own).await.ok()?.items.into_iter().next()
        })
        .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_runs_to_its_end_and_what_it_said_stays() {
    let fixture = Fixture::start().await;
    let jobs: Api<Job> = fixture.api();
    create(&jobs, job("once", "echo done", "Never")).await;
    // Fails at first, and is started again in place.
    let tried = fixture.folder().join("tried");
    let again = format!("[ -e {0} ] || {{ touch {0}; exit 3; }}", tried.display());
    create(&jobs, job("again", &again, "OnFailure")).await;

    let found = until_held(&fixture, "once", "Complete").await;
    assert_eq!((found.succeeded, found.failed), (Some(1), None));
    let pod = pod_of(&fixture, "once").await;
    assert_eq!(pod.status.as_ref().unwrap().phase.as_deref(), Some("Succeeded"));
    assert_eq!(
        log(&fixture, &pod.name_any(), LogOptions::default()).await,
        "done\n"
    );

    let found = until_held(&fixture, "again", "Complete").await;
    assert_eq!((found.succeeded, found.failed), (Some(1), None));
    assert_eq!(status(&pod_of(&fixture, "again").await).unwrap().restart_count, 1);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_takes_too_long_or_is_deleted_ends_its_program() {
    let fixture = Fixture::start().await;
    let jobs: Api<Job> = fixture.api();
    let mut late = job("late", "exec sleep 300", "Never");
    late["spec"]["activeDeadlineSeconds"] = json!(2);
    create(&jobs, late).await;
    create(&jobs, job("unwanted", "exec sleep 300", "OnFailure")).await;
    let found = until_held(&fixture, "late", "Failed").await;
    assert_eq!(found.failed, Some(1));
    until(&fixture, "unwanted", "a ready pod", |status| {
        status.ready == Some(1)
    })
    .await;
    jobs.delete("unwanted", &DeleteParams::background())
        .await
        .unwrap();
    fixture.all_gone(&fixture.api()).await;
    assert_eq!(fixture.recorded_processes(), 0);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_that_the_nodes_end_interrupts_has_not_succeeded() {
    let fixture = Fixture::start().await;
    let jobs: Api<Job> = fixture.api();
    // Each ends well when it is asked to; the second is done when it is started again.
    let go = fixture.folder().join("go");
    let waits = "trap 'exit 0' TERM; echo up; while true; do sleep 0.05; done";
    create(&jobs, job("never", waits, "Never")).await;
    let resumes = format!("[ -e {} ] && exit 0; {waits}", go.display());
    create(&jobs, job("resumes", &resumes, "OnFailure")).await;
    for name in ["never", "resumes"] {
        until(&fixture, name, "a ready pod", |status| status.ready == Some(1)).await;
    }
    let fixture = fixture
        .restart_after(|folder| fs::write(folder.join("go"), "").unwrap())
        .await;
    let found = until(&fixture, "never", "a failed pod", |status| {
        status.failed == Some(1)
    })
    .await;
    assert_eq!((found.succeeded, found.completion_time), (None, None));
    until_held(&fixture, "resumes", "Complete").await;
    let resumed = pod_of(&fixture, "resumes").await;
    assert_eq!(status(&resumed).unwrap().restart_count, 1);
    let pods: Api<Pod> = fixture.api();
    let ended = pods.list(&ListParams::default()).await.unwrap().items;
    let reasons: Vec<_> = ended
        .into_iter()
        .filter_map(|pod| pod.status.unwrap().reason)
        .collect();
    assert_eq!(reasons, ["Terminated"]);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_image_that_stands_for_nothing_here_is_waited_for_as_in_any_pod() {
    let fixture = Fixture::start().await;
    let mut unmapped = job("unmapped", "", "Never");
    unmapped["spec"]["template"]["spec"]["containers"][0]["image"] = json!("example.org/other:1");
    create(&fixture.api::<Job>(), unmapped).await;
    let (reason, message) = fixture
        .eventually("a reason to wait", || async {
            waiting(&pod_of(&fixture, "unmapped").await).filter(|(_, message)| !message.is_empty())
        })
        .await;
    assert_eq!(reason, "ErrImageNeverPull");
    assert!(message.contains("\"example.org/other:1\""), "{message}");
    fixture.stop().await;
}
