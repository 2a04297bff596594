//! What is in the API, kept up to date in memory: one watch per kind, each with its own backoff.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::{StreamExt as _, TryStreamExt as _};
use kube::{
    Api, Resource, ResourceExt,
    runtime::{WatchStreamExt as _, watcher},
};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Namespace (empty for cluster-wide kinds) and name.
pub(crate) type Key = (String, String);

/// The key of an object.
pub(crate) fn key<K: ResourceExt>(object: &K) -> Key {
    (object.namespace().unwrap_or_default(), object.name_any())
}

/// The objects of one kind as last seen.
#[derive(Debug)]
pub(crate) struct Cache<K> {
    objects: Mutex<BTreeMap<Key, Arc<K>>>,
    version: watch::Sender<u64>,
}

impl<K> Default for Cache<K> {
    fn default() -> Self {
        Self {
            objects: Mutex::default(),
            version: watch::Sender::new(0),
        }
    }
}

impl<K> Cache<K> {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, Arc<K>>> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One object.
    pub(crate) fn get(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        self.lock().get(&(namespace.to_owned(), name.to_owned())).cloned()
    }

    /// All objects, ordered by namespace and name.
    pub(crate) fn all(&self) -> Vec<Arc<K>> {
        self.lock().values().cloned().collect()
    }

    /// Tells of every change.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }
}

/// One object before and after a change: `new` is `None` when it is gone.
pub(crate) struct Change<K> {
    pub(crate) old: Option<Arc<K>>,
    pub(crate) new: Option<Arc<K>>,
}

/// Keeps `cache` like the API's objects until `stop`, and calls `on_change` after each change. Errors are
/// logged and retried with backoff: a watch never ends by itself.
pub(crate) async fn follow<K>(
    api: Api<K>,
    cache: Arc<Cache<K>>,
    stop: CancellationToken,
    mut on_change: impl FnMut(Change<K>),
) where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let kind = K::kind(&()).into_owned();
    let events = watcher(api, watcher::Config::default())
        .default_backoff()
        .inspect_err(|error| tracing::warn!(%kind, %error, "watching failed; trying again"))
        .filter_map(async |event| event.ok())
        .take_until(stop.cancelled_owned());
    let mut events = std::pin::pin!(events);
    let mut listed = BTreeSet::new();
    while let Some(event) = events.next().await {
        let mut changes = Vec::new();
        match event {
            watcher::Event::Init => listed.clear(),
            watcher::Event::InitApply(object) | watcher::Event::Apply(object) => {
                let key = key(&object);
                listed.insert(key.clone());
                let new = Arc::new(object);
                let old = cache.lock().insert(key, new.clone());
                changes.push(Change { old, new: Some(new) });
            }
            watcher::Event::Delete(object) => {
                let old = cache.lock().remove(&key(&object));
                changes.push(Change {
                    old: old.or(Some(Arc::new(object))),
                    new: None,
                });
            }
            watcher::Event::InitDone => {
                let mut objects = cache.lock();
                let gone: Vec<Key> = objects
                    .keys()
                    .filter(|key| !listed.contains(*key))
                    .cloned()
                    .collect();
                changes.extend(gone.iter().map(|key| Change {
                    old: objects.remove(key),
                    new: None,
                }));
            }
        }
        cache.version.send_modify(|version| *version += 1);
        changes.into_iter().for_each(&mut on_change);
    }
}
