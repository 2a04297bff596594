//! What lies behind the embedded API for requests that are not about stored objects: logs of the node's
//! processes, and the addresses of its pods and Services.

use std::{net::SocketAddr, sync::Arc};

use async_trait::async_trait;
use kaos_apiserver::{Backend, LogOptions, LogStream, Refusal};
use kaos_node::Node;

/// The node as the API server sees it.
pub(crate) struct NodeBackend(pub(crate) Arc<Node>);

#[async_trait]
impl Backend for NodeBackend {
    async fn pod_log(
        &self,
        namespace: &str,
        pod: &str,
        options: LogOptions,
    ) -> Result<LogStream, Refusal> {
        self.0.logs(namespace, pod, options).await
    }

    async fn service_address(
        &self,
        namespace: &str,
        service: &str,
        port: Option<&str>,
    ) -> Result<SocketAddr, Refusal> {
        self.0.service_address(namespace, service, port).await
    }

    async fn pod_address(
        &self,
        namespace: &str,
        pod: &str,
        port: Option<&str>,
    ) -> Result<SocketAddr, Refusal> {
        self.0.pod_address(namespace, pod, port).await
    }
}
