//! Watches of one kind each, independent of one another.
//!
//! kube-rs's `Controller` puts one backoff around all its streams together: one kind that cannot be watched
//! keeps the others waiting. So each stream backs off by itself here, and hands the controller no errors.

use std::{collections::HashSet, fmt::Debug, future, sync::Arc};

use async_stream::stream;
use futures::{Stream, StreamExt, stream::BoxStream};
use kube::{
    Api, Client, Resource, ResourceExt,
    core::NamespaceResourceScope,
    runtime::{reflector, reflector::ObjectRef, utils::Backoff, watcher},
};
use serde::de::DeserializeOwned;
use tokio::time::sleep;
use tracing::{info, warn};

use crate::readable::{Readable, Unreadable};

/// The objects of a kind in all namespaces that `config` selects, as a store that is kept up to date, and a
/// stream of those that changed, were deleted, or have just been listed.
///
/// The store is always as new as what the stream has given out. The stream never ends and never fails:
/// errors are logged and retried with a backoff of its own. What vanished while the watch was interrupted
/// comes out of the stream too, so that a deleted child is noticed. An object that cannot be read (one of a
/// newer version, say) is logged and left out, and does not stop the others.
pub fn watched<K>(
    client: Client,
    config: watcher::Config,
) -> (
    reflector::Store<K>,
    impl Stream<Item = Result<K, watcher::Error>> + Send + 'static,
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
    watched_modified(client, config, |_| {})
}

/// As [`watched`], with `modify` called on each object before anybody sees it: to leave out of the store what
/// nobody reads there, such as `managedFields`, which are a large part of a small object.
pub fn watched_modified<K>(
    client: Client,
    config: watcher::Config,
    modify: impl Fn(&mut K) + Send + 'static,
) -> (
    reflector::Store<K>,
    impl Stream<Item = Result<K, watcher::Error>> + Send + 'static,
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
    let mut feed = Feed::new(modify);
    let store = feed.reader.clone();
    let objects = stream! {
        let mut watch = Watch::open(client, config);
        loop {
            match watch.next().await {
                Ok(event) => {
                    for object in feed.take(event) {
                        yield Ok(Arc::unwrap_or_clone(object));
                    }
                }
                Err(error) => watch.pause(&error).await,
            }
        }
    };
    (store, objects)
}

/// An event with an object that may not be readable.
type Event<K> = watcher::Event<Readable<K>>;

/// An open watch with a backoff of its own.
pub(crate) struct Watch<K> {
    kind: String,
    events: BoxStream<'static, Result<Event<K>, watcher::Error>>,
    backoff: watcher::DefaultBackoff,
    /// Why it was interrupted, as logged, until it works again.
    told: Option<String>,
}

impl<K> Watch<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + 'static,
{
    pub(crate) fn open(client: Client, config: watcher::Config) -> Self {
        Self {
            kind: K::kind(&()).into_owned(),
            events: watcher(Api::all(client), config).boxed(),
            backoff: watcher::DefaultBackoff::default(),
            told: None,
        }
    }

    /// The next event. After an error, [`Watch::pause`] comes before the next call.
    pub(crate) async fn next(&mut self) -> Result<Event<K>, watcher::Error> {
        let event = match self.events.next().await {
            Some(event) => event?,
            // Watches have no end.
            None => future::pending().await,
        };
        // A list that has begun says nothing: it may break off each time.
        if !matches!(event, watcher::Event::Init | watcher::Event::InitApply(_)) {
            self.backoff.reset();
            if self.told.take().is_some() {
                info!(kind = self.kind, "a watch works again");
            }
        }
        Ok(event)
    }

    /// Logs why the watch was interrupted, each reason once, and waits before it is opened again.
    pub(crate) async fn pause(&mut self, error: &watcher::Error) {
        let reason = DisplayChain(error).to_string();
        if self.told.as_ref() != Some(&reason) {
            warn!(
                kind = self.kind,
                error = reason,
                "a watch was interrupted and is opened again"
            );
            self.told = Some(reason);
        }
        if let Some(wait) = self.backoff.next() {
            sleep(wait).await;
        }
    }
}

/// A store, and what keeps it up to date.
pub(crate) struct Feed<K, F>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    pub(crate) reader: reflector::Store<K>,
    writer: reflector::store::Writer<K>,
    modify: F,
}

impl<K, F> Feed<K, F>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
    F: Fn(&mut K),
{
    pub(crate) fn new(modify: F) -> Self {
        let (reader, writer) = reflector::store();
        Self {
            reader,
            writer,
            modify,
        }
    }

    /// Takes an event into the store and returns the objects it is news about.
    pub(crate) fn take(&mut self, event: Event<K>) -> Vec<Arc<K>> {
        use watcher::Event::{Apply, Delete, InitApply};
        let mut event = readable(&self.reader, event);
        if let Some(Apply(object) | Delete(object) | InitApply(object)) = &mut event {
            (self.modify)(object);
        }
        let news = event.map(|event| changed(&self.reader, &mut self.writer, event));
        news.unwrap_or_default()
    }

    /// Empties the store and returns what was in it.
    pub(crate) fn clear(&mut self) -> Vec<Arc<K>> {
        use watcher::Event::{Init, InitDone};
        changed(&self.reader, &mut self.writer, Init);
        changed(&self.reader, &mut self.writer, InitDone)
    }
}

