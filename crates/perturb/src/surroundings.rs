//! The rest of the cluster, as far as controllers notice it.

use std::time::Duration;

use kaos_seams::Seams;
use serde_json::{Value, json};

use crate::Cluster;

/// How long each stage of a rollout takes.
const STAGE: Duration = Duration::from_secs(1);

/// An image with this in its name never becomes ready.
pub const BROKEN: &str = "broken";

/// Has the pods of every Deployment made and ready, in two stages as a cluster does: first the new generation
/// is seen while the old pods still serve, and a moment later the pods are of the new template. No pod exists.
///
/// A Deployment with a [`BROKEN`] image stays in the first stage.
pub async fn rollouts(cluster: Cluster, seams: Seams) {
    let mut news = cluster.news();
    loop {
        tokio::time::sleep(STAGE).await;
        news.borrow_and_update();
        let now = to_the_second(&seams);
        let mut changed = false;
        for (key, deployment) in cluster.world().of_kind("Deployment") {
            if let Some(status) = next(deployment, &now) {
                cluster.merge_status(key, status).await;
                changed = true;
            }
        }
        if !changed && news.changed().await.is_err() {
            return;
        }
    }
}

/// A time as objects carry it: to the second.
fn to_the_second(seams: &Seams) -> String {
    let now = seams.clock.now();
    jiff::Timestamp::from_second(now.as_second())
        .unwrap_or(now)
        .to_string()
}

/// The next stage of a rollout, or nothing where it is complete.
fn next(deployment: &Value, now: &str) -> Option<Value> {
    let (spec, status) = (&deployment["spec"], &deployment["status"]);
    let generation = &deployment["metadata"]["generation"];
    let wanted = spec["replicas"].as_i64().unwrap_or(1);
    let count = |name: &str| status[name].as_i64().unwrap_or_default();
    let condition = |kind: &str, status: &str, reason: &str| {
        json!({
            "type": kind, "status": status, "reason": reason, "message": "", "lastTransitionTime": now,
            "lastUpdateTime": now,
        })
    };
    if status["observedGeneration"] != *generation {
        let ready = count("readyReplicas").min(wanted);
        let available = if ready >= wanted { "True" } else { "False" };
        return Some(json!({
            "observedGeneration": generation,
            "replicas": wanted,
            "updatedReplicas": 0,
            "readyReplicas": ready,
            "availableReplicas": ready,
            "conditions": [
                condition("Available", available, "MinimumReplicas"),
                condition("Progressing", "True", "ReplicaSetUpdated"),
            ],
        }));
    }
    if is_rolled_out(deployment) {
        return None;
    }
    let images = spec["template"]["spec"]["containers"].as_array();
    let broken = images.into_iter().flatten().any(|container| {
        container["image"]
            .as_str()
            .is_some_and(|image| image.contains(BROKEN))
    });
    (!broken).then(|| {
        json!({
            "observedGeneration": generation,
            "replicas": wanted,
            "updatedReplicas": wanted,
            "readyReplicas": wanted,
            "availableReplicas": wanted,
            "conditions": [
                condition("Available", "True", "MinimumReplicasAvailable"),
                condition("Progressing", "True", "NewReplicaSetAvailable"),
            ],
        })
    })
}

/// Whether a Deployment's pods are all of its present template and ready: the last stage of [`rollouts`].
pub fn is_rolled_out(deployment: &Value) -> bool {
    let status = &deployment["status"];
    let wanted = deployment["spec"]["replicas"].as_i64().unwrap_or(1);
    let complete = [
        "replicas",
        "updatedReplicas",
        "readyReplicas",
        "availableReplicas",
    ];
    status["observedGeneration"] == deployment["metadata"]["generation"]
        && complete
            .iter()
            .all(|name| status[name].as_i64().unwrap_or_default() == wanted)
        && status["conditions"][1]["reason"] == "NewReplicaSetAvailable"
}
