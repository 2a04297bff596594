//! Deployments: the test marks their pods ready.

use std::time::Duration;

use k8s_openapi::api::{
    apps::v1::{Deployment, DeploymentStatus, ReplicaSet},
    core::v1::Pod,
};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::support::{World, until};

struct Fixture {
    deployments: Api<Deployment>,
    sets: Api<ReplicaSet>,
    pods: Api<Pod>,
    _world: World,
}

impl Fixture {
    async fn start() -> Self {
        let world = World::start().await;
        Self {
            deployments: world.api(),
            sets: world.api(),
            pods: world.api(),
            _world: world,
        }
    }

    async fn create(&self, replicas: i32, strategy: Value) {
        let deployment = json!({ "metadata": { "name": "web" }, "spec": {
            "replicas": replicas, "strategy": strategy, "progressDeadlineSeconds": 60, "revisionHistoryLimit": 1,
            "selector": { "matchLabels": { "app": "web" } },
            "template": { "metadata": { "labels": { "app": "web" } },
                          "spec": { "containers": [{ "name": "c", "image": "v1" }] } } } });
        let deployment = serde_json::from_value(deployment).unwrap();
        self.deployments
            .create(&PostParams::default(), &deployment)
            .await
            .unwrap();
    }

    async fn change(&self, patch: Value) {
        let patch = Patch::Strategic(patch);
        self.deployments
            .patch("web", &PatchParams::default(), &patch)
            .await
            .unwrap();
    }

    async fn set_image(&self, image: &str) {
        let containers = json!([{ "name": "c", "image": image }]);
        self.change(json!({ "spec": { "template": { "spec": { "containers": containers } } } }))
            .await;
    }

    async fn pods(&self) -> Vec<Pod> {
        self.pods.list(&ListParams::default()).await.unwrap().items
    }

    /// The images of the pods that are there, in order.
    async fn images(&self) -> Vec<String> {
        let image = |pod: &Pod| pod.spec.as_ref()?.containers.first()?.image.clone();
        let mut images: Vec<String> = self.pods().await.iter().filter_map(image).collect();
        images.sort();
        images
    }

    /// Marks every pod of `image` ready, as a kubelet would.
    async fn make_ready(&self, image: &str) {
        for mut pod in self.pods().await {
            let matches = pod
                .spec
                .as_ref()
                .is_some_and(|spec| spec.containers[0].image.as_deref() == Some(image));
            let condition =
                json!([{ "type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z" }]);
            let status =
                serde_json::from_value(json!({ "phase": "Running", "conditions": condition })).unwrap();
            if matches
                && pod
                    .status
                    .as_ref()
                    .is_none_or(|status| status.phase.as_deref() != Some("Running"))
            {
                pod.status = Some(status);
                self.pods
                    .replace_status(&pod.name_any(), &PostParams::default(), &pod)
                    .await
                    .unwrap();
            }
        }
    }

    async fn status(&self) -> DeploymentStatus {
        self.deployments
            .get("web")
            .await
            .unwrap()
            .status
            .unwrap_or_default()
    }

    async fn reason(&self, kind: &str) -> Option<String> {
        let conditions = self.status().await.conditions?;
        conditions
            .into_iter()
            .find(|condition| condition.type_.as_deref() == Some(kind))?
            .reason
    }

    async fn until(&self, what: &str, holds: impl AsyncFn(&Self) -> bool) {
        let state = async || {
            format!(
                "pods {:?}, status {:#?}",
                self.images().await,
                self.status().await
            )
        };
        until(what, async || holds(self).await, state).await;
    }

