//! Watches of kinds that the API server may not serve: those of another project, which is installed later or
//! removed again.

use std::{fmt::Debug, sync::Arc, time::Duration};

use async_stream::stream;
use futures::{Stream, stream::unfold};
use kaos_seams::Random;
use kube::{
    Client, Resource,
    core::NamespaceResourceScope,
    runtime::{reflector, utils::Backoff, watcher},
};
use serde::de::DeserializeOwned;
use tokio::{sync::watch, time::sleep};
use tracing::{info, warn};

use crate::watch::{Feed, Watch};

/// How long an absent API is not asked for again, at most (and half of it at least): whoever installs it waits no
/// longer, and a request this seldom costs nothing.
const INTERVAL: Duration = Duration::from_secs(30);

/// Whether an optional API is served, as far as it is known. Cheap to clone; clones know the same.
#[derive(Clone, Debug)]
pub struct Availability(watch::Receiver<Option<bool>>);

impl Availability {
    /// Whether the API is served; nothing as long as the API server has not said.
    pub fn is_served(&self) -> Option<bool> {
        *self.0.borrow()
    }

    /// An item for each change from now on, the first answer included. Quick changes may come as one. It ends when
    /// the stream of objects is dropped.
    pub fn changes(&self) -> impl Stream<Item = ()> + Send + 'static {
        let mut known = self.0.clone();
        known.mark_unchanged();
        unfold(known, |mut known| async {
            known.changed().await.ok()?;
            Some(((), known))
        })
    }
}

/// As [`watched`](crate::watched), for a kind whose API may be absent, arrive late, or go away.
///
/// While it is absent no watch is open: discovery is asked again and again, with waits that `random` spreads, and
/// the store is empty and ready. When it goes away, the store is emptied, what was in it comes out of the stream,
/// and the [`Availability`] changes; it does so, too, when it arrives. All of this happens while the stream is
/// polled.
pub fn watched_optional<K>(
    client: Client,
    config: watcher::Config,
    random: Arc<dyn Random>,
) -> (
    reflector::Store<K>,
    impl Stream<Item = Result<K, watcher::Error>> + Send + 'static,
    Availability,
)
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + Sync
        + 'static,
{
    let mut feed = Feed::new(|_: &mut K| {});
    let store = feed.reader.clone();
    let (known, availability) = watch::channel(None);
    let mut discovery = Discovery::of::<K>(client.clone(), known);
    let objects = stream! {
        let mut answer = discovery.ask().await;
        loop {
            answer = match answer {
                Some(true) => {
                    discovery.tell(true);
                    let mut watch = Watch::open(client.clone(), config.clone());
                    loop {
                        match watch.next().await {
                            Ok(event) => {
                                for object in feed.take(event) {
                                    yield Ok(Arc::unwrap_or_clone(object));
                                }
                            }
                            Err(error) => {
                                if is_missing(&error) && discovery.ask().await == Some(false) {
                                    break Some(false);
                                }
                                watch.pause(&error).await;
                            }
                        }
                    }
                }
                Some(false) => {
                    let gone = feed.clear();
                    discovery.tell(false);
                    for object in gone {
                        yield Ok(Arc::unwrap_or_clone(object));
                    }
                    sleep(random.jitter(INTERVAL)).await;
                    discovery.ask().await
                }
                None => {
                    discovery.pause().await;
                    discovery.ask().await
                }
            };
        }
    };
    (store, objects, Availability(availability))
}

/// Whether the API server does not know what was to be watched.
fn is_missing(error: &watcher::Error) -> bool {
    use watcher::Error::{InitialListFailed, NoResourceVersion, WatchError, WatchFailed, WatchStartFailed};
    match error {
        InitialListFailed(error) | WatchStartFailed(error) | WatchFailed(error) => {
            matches!(error, kube::Error::Api(status) if status.code == 404)
        }
        WatchError(status) => status.code == 404,
        NoResourceVersion => false,
    }
}

/// Asks whether one kind is served, and says so.
struct Discovery {
    client: Client,
    group: String,
    version: String,
    plural: String,
    known: watch::Sender<Option<bool>>,
    backoff: watcher::DefaultBackoff,
    /// Why there was no answer, as logged, until there is one.
    told: Option<String>,
}

impl Discovery {
    fn of<K: Resource<DynamicType = ()>>(client: Client, known: watch::Sender<Option<bool>>) -> Self {
        Self {
            client,
            group: K::group(&()).into_owned(),
            version: K::version(&()).into_owned(),
            plural: K::plural(&()).into_owned(),
            known,
            backoff: watcher::DefaultBackoff::default(),
            told: None,
        }
    }

    /// Whether the kind is served; nothing where the API server does not say.
    async fn ask(&mut self) -> Option<bool> {
        let resources = if self.group.is_empty() {
            self.client.list_core_api_resources(&self.version).await
        } else {
            let group_version = format!("{}/{}", self.group, self.version);
            self.client.list_api_group_resources(&group_version).await
        };
        let served = match resources {
            Ok(list) => list.resources.iter().any(|resource| resource.name == self.plural),
            Err(kube::Error::Api(status)) if status.code == 404 => false,
            Err(error) => {
                let reason = error.to_string();
                if self.told.as_ref() != Some(&reason) {
                    let Self { group, plural, .. } = self;
                    warn!(%group, %plural, error = reason, "the API server does not say whether a kind is served");
                    self.told = Some(reason);
                }
                return None;
            }
        };
        self.told = None;
        self.backoff.reset();
        Some(served)
    }

    /// Waits after a question without an answer.
    async fn pause(&mut self) {
        if let Some(wait) = self.backoff.next() {
            sleep(wait).await;
        }
    }

    fn tell(&self, served: bool) {
        let Self { group, plural, .. } = self;
        let changed = self.known.send_if_modified(|known| {
            let changed = *known != Some(served);
            *known = Some(served);
            changed
        });
        match (changed, served) {
            (true, true) => info!(%group, %plural, "an optional kind is served and watched"),
            (true, false) => info!(%group, %plural, "an optional kind is not served"),
            (false, _) => {}
        }
    }
}
