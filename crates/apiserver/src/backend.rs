//! What the API server asks of whoever runs the pods: their logs and addresses.
//!
//! The server itself runs nothing. On a cluster it would dial a kubelet; here the local node implements
//! [`Backend`]. Until one is set, the subresources that need it answer 503.

use std::{net::SocketAddr, pin::Pin};

use async_trait::async_trait;
use bytes::Bytes;
use futures::Stream;
use http::StatusCode;

/// Log output as it is written, in chunks that need not end at line breaks.
pub type LogStream = Pin<Box<dyn Stream<Item = std::io::Result<Bytes>> + Send>>;

/// Runs the pods whose objects the server stores.
#[async_trait]
pub trait Backend: Send + Sync {
    /// The log of one container of a pod.
    ///
    /// # Errors
    /// Where the pod or the container is unknown, or has not started.
    async fn pod_log(&self, namespace: &str, pod: &str, options: LogOptions) -> Result<LogStream, Refusal>;

    /// Where a ready pod behind the Service listens. `port` is a Service port's name or number; `None` means
    /// the only one.
    ///
    /// # Errors
    /// Where the Service or the port is unknown, or no pod is ready.
    async fn service_address(
        &self,
        namespace: &str,
        service: &str,
        port: Option<&str>,
    ) -> Result<SocketAddr, Refusal>;

    /// Where the pod listens. `port` is a container port's name or number; `None` means the first.
    ///
    /// # Errors
    /// Where the pod or the port is unknown, or the pod does not run.
    async fn pod_address(
        &self,
        namespace: &str,
        pod: &str,
        port: Option<&str>,
    ) -> Result<SocketAddr, Refusal>;
}

/// The query of `pods/NAME/log`, with Kubernetes' names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogOptions {
    /// The container; `None` means the only one.
    pub container: Option<String>,
    /// Whether the stream goes on with what is written later.
    pub follow: bool,
    /// Only this many of the last lines.
    pub tail_lines: Option<u64>,
    /// Only what was written in this many last seconds.
    pub since_seconds: Option<u64>,
    /// The log of the container's previous run.
    pub previous: bool,
    /// Each line starts with its time (RFC 3339).
    pub timestamps: bool,
    /// The stream ends after this many bytes.
    pub limit_bytes: Option<u64>,
}

/// Why the backend did not do what was asked; becomes a Kubernetes `Status`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The pod, container, Service or port does not exist (404).
    #[error("{0}")]
    NotFound(String),
    /// The request makes no sense for this object, such as no container named where there are two (400).
    #[error("{0}")]
    BadRequest(String),
    /// It exists, but nothing can be reached now (503).
    #[error("{0}")]
    Unavailable(String),
}

impl Refusal {
    /// The HTTP status of the answer.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::NotFound(_) => StatusCode::NOT_FOUND,
            Self::BadRequest(_) => StatusCode::BAD_REQUEST,
            Self::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}
