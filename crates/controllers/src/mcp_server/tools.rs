//! Listing the tools of running servers, beside the passes: a server that answers slowly holds nothing up.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use futures::{Stream, channel::mpsc};
use kaos_api::v1alpha1::MCPServer;
use kaos_kube_ext::Backoff;
use kaos_mcp::client::{ClientError, McpClient};
use kaos_seams::Seams;
use kube::runtime::reflector::ObjectRef;
use tokio::{
    sync::Semaphore,
    time::{Instant, sleep},
};
use tokio_util::task::AbortOnDropHandle;
use tracing::debug;

use crate::common::children::Deployed;

/// How long a server may take to list its tools.
const DEADLINE: Duration = Duration::from_secs(10);
/// How many servers are asked at a time.
const AT_A_TIME: usize = 16;
/// How long a listing counts: source that is read from a Secret changes without a rollout. Less than the time
/// between two passes over a server that nothing happens to.
const FRESH: Duration = Duration::from_secs(240);
/// The most tools that a status names, and the most characters of a name: a status is stored with every change,
/// and both come from a server that may be anybody's.
const MAX_TOOLS: usize = 512;
const MAX_NAME: usize = 128;
/// The most characters of what a failed listing says.
const MAX_PROBLEM: usize = 500;

/// One rollout of a Deployment: what may have changed the tools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rollout {
    uid: Option<String>,
    generation: Option<i64>,
}

impl Rollout {
    /// The present rollout of `deployment`.
    pub(crate) fn of(deployment: &Deployed) -> Self {
        Self {
            uid: deployment.metadata.uid.clone(),
            generation: deployment.metadata.generation,
        }
    }
}

/// What came of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Listing {
    /// The names of the tools, sorted, and how many there are: the names are at most [`MAX_TOOLS`].
    Listed { names: Vec<String>, count: usize },
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
    /// When the tools were last listed; not while they are being listed.
    listed: Option<Instant>,
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

    /// Has the tools listed, unless they were just listed, or are being, for this rollout.
    pub(crate) fn list(&self, key: Key, rollout: Rollout, endpoint: String) {
        let mut entries = self.inner.entries();
        let of_rollout = entries.get(&key).filter(|entry| entry.rollout == rollout);
        if of_rollout.is_some_and(|entry| entry.listed.is_none_or(|listed| listed.elapsed() < FRESH)) {
            return;
        }
        let listing = of_rollout.and_then(|entry| entry.listing.clone());
        self.inner.backoff.reset(&key);
        let task = tokio::spawn(list_until_done(
            Arc::downgrade(&self.inner),
            key.clone(),
            rollout.clone(),
            endpoint,
        ));
        entries.insert(
            key,
            Entry {
                rollout,
                listing,
                listed: None,
                _task: AbortOnDropHandle::new(task),
            },
        );
    }

    /// What came of the last listing of this rollout, if one has ended since this program started.
    pub(crate) fn listing(&self, key: &Key, rollout: &Rollout) -> Option<Listing> {
        self.inner
            .entries()
            .get(key)
            .filter(|entry| entry.rollout == *rollout)
            .and_then(|entry| entry.listing.clone())
    }

    /// The names of the last listing, if it came to some.
    pub(crate) fn names(&self, key: &Key) -> Option<Vec<String>> {
        match self.inner.entries().get(key)?.listing.as_ref()? {
            Listing::Listed { names, .. } => Some(names.clone()),
            Listing::Failed(_) => None,
        }
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
        entry.listed = matches!(listing, Listing::Listed { .. }).then(Instant::now);
        if entry.listing.as_ref() != Some(&listing) {
            entry.listing = Some(listing);
            drop(entries);
            // Nobody listens any more when the controller ends.
            let _ = self.changed.unbounded_send(key.clone());
        }
    }
}

/// The entries hold the task, so between two tries it does not hold them.
async fn list_until_done(inner: Weak<Inner>, key: Key, rollout: Rollout, endpoint: String) {
    while let Some(inner) = inner.upgrade() {
        let listed = {
            let Ok(_permit) = inner.permits.acquire().await else {
                return;
            };
            list(&endpoint, &inner.seams).await
        };
        match listed {
            Ok(listing) => {
                inner.keep(&key, &rollout, listing);
                return;
            }
            Err(error) => {
                let wait = inner.backoff.failed(key.clone());
                debug!(server = %key, %error, ?wait, "its tools could not be listed, trying again");
                inner.keep(
                    &key,
                    &rollout,
                    Listing::Failed(shortened(&error.to_string(), MAX_PROBLEM)),
                );
                drop(inner);
                sleep(wait).await;
            }
        }
    }
}

async fn list(endpoint: &str, seams: &Seams) -> Result<Listing, ClientError> {
    let client = McpClient::connect(endpoint, seams, DEADLINE).await?;
    let tools = client.list_tools(DEADLINE).await?;
    Ok(bounded(tools.into_iter().map(|tool| tool.name).collect()))
}

fn bounded(mut names: Vec<String>) -> Listing {
    names.sort();
    names.dedup();
    let count = names.len();
    names.truncate(MAX_TOOLS);
    let names = names.iter().map(|name| shortened(name, MAX_NAME)).collect();
    Listing::Listed { names, count }
}

/// At most so many characters of `text`; the last one tells that there were more.
fn shortened(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text.to_owned(),
        Some(_) => text.chars().take(most - 1).chain(['…']).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_with_many_or_long_names_does_not_fill_the_status() {
        let names = (0..2000).map(|number| format!("{number:04}")).collect();
        let Listing::Listed { names, count } = bounded(names) else {
            panic!("it was listed");
        };
        assert_eq!((names.len(), count), (MAX_TOOLS, 2000));

        let long = "ü".repeat(MAX_NAME + 1);
        let exact = "ü".repeat(MAX_NAME);
        let Listing::Listed { names, .. } = bounded(vec![long, exact.clone(), exact.clone()]) else {
            panic!("it was listed");
        };
        let cut = format!("{}…", "ü".repeat(MAX_NAME - 1));
        assert_eq!(names, [exact, cut]);
    }
}
