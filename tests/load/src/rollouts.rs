//! In place of Kubernetes' own controllers: every Deployment is rolled out as soon as it is seen.

use futures::StreamExt;
use k8s_openapi::api::apps::v1::Deployment;
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams},
    runtime::{WatchStreamExt, watcher},
};
use serde_json::json;

/// How many are written at a time.
const CONCURRENCY: usize = 16;

/// Runs until it is dropped.
pub(crate) async fn run(client: Client) {
    let deployments: Api<Deployment> = Api::all(client.clone());
    watcher(deployments, watcher::Config::default())
        .default_backoff()
        .applied_objects()
        .for_each_concurrent(CONCURRENCY, |deployment| {
            let client = client.clone();
            async move {
                // What is refused changed meanwhile, and is seen again.
                if let Ok(deployment) = deployment
                    && let Err(error) = roll_out(&client, &deployment).await
                {
                    eprintln!("{}: {error}", deployment.name_any());
                }
            }
        })
        .await;
}

async fn roll_out(client: &Client, deployment: &Deployment) -> kube::Result<()> {
    let seen = deployment
        .status
        .as_ref()
        .and_then(|status| status.observed_generation);
    if seen == deployment.metadata.generation {
        return Ok(());
    }
    let replicas = deployment.spec.replicas.unwrap_or(1);
    let condition = |type_: &str, reason: &str| {
        let time = "2026-01-01T00:00:00Z";
        json!({
            "type": type_, "status": "True", "reason": reason, "message": "",
            "lastTransitionTime": time, "lastUpdateTime": time,
        })
    };
    let status = json!({"status": {
        "observedGeneration": deployment.metadata.generation,
        "replicas": replicas,
        "updatedReplicas": replicas,
        "readyReplicas": replicas,
        "availableReplicas": replicas,
        "conditions": [
            condition("Available", "MinimumReplicasAvailable"),
            condition("Progressing", "NewReplicaSetAvailable"),
        ],
    }});
    let api: Api<Deployment> = Api::namespaced(client.clone(), &deployment.namespace().unwrap_or_default());
    api.patch_status(
        &deployment.name_any(),
        &PatchParams::default(),
        &Patch::Merge(status),
    )
    .await?;
    Ok(())
}