    /// Makes every pod of `image` ready as it comes, until all `count` pods are of it.
    async fn finish(&self, image: &str, count: usize) {
        self.until("a finished rollout", async |fixture| {
            fixture.make_ready(image).await;
            fixture.reason("Progressing").await.as_deref() == Some("NewReplicaSetAvailable")
                && fixture.images().await == vec![image.to_owned(); count]
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_version_replaces_the_old_one_and_a_broken_one_is_held_back() {
    let fixture = Fixture::start().await;
    fixture
        .create(
            3,
            json!({ "rollingUpdate": { "maxSurge": 1, "maxUnavailable": 0 } }),
        )
        .await;
    fixture
        .until("three pods", async |f| f.images().await.len() == 3)
        .await;
    assert_eq!(
        fixture.reason("Available").await.as_deref(),
        Some("MinimumReplicasUnavailable")
    );
    fixture.finish("v1", 3).await;
    assert_eq!(
        fixture.reason("Available").await.as_deref(),
        Some("MinimumReplicasAvailable")
    );

    fixture.set_image("v2").await;
    fixture.finish("v2", 3).await;
    let annotations = fixture
        .deployments
        .get("web")
        .await
        .unwrap()
        .annotations()
        .clone();
    assert_eq!(annotations["deployment.kubernetes.io/revision"], "2");

    fixture.set_image("broken").await;
    let held = ["broken", "v2", "v2", "v2"];
    fixture
        .until("the first broken pod", async |f| f.images().await == held)
        .await;
    sleep(Duration::from_secs(50)).await;
    assert_eq!(fixture.images().await, held);
    assert_eq!(fixture.status().await.available_replicas, Some(3));
    let late =
        async |f: &Fixture| f.reason("Progressing").await.as_deref() == Some("ProgressDeadlineExceeded");
    fixture.until("the deadline", late).await;
    assert_eq!(fixture.images().await, held);

    // Back to a version that works: its ReplicaSet is used again, and only one old one is kept.
    fixture.set_image("v2").await;
    fixture.finish("v2", 3).await;
    fixture
        .until("the history's limit", async |f| {
            f.sets.list(&ListParams::default()).await.unwrap().items.len() == 2
        })
        .await;
    assert_eq!(fixture.status().await.updated_replicas, Some(3));
}

#[tokio::test(start_paused = true)]
async fn scaling_replacing_and_pausing_follow_the_deployment() {
    let fixture = Fixture::start().await;
    fixture.create(2, json!({})).await;
    fixture
        .until("two pods", async |f| f.images().await.len() == 2)
        .await;
    fixture.finish("v1", 2).await;
    fixture.change(json!({ "spec": { "replicas": 4 } })).await;
    fixture.finish("v1", 4).await;
    fixture.change(json!({ "spec": { "replicas": 1 } })).await;
    fixture.finish("v1", 1).await;

    // A pod that goes away is replaced by another one.
    let gone = fixture.pods().await[0].name_any();
    fixture
        .pods
        .delete(&gone, &DeleteParams::default())
        .await
        .unwrap();
    fixture
        .until("another pod", async |f| {
            let pods = f.pods().await;
            pods.len() == 1 && pods[0].name_any() != gone
        })
        .await;

    fixture.change(json!({ "spec": { "paused": true } })).await;
    fixture.set_image("v2").await;
    fixture
        .until("the pause", async |f| {
            f.reason("Progressing").await.as_deref() == Some("DeploymentPaused")
        })
        .await;
    assert_eq!(fixture.images().await, ["v1"]);
    fixture.change(json!({ "spec": { "paused": false } })).await;
    fixture.finish("v2", 1).await;
}

#[tokio::test(start_paused = true)]
async fn recreating_ends_every_old_pod_before_the_first_new_one() {
    let fixture = Fixture::start().await;
    fixture.create(2, json!({ "type": "Recreate" })).await;
    fixture.finish("v1", 2).await;
    // A finalizer keeps one old pod from going.
    let held = fixture.pods().await[0].name_any();
    let hold = |finalizers: Value| Patch::Merge(json!({ "metadata": { "finalizers": finalizers } }));
    fixture
        .pods
        .patch(&held, &PatchParams::default(), &hold(json!(["test/hold"])))
        .await
        .unwrap();
    fixture.set_image("v2").await;
    fixture
        .until("one pod left", async |f| f.images().await.len() == 1)
        .await;
    sleep(Duration::from_secs(10)).await;
    assert_eq!(fixture.images().await, ["v1"]);
    fixture
        .pods
        .patch(&held, &PatchParams::default(), &hold(json!(null)))
        .await
        .unwrap();
    fixture.finish("v2", 2).await;
}
