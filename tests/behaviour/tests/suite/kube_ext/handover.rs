//! Objects that another program wrote by plain updates become ours.

use http::Method;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kaos_kube_ext::Applier;
use kaos_testkit::{PATIENCE, TestApi, eventually};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use super::interposed::Interposed;
use super::{US, apply, child, data, owner};

const BEFORE_US: &[&str] = &["before-us", "long-before-us"];

fn as_manager(manager: &str) -> PostParams {
    PostParams {
        field_manager: Some(manager.to_owned()),
        ..PostParams::default()
    }
}

/// The child as a predecessor made it.
async fn predecessors_child(api: &TestApi, owner: &OwnerReference) -> ConfigMap {
    let theirs = child(api, owner, &[("kept", "1"), ("old", "1")]);
    api.api().create(&as_manager("before-us"), &theirs).await.unwrap()
}

async fn change(client: Client, namespace: &str, manager: &str, data: Value) {
    let params = PatchParams {
        field_manager: Some(manager.to_owned()),
        ..PatchParams::default()
    };
    let maps: Api<ConfigMap> = Api::namespaced(client, namespace);
    maps.patch("child", &params, &Patch::Merge(json!({"data": data})))
        .await
        .unwrap();
}

fn managers(object: &ConfigMap) -> Vec<&str> {
    let entries = object.metadata.managed_fields.iter().flatten();
    entries.filter_map(|entry| entry.manager.as_deref()).collect()
}

#[tokio::test]
async fn what_a_predecessor_wrote_and_nobody_wants_goes_with_the_first_apply() {
    let api = TestApi::start().await;
    let owner = owner(&api).await;
    let theirs = predecessors_child(&api, &owner).await;
    change(
        api.client.clone(),
        &api.namespace,
        "long-before-us",
        json!({"older": "1"}),
    )
    .await;
    change(
        api.client.clone(),
        &api.namespace,
        "somebody",
        json!({"somebodys": "1"}),
    )
    .await;

    let (client, calls) = api.client_of_namespace().await;
    let applier = Applier::new(client, US).succeeding(BEFORE_US);
    let wanted = child(&api, &owner, &[("kept", "1"), ("new", "1")]);
    let applied = apply(&applier, &wanted).await.unwrap();
    assert_eq!(data(&applied), [("kept", "1"), ("new", "1"), ("somebodys", "1")]);
    assert_eq!(applied.metadata.uid, theirs.metadata.uid);
    let mut owners = managers(&applied);
    owners.sort_unstable();
    assert_eq!(owners, ["somebody", US]);
    assert_eq!(calls.writes().len(), 2, "{:?}", calls.writes());

    calls.clear();
    apply(&applier, &wanted).await.unwrap();
    assert_eq!(calls.writes(), []);
}

#[tokio::test]
async fn what_a_predecessor_writes_after_our_first_apply_stays_its_own() {
    let api = TestApi::start().await;
    let owner = owner(&api).await;
    let applier = Applier::new(api.client.clone(), US).succeeding(BEFORE_US);
    let wanted = child(&api, &owner, &[("a", "1")]);
    apply(&applier, &wanted).await.unwrap();
    change(
        api.client.clone(),
        &api.namespace,
        "before-us",
        json!({"theirs": "1"}),
    )
    .await;
    let applied = apply(&applier, &wanted).await.unwrap();
    assert_eq!(data(&applied), [("a", "1"), ("theirs", "1")]);
}

#[tokio::test]
async fn fields_are_not_taken_over_from_others_than_predecessors() {
    let api = TestApi::start().await;
    let owner = owner(&api).await;
    predecessors_child(&api, &owner).await;
    let applied = apply(
        &Applier::new(api.client.clone(), US),
        &child(&api, &owner, &[("kept", "1")]),
    )
    .await
    .unwrap();
    assert_eq!(data(&applied), [("kept", "1"), ("old", "1")]);
}

#[tokio::test]
async fn a_handover_that_somebody_interrupts_starts_again() {
    let api = TestApi::start().await;
    let owner = owner(&api).await;
    predecessors_child(&api, &owner).await;
    let namespace = api.namespace.clone();
    let interposed = Interposed::before(Method::PATCH, 1, &api.client, move |client| {
        let namespace = namespace.clone();
        async move { change(client, &namespace, "before-us", json!({"late": "1"})).await }
    });
    let applied = apply(
        &Applier::new(interposed.client.clone(), US).succeeding(BEFORE_US),
        &child(&api, &owner, &[("kept", "1")]),
    )
    .await
    .unwrap();
    assert_eq!(interposed.acted(), 1);
    assert_eq!(data(&applied), [("kept", "1")]);
}

