//! The API itself: from an HTTP request to an answer.
//!
//! [`target`] says what a request is about, [`route`] sends it to its verb, [`admit`] makes an object fit to
//! be stored, and the store decides whose change wins. [`gc`] cleans up behind them.

mod admit;
mod context;
mod create;
mod decode;
mod delete;
#[cfg(test)]
mod fuzz;
mod gc;
pub(crate) mod meta;
mod names;
mod patch;
mod query;
mod read;
pub(crate) mod respond;
mod route;
mod rules;
mod selectors;
mod subresource;
mod target;
mod update;
mod versions;
mod watch;

use std::{
    convert::Infallible,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError, RwLock},
    task::{Context, Poll},
};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use jiff::Timestamp;
use kaos_seams::Seams;
use serde_json::json;

use crate::{
    BoxError,
    backend::Backend,
    crd,
    discovery::Discovery,
    fault::FaultInjector,
    registry::Registry,
    store::{Change, CommitError, Expected, Key, Log, Store, Write},
};

#[cfg(test)]
pub(crate) use self::decode::Wanted;
pub(crate) use self::respond::IncludeObject;

/// The body of an answer: whole, or a stream that goes on.
pub type Body = UnsyncBoxBody<Bytes, BoxError>;

/// How many past changes watches and paged lists can go back. A few hundred objects that change a few times
/// each while they start; more would only cost memory.
const HISTORY: usize = 4096;

/// Namespaces that exist from the start and stay.
const NAMESPACES: [&str; 2] = ["default", "kube-system"];

/// A body that is there at once.
pub(crate) fn full_body(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into())
        .map_err(|never| match never {})
        .boxed_unsync()
}

/// A time as objects carry it: to the second.
pub(crate) fn time_text(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second())
        .unwrap_or(time)
        .to_string()
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
    /// The file is not what this program wrote. [`crate::salvage`] reads what it still has.
    #[error("the data file {} is damaged", path.display())]
    Damaged {
        /// The data file.
        path: PathBuf,
        /// What was found.
        source: BoxError,
    },
    /// The file cannot be read or written.
    #[error("cannot open the data file {}", path.display())]
    Storage {
        /// The data file.
        path: PathBuf,
        /// What the storage engine says.
        source: BoxError,
    },
}

/// The server. Clones are handles to the same one.
#[derive(Clone, Debug)]
pub struct ApiServer {
    shared: Arc<Shared>,
}

/// What all handles and the background work share.
pub(crate) struct Shared {
    pub(crate) registry: Registry,
    discovery: Discovery,
    pub(crate) store: Store,
    pub(crate) seams: Seams,
    pub(crate) faults: Option<Arc<dyn FaultInjector>>,
    backend: RwLock<Option<Arc<dyn Backend>>>,
    /// Held while a changed definition becomes the served one.
    definitions: Mutex<()>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("store", &self.store)
            .finish_non_exhaustive()
    }
}

impl ApiServer {
    /// Opens the store and starts the server's background work on the current runtime. The data file stays
    /// locked until [`ApiServer::shutdown`] or the end of the runtime.
    ///
    /// # Errors
    /// Where the data file cannot be opened.
    pub async fn open(options: Options) -> Result<Self, OpenError> {
        let Options {
            storage,
            seams,
            faults,
        } = options;
        let (log, loaded, path) = match storage {
            Storage::Memory => (Log::Memory, Default::default(), PathBuf::new()),
            Storage::Disk(path) => {
                let file = path.clone();
                let opened = tokio::task::spawn_blocking(move || Log::open(&file)).await;
                // The storage engine panics at some of the damages that a file can have.
                let (log, loaded) = opened.map_err(|error| OpenError::Damaged {
                    path: path.clone(),
                    source: error.into(),
                })??;
                (log, loaded, path)
            }
        };
        let registry = Registry::new(crate::builtin::resource_types());
        let store = Store::start(log, loaded, HISTORY);
        for (_, definition) in store.list(crd::DEFINITIONS, None).objects {
            crd::serve(&registry, &definition.object);
        }
        let shared = Arc::new(Shared {
            registry,
            discovery: Discovery::default(),
            store,
            seams,
            faults,
            backend: RwLock::new(None),
            definitions: Mutex::new(()),
        });
        shared
            .create_namespaces()
            .await
            .map_err(|error| OpenError::Storage {
                path,
                source: error.into(),
            })?;
        tokio::spawn(gc::run(shared.clone()));
        Ok(Self { shared })
    }

    /// Says who runs the pods. Logs and the proxy subresources work from then on.
    pub fn set_backend(&self, backend: Arc<dyn Backend>) {
        *self
            .shared
            .backend
            .write()
            .unwrap_or_else(PoisonError::into_inner) = Some(backend);
    }

    /// Forgets past changes, as a cluster does every few minutes: watches that start behind this moment are
    /// answered with 410 and their clients list again.
    pub fn compact(&self) {
        self.shared.store.compact();
    }

    /// Finishes the writes that are under way, stops the background work, ends the watches and closes the
    /// data file. Later writes are answered with 503.
    pub async fn shutdown(&self) {
        self.shared.store.close().await;
    }
}

impl Shared {
    pub(crate) fn now(&self) -> Timestamp {
        self.seams.clock.now()
    }

    pub(crate) fn backend(&self) -> Option<Arc<dyn Backend>> {
        self.backend
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    async fn create_namespaces(&self) -> Result<(), CommitError> {
        for name in NAMESPACES {
            let object = json!({
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {
                    "name": name,
                    "uid": self.seams.random.uuid(),
                    "creationTimestamp": time_text(self.now()),
                    "labels": { "kubernetes.io/metadata.name": name },
                },
                "spec": { "finalizers": ["kubernetes"] },
                "status": { "phase": "Active" },
            });
            let write = Write {
                resource: "namespaces".into(),
                key: Key::new("", name),
                expected: Expected::Absent,
                change: Change::Put(object),
                needs: None,
            };
            match self.store.commit(write).await {
                // It is there since an earlier start.
                Ok(_) | Err(CommitError::Conflict) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
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
        let server = self.shared.clone();
        Box::pin(async move { Ok(route::answer(server, request).await) })
    }
}
