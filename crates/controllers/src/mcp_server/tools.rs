//! Listing the tools of running servers, beside the passes.

use std::time::Duration;

use futures::Stream;
use kaos_api::v1alpha1::MCPServer;
use kaos_kube_ext::Backoff;
use kaos_mcp::client::{ClientError, McpClient};
use kaos_seams::Seams;
use kube::runtime::reflector::ObjectRef;
use tokio::time::{Instant, sleep};
use tracing::debug;

use crate::common::asked::{Asked, Asking, Rollout};

/// How long a server may take to list its tools.
const DEADLINE: Duration = Duration::from_secs(10);
/// How long a listing counts: source that is read from a Secret changes without a rollout. Less than the time
/// between two passes over a server that nothing happens to.
const FRESH: Duration = Duration::from_secs(240);
/// The most tools that a status names, and the most characters of a name: a status is stored with every change,
/// and both come from a server that may be anybody's.
const MAX_TOOLS: usize = 512;
const MAX_NAME: usize = 128;
/// The most characters of what a failed listing says.
const MAX_PROBLEM: usize = 500;

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
    asked: Asked<MCPServer, Known>,
    seams: Seams,
}

#[derive(Clone, Debug, Default)]
struct Known {
    listing: Option<Listing>,
    /// When the tools were last listed; not while they are being listed.
    listed: Option<Instant>,
}

impl Tools {
    /// No listing yet, and the stream of the MCPServers whose listing is news.
    pub(crate) fn new(seams: Seams) -> (Self, impl Stream<Item = Key> + Send + 'static) {
        let (asked, news) = Asked::new();
        (Self { asked, seams }, news)
    }

    /// Has the tools listed, unless they were just listed, or are being, for this rollout.
    pub(crate) fn list(&self, key: Key, rollout: Rollout, endpoint: String) {
        let known = self.of_rollout(&key, &rollout);
        let is_fresh = |known: &Known| known.listed.is_none_or(|listed| listed.elapsed() < FRESH);
        if known.as_ref().is_some_and(is_fresh) {
            return;
        }
        let known = Known {
            listed: None,
            ..known.unwrap_or_default()
        };
        let seams = self.seams.clone();
        self.asked.ask(key, rollout, known, |asking| {
            list_until_done(asking, seams, endpoint)
        });
    }

    /// What came of the last listing of this rollout, if one has ended since this program started.
    pub(crate) fn listing(&self, key: &Key, rollout: &Rollout) -> Option<Listing> {
        self.of_rollout(key, rollout)?.listing
    }

    fn of_rollout(&self, key: &Key, rollout: &Rollout) -> Option<Known> {
        let known = self.asked.known(key).filter(|(of, _)| of == rollout);
        known.map(|(_, known)| known)
    }

    /// The names of the last listing, if it came to some.
    pub(crate) fn names(&self, key: &Key) -> Option<Vec<String>> {
        match self.asked.known(key)?.1.listing? {
            Listing::Listed { names, .. } => Some(names),
            Listing::Failed(_) => None,
        }
    }

    /// Forgets a server that is gone.
    pub(crate) fn forget(&self, key: &Key) {
        self.asked.forget(key);
    }
}

async fn list_until_done(asking: Asking<MCPServer, Known>, seams: Seams, endpoint: String) {
    let backoff = Backoff::new(seams.random.clone());
    while let Some(listed) = asking.answer(list(&endpoint, &seams)).await {
        let (listing, wait) = match listed {
            Ok(listing) => (listing, None),
            Err(error) => {
                let wait = backoff.failed(());
                debug!(server = %asking.key, %error, ?wait, "its tools could not be listed, trying again");
                let problem = shortened(&error.to_string(), MAX_PROBLEM);
                (Listing::Failed(problem), Some(wait))
            }
        };
        asking.tell(|known| {
            known.listed = wait.is_none().then(Instant::now);
            let is_news = known.listing.as_ref() != Some(&listing);
            known.listing = Some(listing);
            is_news
        });
        match wait {
            Some(wait) => sleep(wait).await,
            None => return,
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
