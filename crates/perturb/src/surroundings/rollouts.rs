//! Deployments whose pods come to run.

use kaos_seams::Seams;
use serde_json::{Value, json};

use super::statuses;
use crate::Cluster;

/// An image with this in its name never becomes ready.
pub const BROKEN: &str = "broken";

/// Has the pods of every Deployment made and ready, in two stages as a cluster does: first the new generation
/// is seen while the old pods still serve, and a moment later the pods are of the new template. No pod exists.
///
/// A Deployment with a [`BROKEN`] image stays in the first stage.
pub async fn rollouts(cluster: Cluster, seams: Seams) {
    statuses(cluster, seams, "Deployment", |deployment, _, now| {
        next(deployment, now)
    })
    .await;
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
