//! A stand-in for the kubelet: neither the embedded server nor the test cluster runs pods.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

/// Says of every pod of a namespace that it runs and is ready. Returns of how many that was news.
///
/// # Panics
/// When the API refuses it.
pub async fn mark_pods_ready(client: &Client, namespace: &str) -> usize {
    try_mark_pods_ready(client, namespace)
        .await
        .expect("pods can be marked ready")
}

async fn try_mark_pods_ready(client: &Client, namespace: &str) -> Result<usize, kube::Error> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let mut marked = 0;
    for pod in pods.list(&ListParams::default()).await? {
        let name = pod.metadata.name.clone().unwrap_or_default();
        if is_ready(&pod) || pod.metadata.deletion_timestamp.is_some() {
            continue;
        }
        let patch = Patch::Merge(json!({ "status": ready_status(&pod) }));
        match pods.patch_status(&name, &PatchParams::default(), &patch).await {
            Ok(_) => marked += 1,
            // It was deleted meanwhile.
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => return Err(error),
        }
    }
    Ok(marked)
}

/// Keeps the pods of a namespace ready until it is dropped.
#[derive(Debug)]
pub struct KeptReady(#[allow(dead_code, reason = "dropping it ends the task")] AbortOnDropHandle<()>);

/// Marks every pod of a namespace ready soon after it appears, as a node would.
pub fn keep_pods_ready(client: &Client, namespace: &str) -> KeptReady {
    let (client, namespace) = (client.clone(), namespace.to_owned());
    KeptReady(AbortOnDropHandle::new(tokio::spawn(async move {
        loop {
            // A refusal passes, for example a conflict with a deletion; a lasting one fails the test's own wait.
            let _ = try_mark_pods_ready(&client, &namespace).await;
            sleep(Duration::from_millis(50)).await;
        }
    })))
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_deref())
        .unwrap_or_default();
    conditions
        .iter()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn ready_status(pod: &Pod) -> Value {
    const TIME: &str = "2026-01-01T00:00:00Z";
    let condition = |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": TIME});
    let containers = pod
        .spec
        .iter()
        .flat_map(|spec| &spec.containers)
        .map(|container| {
            json!({
                "name": container.name,
                "image": container.image.clone().unwrap_or_default(),
                "imageID": "",
                "ready": true,
                "started": true,
                "restartCount": 0,
                "state": {"running": {"startedAt": TIME}},
            })
        });
    let conditions = ["PodScheduled", "Initialized", "ContainersReady", "Ready"].map(condition);
    json!({
        "phase": "Running",
        "podIP": "10.0.0.1",
        "podIPs": [{"ip": "10.0.0.1"}],
        "startTime": TIME,
        "conditions": conditions,
        "containerStatuses": containers.collect::<Vec<_>>(),
    })
}