/// A Deployment as a typed client writes it: with empty fields, and with defaults as they were read back.
fn predecessors_deployment(owner: &OwnerReference) -> Deployment {
    let mut object: Value = json!({
        "metadata": {"name": "web", "annotations": {"example.com/hash": "x"}, "labels": {"app": "web", "old": "1"}},
        "spec": {
            "replicas": 1,
            "revisionHistoryLimit": 10,
            "progressDeadlineSeconds": 600,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}},
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}, "annotations": {"example.com/hash": "x"}},
                "spec": {
                    "restartPolicy": "Always",
                    "dnsPolicy": "ClusterFirst",
                    "schedulerName": "default-scheduler",
                    "terminationGracePeriodSeconds": 30,
                    "securityContext": {},
                    "initContainers": [{"name": "pull", "image": "example.com/pull:1", "command": ["sh"]}],
                    "containers": [{
                        "name": "web",
                        "image": "example.com/web:1",
                        "imagePullPolicy": "IfNotPresent",
                        "terminationMessagePath": "/dev/termination-log",
                        "terminationMessagePolicy": "File",
                        "resources": {},
                        "env": [{"name": "KEPT", "value": "1"}, {"name": "OLD", "value": "1"}],
                        "ports": [{"name": "http", "containerPort": 8000, "protocol": "TCP"}],
                        "livenessProbe": {
                            "httpGet": {"path": "/health", "port": 8000, "scheme": "HTTP"},
                            "periodSeconds": 10, "timeoutSeconds": 1, "successThreshold": 1, "failureThreshold": 3,
                        },
                        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                    }],
                    "volumes": [{"name": "data", "emptyDir": {}}],
                },
            },
        },
    });
    object["metadata"]["ownerReferences"] = json!([owner]);
    serde_json::from_value(object).unwrap()
}

fn wanted_deployment(api: &TestApi, owner: &OwnerReference, name: &str) -> Deployment {
    serde_json::from_value(json!({
        "metadata": {
            "name": name, "namespace": api.namespace, "labels": {"app": "web"}, "ownerReferences": [owner],
        },
        "spec": {
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{
                    "name": "web",
                    "image": "example.com/web:2",
                    "env": [{"name": "NEW", "value": "1"}, {"name": "KEPT", "value": "2"}],
                    "ports": [{"name": "http", "containerPort": 8000, "protocol": "TCP"}],
                    "readinessProbe": {"tcpSocket": {"port": 8000}},
                }]},
            },
        },
    }))
    .unwrap()
}

#[tokio::test]
async fn a_deployment_that_is_taken_over_is_as_if_it_had_been_made_by_us() {
    let api = TestApi::start().await;
    let owner = owner(&api).await;
    let deployments = api.api::<Deployment>();
    let theirs = predecessors_deployment(&owner);
    let theirs = deployments
        .create(&as_manager("before-us"), &theirs)
        .await
        .unwrap();

    let (client, calls) = api.client_of_namespace().await;
    let applier = Applier::new(client, US).succeeding(BEFORE_US);
    let wanted = wanted_deployment(&api, &owner, "web");
    let taken_over = applied(&applier, &wanted).await;
    assert_eq!(taken_over.metadata.uid, theirs.metadata.uid);
    let fresh = apply(&applier, &wanted_deployment(&api, &owner, "fresh"))
        .await
        .unwrap();
    assert_eq!(taken_over.spec, fresh.spec);
    assert_eq!(taken_over.metadata.labels, fresh.metadata.labels);
    let hash = |object: &Deployment| object.annotations().get("example.com/hash").cloned();
    assert_eq!(hash(&taken_over), None);

    calls.clear();
    apply(&applier, &wanted).await.unwrap();
    assert_eq!(calls.writes(), []);
}

/// Whoever scales owns the replicas, also of what a predecessor made.
#[tokio::test]
async fn replicas_that_somebody_has_set_since_stay() {
    let api = TestApi::start().await;
    let owner = owner(&api).await;
    let deployments = api.api::<Deployment>();
    let theirs = predecessors_deployment(&owner);
    deployments
        .create(&as_manager("before-us"), &theirs)
        .await
        .unwrap();
    let scale = Patch::Merge(json!({"spec": {"replicas": 3}}));
    deployments
        .patch_scale("web", &PatchParams::default(), &scale)
        .await
        .unwrap();
    let applier = Applier::new(api.client.clone(), US).succeeding(BEFORE_US);
    let taken_over = applied(&applier, &wanted_deployment(&api, &owner, "web")).await;
    assert_eq!(taken_over.spec.replicas, Some(3));
}

/// A real cluster's controllers write a new Deployment several times in its first moments, which a handover may
/// meet more often than it looks again.
async fn applied(applier: &Applier, wanted: &Deployment) -> Deployment {
    eventually("it is applied", PATIENCE, async || apply(applier, wanted).await).await
}
