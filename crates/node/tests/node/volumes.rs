//! Volumes and env as containers find them, through the API.

use std::fs;

use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Secret};
use kaos_node::LogOptions;
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::support::{Fixture, create, log, script, status};

/// A pod that runs a script once, with this volume at `/v`.
fn once(name: &str, text: &str, volume: Value) -> Value {
    let mut pod = script(
        name,
        text,
        json!({ "volumeMounts": [{ "name": "v", "mountPath": "/v" }] }),
    );
    pod["spec"]["restartPolicy"] = json!("Never");
    pod["spec"]["volumes"] = json!([volume]);
    pod
}

async fn succeeded(fixture: &Fixture, name: &str) -> String {
    let pods: Api<Pod> = fixture.api();
    fixture
        .eventually("the end of a pod's work", || async {
            let phase = pods.get(name).await.ok()?.status?.phase?;
            (phase == "Succeeded").then_some(())
        })
        .await;
    log(fixture, name, LogOptions::default()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_kept_in_a_claim_is_there_for_the_next_pod_until_the_claim_is_deleted() {
    let fixture = Fixture::start().await;
    let pods: Api<Pod> = fixture.api();
    let claims: Api<PersistentVolumeClaim> = fixture.api();
    let claim = || {
        json!({ "metadata": { "name": "data" }, "spec": { "accessModes": ["ReadWriteOnce"],
                "resources": { "requests": { "storage": "1Gi" } } } })
    };
    let volume = || json!({ "name": "v", "persistentVolumeClaim": { "claimName": "data" } });
    // One that comes before its claim waits for it.
    create(&pods, once("first", "echo kept > /v/file", volume())).await;
    fixture
        .told("FailedMount", "persistentvolumeclaim \"data\" not found")
        .await;
    create(&claims, claim()).await;
    succeeded(&fixture, "first").await;
    let bound = claims.get("data").await.unwrap().status.unwrap();
    assert_eq!(bound.phase.as_deref(), Some("Bound"));
    assert_eq!(bound.capacity.unwrap()["storage"].0, "1Gi");
    pods.delete("first", &DeleteParams::default()).await.unwrap();
    fixture.gone("first").await;

    let fixture = fixture.restart().await;
    let (pods, claims): (Api<Pod>, Api<PersistentVolumeClaim>) = (fixture.api(), fixture.api());
    create(&pods, once("second", "cat /v/file", volume())).await;
    assert_eq!(succeeded(&fixture, "second").await, "kept\n");
    pods.delete("second", &DeleteParams::default()).await.unwrap();
    fixture.gone("second").await;
    claims.delete("data", &DeleteParams::default()).await.unwrap();
    let folder = fixture.folder().join("claims");
    fixture
        .eventually("the end of what was kept", || async {
            (fs::read_dir(&folder).ok()?.count() == 0).then_some(())
        })
        .await;
    create(&claims, claim()).await;
    create(&pods, once("third", "ls /v", volume())).await;
    assert_eq!(succeeded(&fixture, "third").await, "", "a new claim starts empty");
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_a_folder_cannot_be_is_told() {
    let fixture = Fixture::start().await;
    let claim = json!({ "metadata": { "name": "raw" }, "spec": { "accessModes": ["ReadWriteOnce"],
        "volumeMode": "Block", "resources": { "requests": { "storage": "1Gi" } } } });
    create::<PersistentVolumeClaim>(&fixture.api(), claim).await;
    fixture
        .told("ProvisioningFailed", "spec.volumeMode Block is not supported")
        .await;
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn projected_files_follow_their_sources_and_sub_paths_do_not() {
    let fixture = Fixture::start().await;
    let pods: Api<Pod> = fixture.api();
    let config_maps: Api<ConfigMap> = fixture.api();
    create(
        &config_maps,
        json!({ "metadata": { "name": "settings" }, "data": { "a": "1", "b": "1" } }),
    )
    .await;
    let container = json!({
        "name": "main", "image": "example.org/shell",
        "args": ["-c", "until grep -q 2 /all/a; do sleep 0.05; done; cat /all/a /all/b /one /all/name; echo; echo $CPU $ALL"],
        "env": [
            { "name": "CPU", "valueFrom": { "resourceFieldRef": { "resource": "limits.cpu", "divisor": "1m" } } },
            { "name": "ALL", "value": "$(P_a)-$(P_b)" },
        ],
        "envFrom": [{ "prefix": "P_", "configMapRef": { "name": "settings" } },
                    { "secretRef": { "name": "none", "optional": true } }],
        "resources": { "limits": { "cpu": "1500m" } },
        "volumeMounts": [{ "name": "all", "mountPath": "/all" },
                         { "name": "all", "mountPath": "/one", "subPath": "a" }],
    });
    create(
        &pods,
        json!({ "metadata": { "name": "reader" }, "spec": { "restartPolicy": "Never", "containers": [container],
            "volumes": [{ "name": "all", "projected": { "sources": [
                { "configMap": { "name": "settings" } },
                { "downwardAPI": { "items": [{ "path": "name", "fieldRef": { "fieldPath": "metadata.name" } }] } },
            ] } }] } }),
    )
    .await;
    fixture.ready("reader").await;
    let change = json!({ "data": { "a": "2", "b": "2" } });
    config_maps
        .patch("settings", &PatchParams::default(), &Patch::Merge(&change))
        .await
        .unwrap();
    // Both files of one change at once, the copy of before, and the env of the start.
    assert_eq!(succeeded(&fixture, "reader").await, "221reader\n1500 1-1\n");
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn secrets_and_fields_of_the_pod_follow_changes_and_a_restart_keeps_what_was_written() {
    let fixture = Fixture::start().await;
    let (pods, secrets): (Api<Pod>, Api<Secret>) = (fixture.api(), fixture.api());
    create(
        &secrets,
        json!({ "metadata": { "name": "key" }, "stringData": { "token": "old", "other": "x" } }),
    )
    .await;
    // The first run fails; the second finds what the first wrote, and ends when both files have changed.
    let text = "if [ ! -e /own/first ]; then cat /key/t; stat -L -c ' %a' /key/t; touch /own/first; exit 9; fi; \
                until grep -q new /key/t && grep -q blue /me/labels; do sleep 0.05; done; ls /key; cat /key/t /me/labels";
    let mount = |name: &str| json!({ "name": name, "mountPath": format!("/{name}") });
    let mut pod = script(
        "reader",
        text,
        json!({ "volumeMounts": [mount("key"), mount("me"), mount("own")] }),
    );
    pod["metadata"]["labels"] = json!({ "colour": "red" });
    pod["spec"]["restartPolicy"] = json!("OnFailure");
    pod["spec"]["volumes"] = json!([
        { "name": "key", "secret": { "secretName": "key", "items": [{ "key": "token", "path": "t", "mode": 0o440 }] } },
        { "name": "me", "downwardAPI": { "items": [
            { "path": "labels", "fieldRef": { "fieldPath": "metadata.labels" } }] } },
        { "name": "own", "emptyDir": { "medium": "Memory" } },
    ]);
    create(&pods, pod).await;
    fixture
        .eventually("the second run", || async {
            let pod = fixture.ready("reader").await;
            (status(&pod)?.restart_count == 1).then_some(())
        })
        .await;
    let previous = LogOptions {
        previous: true,
        ..LogOptions::default()
    };
    assert_eq!(log(&fixture, "reader", previous).await, "old 440\n");
    let change = json!({ "stringData": { "token": "new" } });
    secrets
        .patch("key", &PatchParams::default(), &Patch::Merge(&change))
        .await
        .unwrap();
    let change = json!({ "metadata": { "labels": { "colour": "blue" } } });
    pods.patch("reader", &PatchParams::default(), &Patch::Merge(&change))
        .await
        .unwrap();
    assert_eq!(succeeded(&fixture, "reader").await, "t\nnewcolour=\"blue\"\n");
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_is_refused_by_name() {
    let fixture = Fixture::start().await;
    let volume =
        json!({ "name": "v", "projected": { "sources": [{ "serviceAccountToken": { "path": "token" } }] } });
    create::<Pod>(&fixture.api(), once("token", "", volume)).await;
    fixture
        .told(
            "Failed",
            "spec.volumes[v].projected.serviceAccountToken is not supported",
        )
        .await;
    fixture.stop().await;
}
