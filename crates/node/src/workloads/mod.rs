//! Deployments and ReplicaSets.

use kaos_seams::Seams;
use kube::Client;
use tokio_util::sync::CancellationToken;

/// Runs until `stop`.
pub async fn run(_client: Client, _seams: Seams, stop: CancellationToken) {
    stop.cancelled().await;
}
