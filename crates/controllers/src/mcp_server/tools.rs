//! Listing the tools of running servers, beside the passes: a server that answers slowly holds nothing up.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::{Stream, channel::mpsc};
use k8s_openapi::api::apps::v1::Deployment;
use kaos_api::v1alpha1::MCPServer;
use kaos_kube_ext::Backoff;
use kaos_mcp::client::{ClientError, McpClient};
use kaos_seams::Seams;
use kube::runtime::reflector::ObjectRef;
use tokio::{sync::Semaphore, time::sleep};
use tokio_util::task::AbortOnDropHandle;
use tracing::debug;

/// How long a server may take to list its tools.
const DEADLINE: Duration = Duration::from_secs(10);
/// How many servers are asked at a time.
const AT_A_TIME: usize = 16;

/// One rollout of a Deployment: what may have changed the tools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rollout {
    uid: Option<String>,
    generation: Option<i64>,
}

impl Rollout {
    /// The present rollout of `deployment`.
    pub(crate) fn of(deployment: &Deployment) -> Self {
        Self {
            uid: deployment.metadata.uid.clone(),
            generation: deployment.metadata.generation,
        }
    }
}

/// What came of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Listing {
    /// The names of the tools, sorted.
    Listed(Vec<String>),
    /// The last try failed, and why; it is tried again.
    Failed(String),
}

type Key = ObjectRef<MCPServer>;

/// The listings of all MCPServers.
#[derive(Debug)]
pub(crate) struct Tools {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    entries: Mutex<HashMap<Key, Entry>>,
    changed: mpsc::UnboundedSender<Key>,
    seams: Seams,
    backoff: Backoff<Key>,
    permits: Semaphore,
}

#[derive(Debug)]
struct Entry {
    rollout: Rollout,
    listing: Option<Listing>,
    /// Ends with the entry.
    _task: AbortOnDropHandle<()>,
}

impl Tools {
    /// No listing yet, and the stream of the MCPServers whose listing is news.
    pub(crate) fn new(seams: Seams) -> (Self, impl Stream<Item = Key> + Send + 'static) {
        let (changed, news) = mpsc::unbounded();
        let inner = Inner {
            entries: Mutex::default(),
            changed,
            backoff: Backoff::new(seams.random.clone()),
            seams,
            permits: Semaphore::new(AT_A_TIME),
        };
        (
            Self {
                inner: Arc::new(inner),
            },
            news,
        )
    }

    /// Has the tools listed, unless they were already, or are being, for this rollout.
    pub(crate) fn list_once(&self, key: Key, rollout: Rollout, endpoint: String) {
        let mut entries = self.inner.entries();
        if entries.get(&key).is_some_and(|entry| entry.rollout == rollout) {
            return;
        }
        self.inner.backoff.reset(&key);
        let task = tokio::spawn(list_until_done(
            self.inner.clone(),
            key.clone(),
            rollout.clone(),
            endpoint,
        ));
        entries.insert(
            key,
            Entry {
                rollout,
                listing: None,
                _task: AbortOnDropHandle::new(task),
            },
        );
    }

    /// What came of the last listing, if one has ended since this program started.
    pub(crate) fn listing(&self, key: &Key) -> Option<Listing> {
        self.inner
            .entries()
            .get(key)
            .and_then(|entry| entry.listing.clone())
    }

    /// Forgets a server that is gone.
    pub(crate) fn forget(&self, key: &Key) {
        self.inner.entries().remove(key);
        self.inner.backoff.reset(key);
    }
}

impl Inner {
    fn entries(&self) -> MutexGuard<'_, HashMap<Key, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps what came of a listing of `rollout`, and tells where it is news.
    fn keep(&self, key: &Key, rollout: &Rollout, listing: Listing) {
        let mut entries = self.entries();
        let Some(entry) = entries.get_mut(key).filter(|entry| entry.rollout == *rollout) else {
            return;
        };
        if entry.listing.as_ref() != Some(&listing) {
            entry.listing = Some(listing);
            drop(entries);
            // Nobody listens any more when the controller ends.
            let _ = self.changed.unbounded_send(key.clone());
        }
    }
}

async fn list_until_done(inner: Arc<Inner>, key: Key, rollout: Rollout, endpoint: String) {
    loop {
        let listed = {
            let Ok(_permit) = inner.permits.acquire().await else {
                return;
            };
            list(&endpoint, &inner.seams).await
        };
        match listed {
            Ok(tools) => {
                inner.keep(&key, &rollout, Listing::Listed(tools));
                return;
            }
            Err(error) => {
                let wait = inner.backoff.failed(key.clone());
                debug!(server = %key, %error, ?wait, "its tools could not be listed, trying again");
                inner.keep(&key, &rollout, Listing::Failed(error.to_string()));
                sleep(wait).await;
            }
        }
    }
}

async fn list(endpoint: &str, seams: &Seams) -> Result<Vec<String>, ClientError> {
    let client = McpClient::connect(endpoint, seams, DEADLINE).await?;
    let mut names: Vec<String> = client
        .list_tools(DEADLINE)
        .await?
        .into_iter()
        .map(|tool| tool.name)
        .collect();
    names.sort();
    names.dedup();
    Ok(names)
}