/// The event with its object as a `K`, or nothing where the object cannot be read. To the store such an object
/// is gone: what it was before is no longer true.
fn readable<K>(reader: &reflector::Store<K>, event: watcher::Event<Readable<K>>) -> Option<watcher::Event<K>>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    use watcher::Event::{Apply, Delete, Init, InitApply, InitDone};
    match event {
        Init => Some(Init),
        InitDone => Some(InitDone),
        InitApply(guard) => guard.0.inspect_err(warn_of::<K>).ok().map(InitApply),
        Apply(guard) => match guard.0.inspect_err(warn_of::<K>) {
            Ok(object) => Some(Apply(object)),
            Err(invalid) => known(reader, &invalid).map(Delete),
        },
        Delete(guard) => match guard.0 {
            Ok(object) => Some(Delete(object)),
            Err(invalid) => known(reader, &invalid).map(Delete),
        },
    }
}

fn warn_of<K: Resource<DynamicType = ()>>(invalid: &Unreadable) {
    let name = invalid.metadata.name.as_deref().unwrap_or_default();
    let namespace = invalid.metadata.namespace.as_deref().unwrap_or_default();
    warn!(kind = %K::kind(&()), namespace, name, error = %invalid.error, "an object cannot be read");
}

/// What the store has of an object that cannot be read now.
fn known<K>(reader: &reflector::Store<K>, invalid: &Unreadable) -> Option<K>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    let name = invalid.metadata.name.as_deref()?;
    let key = ObjectRef::new(name).within(invalid.metadata.namespace.as_deref()?);
    reader.get(&key).map(Arc::unwrap_or_clone)
}

/// Takes `event` into the store and returns the objects it is news about.
///
/// Listed objects come out when the list is complete: only then the store has them. They are shared with the
/// store: a copy of thousands at once would be what costs the most memory.
fn changed<K>(
    reader: &reflector::Store<K>,
    writer: &mut reflector::store::Writer<K>,
    event: watcher::Event<K>,
) -> Vec<Arc<K>>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    use watcher::Event::{Apply, Delete, Init, InitApply, InitDone};
    let before = match event {
        InitDone => reader.state(),
        Init | InitApply(_) | Apply(_) | Delete(_) => Vec::new(),
    };
    writer.apply_watcher_event(&event);
    match event {
        Init | InitApply(_) => Vec::new(),
        InitDone => {
            let now = reader.state();
            let there: HashSet<Option<String>> = now.iter().map(|object| object.uid()).collect();
            let vanished = before.into_iter().filter(|object| !there.contains(&object.uid()));
            vanished.chain(now.iter().cloned()).collect()
        }
        Apply(object) | Delete(object) => vec![Arc::new(object)],
    }
}

/// An error with its causes in one line.
struct DisplayChain<'a>(&'a watcher::Error);

impl std::fmt::Display for DisplayChain<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)?;
        let mut cause = std::error::Error::source(self.0);
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    fn object(name: &str) -> ConfigMap {
        let mut object = ConfigMap::default();
        object.metadata.name = Some(name.to_owned());
        object.metadata.namespace = Some("default".to_owned());
        object.metadata.uid = Some(format!("uid of {name}"));
        object
    }

    fn names(objects: &[Arc<ConfigMap>]) -> Vec<String> {
        let mut names: Vec<_> = objects.iter().map(|object| object.name_any()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_list_comes_out_whole_with_what_has_vanished_since() {
        use watcher::Event::{Apply, Init, InitApply, InitDone};
        let (reader, mut writer) = reflector::store::<ConfigMap>();
        let mut feed = |event| names(&changed(&reader, &mut writer, event));
        assert_eq!(feed(Init), [""; 0]);
        assert_eq!(feed(InitApply(object("a"))), [""; 0]);
        assert_eq!(feed(InitApply(object("b"))), [""; 0]);
        assert_eq!(feed(InitDone), ["a", "b"]);
        assert_eq!(feed(Apply(object("c"))), ["c"]);
        // The watch breaks; meanwhile `b` is deleted.
        assert_eq!(feed(Init), [""; 0]);
        assert_eq!(feed(InitApply(object("a"))), [""; 0]);
        assert_eq!(feed(InitApply(object("c"))), [""; 0]);
        assert_eq!(feed(InitDone), ["a", "b", "c"]);
        assert_eq!(reader.state().len(), 2);
    }

    #[test]
    fn an_object_that_can_no_longer_be_read_is_gone_and_stops_no_other() {
        use watcher::Event::{Apply, Delete, Init, InitApply, InitDone};
        let (reader, mut writer) = reflector::store::<ConfigMap>();
        let invalid = |name: &str| {
            let metadata = object(name).metadata;
            Readable(Err(Unreadable {
                error: "of another version".to_owned(),
                metadata,
            }))
        };
        let mut feed = |event| {
            let event = readable(&reader, event);
            names(
                &event
                    .map(|event| changed(&reader, &mut writer, event))
                    .unwrap_or_default(),
            )
        };
        feed(Init);
        feed(InitApply(Readable(Ok(object("a")))));
        feed(InitApply(invalid("b")));
        assert_eq!(feed(InitDone), ["a"]);
        assert_eq!(feed(Apply(invalid("a"))), ["a"]);
        assert_eq!(reader.state().len(), 0);
        assert_eq!(feed(Delete(invalid("a"))), [""; 0]);
        assert_eq!(feed(Apply(Readable(Ok(object("a"))))), ["a"]);
        assert_eq!(reader.state().len(), 1);
    }
}
