//! What others see of a pod that must end.

use k8s_openapi::api::{
    core::v1::{Pod, Service},
    discovery::v1::EndpointSlice,
};
use kaos_node::LogOptions;
use kube::{
    Api,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use serde_json::json;

use crate::support::{Fixture, create, get, is_ready, log, script, status};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_that_must_end_gets_no_new_connections_and_its_slice_says_so() {
    let fixture = Fixture::start().await;
    let pods: Api<Pod> = fixture.api();
    let slices: Api<EndpointSlice> = fixture.api();
    // It goes on answering until its hook is done, which is until the test says so.
    let go = fixture.folder().join("go");
    let wait = format!("until [ -e {} ]; do sleep 0.05; done", go.display());
    create(
        &pods,
        json!({ "metadata": { "name": "web", "labels": { "app": "web" } }, "spec": {
            "terminationGracePeriodSeconds": 300,
            "containers": [{ "name": "main", "image": "example.org/serve", "ports": [{ "containerPort": 8000 }],
                "lifecycle": { "preStop": { "exec": { "command": ["sh", "-c", wait] } } },
                "readinessProbe": { "httpGet": { "path": "/health", "port": 8000 }, "periodSeconds": 1 } }] } }),
    )
    .await;
    create::<Service>(
        &fixture.api(),
        json!({ "metadata": { "name": "web" },
                "spec": { "selector": { "app": "web" }, "ports": [{ "port": 80, "targetPort": 8000 }] } }),
    )
    .await;
    let through = fixture
        .node
        .services()
        .address(&fixture.namespace, "web", 80)
        .unwrap();
    fixture.eventually("an answer", || get(through, "/health")).await;
    let direct = fixture
        .node
        .pod_address(&fixture.namespace, "web", None)
        .await
        .unwrap();

    pods.delete("web", &DeleteParams::default()).await.unwrap();
    fixture
        .eventually("the slice of a pod that ends", || async {
            let slices = slices.list(&ListParams::default()).await.ok()?.items;
            let endpoint = slices
                .into_iter()
                .flat_map(|slice| slice.endpoints.unwrap_or_default())
                .next()?;
            let conditions = endpoint.conditions?;
            let found = (conditions.ready, conditions.serving, conditions.terminating);
            (found == (Some(false), Some(false), Some(true))).then_some(())
        })
        .await;
    assert_eq!(get(through, "/health").await, None, "no new connections");
    assert!(
        get(direct, "/health").await.is_some(),
        "its hook runs, so it still serves"
    );
    std::fs::write(&go, "").unwrap();
    fixture.gone("web").await;
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_that_will_not_end_is_killed_when_its_grace_is_over() {
    let fixture = Fixture::start().await;
    let pods: Api<Pod> = fixture.api();
    let mut deaf = script(
        "deaf",
        "trap '' TERM; echo up; while true; do sleep 0.1; done",
        json!({}),
    );
    // Somebody else holds the object, so that what became of it can be read.
    deaf["metadata"]["finalizers"] = json!(["example.org/hold"]);
    create(&pods, deaf).await;
    fixture.ready("deaf").await;
    let up = LogOptions {
        limit_bytes: Some(3),
        follow: true,
        ..LogOptions::default()
    };
    assert_eq!(log(&fixture, "deaf", up).await, "up\n");
    pods.delete("deaf", &DeleteParams::default()).await.unwrap();
    let pod = fixture
        .eventually("the end of the container", || async {
            let pod = pods.get("deaf").await.ok()?;
            (pod.status.as_ref()?.phase.as_deref() == Some("Failed")).then_some(pod)
        })
        .await;
    let state = status(&pod).unwrap().state.clone().unwrap();
    let ended = state.terminated.unwrap();
    assert_eq!(
        (ended.exit_code, ended.signal, ended.reason.as_deref()),
        (137, Some(9), Some("Error"))
    );
    assert!(!is_ready(&pod));
    assert_eq!(fixture.recorded_processes(), 0);
    fixture.told("Killing", "Stopping container main").await;
    let free = json!({ "metadata": { "finalizers": null } });
    pods.patch("deaf", &PatchParams::default(), &Patch::Merge(&free))
        .await
        .unwrap();
    fixture.gone("deaf").await;
    fixture.stop().await;
}
