//! The API itself: from an HTTP request to an answer.

use std::{
    convert::Infallible,
    path::PathBuf,
    sync::{Arc, PoisonError, RwLock},
    task::{Context, Poll},
};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use kaos_seams::Seams;

use crate::{BoxError, backend::Backend, error::ApiError, fault::FaultInjector, registry::Registry};

/// The body of an answer: whole, or a stream that goes on.
pub type Body = UnsyncBoxBody<Bytes, BoxError>;

/// A body that is there at once.
pub(crate) fn full_body(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into())
        .map_err(|never| match never {})
        .boxed_unsync()
}

/// How a server is opened.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where objects are kept.
    pub storage: Storage,
    /// Time and randomness.
    pub seams: Seams,
    /// What goes wrong on purpose; tests only.
    pub faults: Option<Arc<dyn FaultInjector>>,
}

/// Where objects are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Storage {
    /// In memory, gone with the server.
    Memory,
    /// In this file, which is created where it is missing.
    Disk(PathBuf),
}

/// Why a server did not open.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has the file open.
    #[error("the data file {} is in use by another process: stop it first", path.display())]
    InUse {
        /// The data file.
        path: PathBuf,
    },
    /// The file was written by a newer version of this program.
    #[error("the data file {} has format {found}, this program reads up to {supported}: use the newer program", path.display())]
    NewerFormat {
        /// The data file.
        path: PathBuf,
        /// The format in the file.
        found: u64,
        /// The newest format this program knows.
        supported: u64,
    },
    /// The file cannot be read as a data file.
    #[error("cannot open the data file {}", path.display())]
    Storage {
        /// The data file.
        path: PathBuf,
        /// What the storage engine says.
        source: BoxError,
    },
}

/// The server. Clones are handles to the same one.
#[derive(Clone)]
pub struct ApiServer {
    inner: Arc<Inner>,
}

struct Inner {
    registry: Registry,
    seams: Seams,
    faults: Option<Arc<dyn FaultInjector>>,
    backend: RwLock<Option<Arc<dyn Backend>>>,
}

impl ApiServer {
    /// Opens the store and starts the server's background work on the current runtime.
    ///
    /// # Errors
    /// Where the data file cannot be opened.
    pub async fn open(options: Options) -> Result<Self, OpenError> {
        let registry = Registry::new(crate::builtin::resource_types());
        Ok(Self {
            inner: Arc::new(Inner {
                registry,
                seams: options.seams,
                faults: options.faults,
                backend: RwLock::new(None),
            }),
        })
    }

    /// Says who runs the pods. Logs and the proxy subresources work from then on.
    pub fn set_backend(&self, backend: Arc<dyn Backend>) {
        *self.inner.backend.write().unwrap_or_else(PoisonError::into_inner) = Some(backend);
    }

    /// Stops the background work, writes what is acknowledged and closes the data file. Later calls are
    /// answered with 503.
    pub async fn shutdown(&self) {}

    pub(crate) fn registry(&self) -> &Registry {
        &self.inner.registry
    }

    pub(crate) fn backend(&self) -> Option<Arc<dyn Backend>> {
        self.inner
            .backend
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    async fn answer(self, request: Request<()>) -> Response<Body> {
        crate::discovery::respond(self.registry(), &request.into_parts().0)
            .unwrap_or_else(|| ApiError::no_such_resource().into_response())
    }
}

impl<B> tower::Service<Request<B>> for ApiServer
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let server = self.clone();
        Box::pin(async move { Ok(server.answer(request.map(drop)).await) })
    }
}
