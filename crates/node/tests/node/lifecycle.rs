//! Init containers, sidecars and hooks: in which order a pod's containers start and end.

use std::{fs, path::Path};

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::{Api, api::DeleteParams};
use serde_json::{Value, json};

use crate::support::{Fixture, create, is_ready, script, status};

/// A script that writes its name into `file` when it begins and when it is asked to end.
fn noting(name: &str, file: &Path) -> Value {
    let file = file.display();
    json!({ "name": name, "image": "example.org/shell", "args": ["-c", format!(
        "trap 'echo {name} ends >> {file}; exit 0' TERM; echo {name} begins >> {file}; while true; do sleep 0.05; done"
    )] })
}

fn sidecar(mut container: Value, probe: Value) -> Value {
    container["restartPolicy"] = json!("Always");
    container["startupProbe"] = probe;
    container
}

fn lines(file: &Path) -> Vec<String> {
    let text = fs::read_to_string(file).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn init_statuses(pod: &Pod) -> &[ContainerStatus] {
    let status = pod.status.as_ref();
    status
        .and_then(|status| status.init_container_statuses.as_deref())
        .unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sidecars_start_before_and_end_after_the_others() {
    let fixture = Fixture::start().await;
    let pods: Api<Pod> = fixture.api();
    let file = fixture.folder().join("order");
    // The second sidecar must have begun before its probe succeeds, so nothing overtakes it.
    let began = |name: &str| {
        json!({ "periodSeconds": 1, "failureThreshold": 60,
                "exec": { "command": ["grep", "-q", format!("{name} begins"), file] } })
    };
    let step = json!({ "name": "step", "image": "example.org/shell",
                       "args": ["-c", format!("echo step >> {}", file.display())] });
    create(
        &pods,
        json!({ "metadata": { "name": "ordered" }, "spec": {
            "initContainers": [
                sidecar(noting("first", &file), began("first")),
                step,
                sidecar(noting("second", &file), began("second")),
            ],
            "containers": [noting("main", &file)],
        } }),
    )
    .await;
    let pod = fixture.ready("ordered").await;
    let names: Vec<(&str, bool)> = init_statuses(&pod)
        .iter()
        .map(|status| (status.name.as_str(), status.ready))
        .collect();
    assert_eq!(names, [("first", true), ("step", true), ("second", true)]);
    fixture
        .eventually("the main container's trap", || async {
            (lines(&file).len() == 4).then_some(())
        })
        .await;
    pods.delete("ordered", &DeleteParams::default()).await.unwrap();
    fixture.gone("ordered").await;
    assert_eq!(
        lines(&file),
        [
            "first begins",
            "step",
            "second begins",
            "main begins",
            "main ends",
            "second ends",
            "first ends"
        ]
    );
    assert_eq!(fixture.recorded_processes(), 0);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_is_over_with_its_main_containers_and_a_sidecar_is_started_again_until_then() {
    let fixture = Fixture::start().await;
    let pods: Api<Pod> = fixture.api();
    let (crashed, go) = (fixture.folder().join("crashed"), fixture.folder().join("go"));
    // Fails once, whatever the pod's policy says of others.
    let side = format!(
        "if [ ! -e {0} ]; then touch {0}; exit 7; fi; trap 'exit 0' TERM; while true; do sleep 0.05; done",
        crashed.display()
    );
    let main = format!("until [ -e {} ]; do sleep 0.05; done", go.display());
    create(
        &pods,
        json!({ "metadata": { "name": "once" }, "spec": { "restartPolicy": "Never",
            "initContainers": [{ "name": "side", "image": "example.org/shell", "restartPolicy": "Always",
                                 "args": ["-c", side] }],
            "containers": [{ "name": "main", "image": "example.org/shell", "args": ["-c", main] }] } }),
    )
    .await;
    fixture
        .eventually("the sidecar's second run", || async {
            let pod = pods.get("once").await.ok().filter(is_ready)?;
            (init_statuses(&pod).first()?.restart_count == 1).then_some(())
        })
        .await;
    fs::write(&go, "").unwrap();
    let pod = fixture
        .eventually("the end", || async {
            let pod = pods.get("once").await.ok()?;
            (pod.status.as_ref()?.phase.as_deref() == Some("Succeeded")).then_some(pod)
        })
        .await;
    let ended = init_statuses(&pod)[0]
        .state
        .as_ref()
        .unwrap()
        .terminated
        .is_some();
    assert!(ended, "{pod:?}");
    assert_eq!(fixture.recorded_processes(), 0);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hooks_run_before_a_container_counts_and_before_it_is_asked_to_end() {
    let fixture = Fixture::start().await;
    let pods: Api<Pod> = fixture.api();
    let (file, go) = (fixture.folder().join("order"), fixture.folder().join("go"));
    let say = |what: &str| json!({ "exec": { "command": ["/bin/sh", "-c", format!("echo $NAME {what} >> {}", file.display())] } });
    let mut main = noting("main", &file);
    main["env"] = json!([{ "name": "NAME", "value": "hook" }]);
    let wait = format!("until [ -e {} ]; do sleep 0.05; done", go.display());
    main["lifecycle"] = json!({
        "postStart": { "exec": { "command": ["sh", "-c", wait] } }, "preStop": say("stops") });
    create(
        &pods,
        json!({ "metadata": { "name": "hooked" }, "spec": { "containers": [main] } }),
    )
    .await;
    fixture
        .eventually("the first words", || async {
            (lines(&file).len() == 1).then_some(())
        })
        .await;
    let waits = pods.get("hooked").await.unwrap();
    assert!(!is_ready(&waits), "its hook is not done: {waits:?}");
    fs::write(&go, "").unwrap();
    fixture.ready("hooked").await;
    pods.delete("hooked", &DeleteParams::default()).await.unwrap();
    fixture.gone("hooked").await;
    assert_eq!(lines(&file), ["main begins", "hook stops", "main ends"]);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hook_that_fails_is_told_and_ends_the_container() {
    let fixture = Fixture::start().await;
    let pods: Api<Pod> = fixture.api();
    let hooks = json!({ "lifecycle": { "postStart": { "exec": {
        "command": ["sh", "-c", "echo no such luck; exit 3"] } } } });
    create(&pods, script("unlucky", "exec sleep 300", hooks)).await;
    fixture.told("FailedPostStartHook", "no such luck").await;
    fixture
        .eventually("a restart", || async {
            (status(&pods.get("unlucky").await.ok()?)?.restart_count > 0).then_some(())
        })
        .await;
    let hooks = json!({ "lifecycle": { "preStop": { "httpGet": { "port": 1, "path": "/bye" } } } });
    create(&pods, script("deaf", "exec sleep 300", hooks)).await;
    fixture.ready("deaf").await;
    pods.delete("deaf", &DeleteParams::default()).await.unwrap();
    fixture.told("FailedPreStopHook", "127.0.0.1:1").await;
    fixture.gone("deaf").await;
    fixture.stop().await;
}
