//! What lies behind the embedded API for requests that are not about stored objects: logs of the node's
//! processes, and the addresses of its pods and Services.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use async_trait::async_trait;
use kaos_apiserver::{Backend, LogOptions, LogStream, Refusal};
use kaos_node::{AccessError, Node};
use kaos_seams::Clock;

/// The node as the API server sees it.
pub(crate) struct NodeBackend {
    pub(crate) node: Arc<Node>,
    pub(crate) clock: Arc<dyn Clock>,
}

#[async_trait]
impl Backend for NodeBackend {
    async fn pod_log(&self, namespace: &str, pod: &str, options: LogOptions) -> Result<LogStream, Refusal> {
        let LogOptions {
            container,
            follow,
            tail_lines,
            since_seconds,
            previous,
            timestamps,
            limit_bytes,
        } = options;
        // A time before all times is no limit.
        let since =
            since_seconds.and_then(|seconds| self.clock.now().checked_sub(Duration::from_secs(seconds)).ok());
        let options = kaos_node::LogOptions {
            container,
            follow,
            tail_lines,
            since,
            previous,
            timestamps,
            limit_bytes,
        };
        self.node.logs(namespace, pod, options).await.map_err(refusal)
    }

    async fn service_address(
        &self,
        namespace: &str,
        service: &str,
        port: Option<&str>,
    ) -> Result<SocketAddr, Refusal> {
        self.node
            .service_address(namespace, service, port)
            .await
            .map_err(refusal)
    }

    async fn pod_address(
        &self,
        namespace: &str,
        pod: &str,
        port: Option<&str>,
    ) -> Result<SocketAddr, Refusal> {
        self.node.pod_address(namespace, pod, port).await.map_err(refusal)
    }
}

fn refusal(error: AccessError) -> Refusal {
    match error {
        AccessError::NotFound(message) => Refusal::NotFound(message),
        AccessError::BadRequest(message) => Refusal::BadRequest(message),
        AccessError::Unavailable(message) => Refusal::Unavailable(message),
    }
}
