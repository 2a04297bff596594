//! The test kit itself, on both servers: what the other suites rely on.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kaos_testkit::{PATIENCE, TestApi, eventually, install_crd, keep_pods_ready, mark_pods_ready};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, ObjectMeta, PostParams};
use serde_json::json;

fn config_map(name: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        },
        ..ConfigMap::default()
    }
}

#[tokio::test]
async fn a_part_under_test_sees_one_namespace_and_its_writes_are_seen() {
    let (one, other) = (TestApi::start().await, TestApi::start().await);
    for api in [&one, &other] {
        api.api::<ConfigMap>()
            .create(&PostParams::default(), &config_map("mine"))
            .await
            .unwrap();
    }
    let (client, calls) = one.client_of_namespace().await;
    let everywhere: Api<ConfigMap> = Api::all(client.clone());
    let found = everywhere
        .list(&ListParams::default().fields("metadata.name=mine"))
        .await
        .unwrap();
    let namespaces: Vec<_> = found
        .iter()
        .map(|map| map.metadata.namespace.as_deref().unwrap())
        .collect();
    assert_eq!(namespaces, [one.namespace.as_str()]);

    assert!(calls.writes().is_empty());
    let maps: Api<ConfigMap> = Api::namespaced(client, &one.namespace);
    maps.create(&PostParams::default(), &config_map("second"))
        .await
        .unwrap();
    assert_eq!(calls.writes().len(), 1, "{:?}", calls.all());
}

#[tokio::test]
async fn a_watch_is_read_event_by_event() {
    let api = TestApi::start().await;
    let maps = api.api::<ConfigMap>();
    let path = format!(
        "/api/v1/namespaces/{}/configmaps?fieldSelector=metadata.name%3Dmine",
        api.namespace
    );
    let (_, list) = api.raw("GET", &path, &[], ()).await;
    let version = list["metadata"]["resourceVersion"].as_str().unwrap();
    let mut watch = api.watch(&format!("{path}&resourceVersion={version}")).await;
    maps.create(&PostParams::default(), &config_map("mine"))
        .await
        .unwrap();
    let event = watch.next().await.unwrap();
    assert_eq!(
        (&event["type"], &event["object"]["metadata"]["name"]),
        (&json!("ADDED"), &json!("mine"))
    );
    maps.delete("mine", &DeleteParams::default()).await.unwrap();
    assert_eq!(watch.next().await.unwrap()["type"], "DELETED");
}

#[tokio::test]
async fn a_kind_is_served_once_it_is_installed() {
    let api = TestApi::start().await;
    let group = api.group();
    let definition = json!({
        "metadata": {"name": format!("gizmos.{group}")},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": "Gizmo", "listKind": "GizmoList", "plural": "gizmos", "singular": "gizmo"},
            "versions": [{
                "name": "v1",
                "served": true,
                "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object"}},
            }],
        },
    });
    install_crd(&api.client, &serde_json::from_value(definition).unwrap()).await;
    let path = format!("/apis/{group}/v1/namespaces/{}/gizmos", api.namespace);
    let gizmo = json!({"apiVersion": format!("{group}/v1"), "kind": "Gizmo", "metadata": {"name": "one"}});
    let (code, stored) = api.raw("POST", &path, &[], gizmo).await;
    assert_eq!(
        (code, &stored["metadata"]["name"]),
        (201, &json!("one")),
        "{stored}"
    );
}

#[tokio::test]
async fn a_deployment_becomes_available_when_its_pods_are_marked_ready() {
    let api = TestApi::start_with_workloads().await;
    let deployment: Deployment = serde_json::from_value(json!({
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "web", "image": "example.com/web:1"}]},
            },
        },
    }))
    .unwrap();
    let deployments = api.api::<Deployment>();
    deployments
        .create(&PostParams::default(), &deployment)
        .await
        .unwrap();
    let available = async || {
        deployments
            .get("web")
            .await
            .unwrap()
            .status
            .unwrap_or_default()
            .available_replicas
    };
    eventually("two pods exist", PATIENCE, async || {
        api.api::<Pod>()
            .list(&ListParams::default())
            .await
            .unwrap()
            .items
            .len()
            == 2
    })
    .await;
    assert_eq!(available().await.unwrap_or(0), 0, "nobody runs pods here");

    let mut marked = 0;
    eventually("both are marked", PATIENCE, async || {
        marked += mark_pods_ready(&api.client, &api.namespace).await;
        marked == 2
    })
    .await;
    eventually("two pods are available", PATIENCE, async || {
        available().await == Some(2)
    })
    .await;
    assert_eq!(
        mark_pods_ready(&api.client, &api.namespace).await,
        0,
        "it is no news any more"
    );

    let names = async || -> Vec<String> {
        let pods = api.api::<Pod>().list(&ListParams::default()).await.unwrap();
        pods.iter().map(ResourceExt::name_any).collect()
    };
    let first = names().await;
    let _kept = keep_pods_ready(&api.client, &api.namespace);
    api.api::<Pod>()
        .delete_collection(&DeleteParams::default(), &ListParams::default())
        .await
        .unwrap();
    eventually("two other pods are available", PATIENCE, async || {
        let others = names()
            .await
            .into_iter()
            .filter(|name| !first.contains(name))
            .count();
        others == 2 && available().await == Some(2)
    })
    .await;
}
