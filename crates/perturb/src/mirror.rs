//! Everything that is in the cluster, and every change of it in order: read from watches of all kinds, which
//! are nobody's business and never go wrong.

use std::{
    collections::BTreeMap,
    fmt,
    str::FromStr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::TryStreamExt;
use http_body_util::BodyExt;
use serde::{Deserialize, Serialize, de};
use serde_json::Value;
use tokio::{sync::watch, time::Instant};

use crate::cluster::{Kind, Raw};

/// Which object: `Kind/namespace/name`, or `Kind/name` outside of namespaces.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Its kind.
    pub kind: String,
    /// Its namespace, empty where it has none.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl Key {
    /// The object of this name.
    pub fn new(kind: &str, namespace: &str, name: &str) -> Self {
        Self {
            kind: kind.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    /// Which object this is.
    pub fn of(object: &Value) -> Self {
        let text = |pointer: &str| {
            object
                .pointer(pointer)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        Self::new(text("/kind"), text("/metadata/namespace"), text("/metadata/name"))
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            kind,
            namespace,
            name,
        } = self;
        match namespace.as_str() {
            "" => write!(f, "{kind}/{name}"),
            _ => write!(f, "{kind}/{namespace}/{name}"),
        }
    }
}

impl FromStr for Key {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split('/').collect::<Vec<_>>()[..] {
            [kind, name] => Ok(Self::new(kind, "", name)),
            [kind, namespace, name] => Ok(Self::new(kind, namespace, name)),
            _ => Err(format!("{text} is not Kind/name or Kind/namespace/name")),
        }
    }
}

impl Serialize for Key {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(de::Error::custom)
    }
}

/// All objects at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct World(BTreeMap<Key, Arc<Value>>);

impl World {
    /// The object, if there is one.
    pub fn get(&self, key: &Key) -> Option<&Value> {
        self.0.get(key).map(AsRef::as_ref)
    }

    /// All objects with their keys, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&Key, &Value)> {
        self.0.iter().map(|(key, object)| (key, object.as_ref()))
    }

    /// The objects of one kind.
    pub fn of_kind<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = (&'a Key, &'a Value)> {
        self.iter().filter(move |(key, _)| key.kind == kind)
    }

    /// Whether there is an object with this uid.
    pub fn has_uid(&self, uid: &str) -> bool {
        self.0.values().any(|object| object["metadata"]["uid"] == uid)
    }

    pub(crate) fn apply(&mut self, change: &Change) {
        match &change.after {
            Some(object) => self.0.insert(change.key.clone(), object.clone()),
            None => self.0.remove(&change.key),
        };
    }
}

/// One change of one object.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) revision: u64,
    pub(crate) at: Instant,
    pub(crate) key: Key,
    /// What it was, where it was anything.
    pub(crate) before: Option<Arc<Value>>,
    /// What it is, where it still is.
    pub(crate) after: Option<Arc<Value>>,
}

/// The present world, and how it came about since [`Mirror::forget`].
#[derive(Clone, Debug)]
pub(crate) struct Mirror {
    inner: Arc<Mutex<Inner>>,
    news: watch::Receiver<u64>,
}

#[derive(Debug)]
struct Inner {
    world: World,
    start: World,
    history: Vec<Change>,
    last: Instant,
    news: watch::Sender<u64>,
}

impl Mirror {
    /// Mirrors these kinds from now on.
    pub(crate) fn start(raw: &Raw, kinds: impl IntoIterator<Item = Kind>) -> Self {
        let (sender, news) = watch::channel(0);
        let inner = Inner {
            world: World::default(),
            start: World::default(),
            history: Vec::new(),
            last: Instant::now(),
            news: sender,
        };
        let mirror = Self {
            inner: Arc::new(Mutex::new(inner)),
            news,
        };
        for kind in kinds {
            mirror.follow(raw, &kind);
        }
        mirror
    }

    /// Mirrors a kind from now on, until it is served no longer.
    pub(crate) fn follow(&self, raw: &Raw, kind: &Kind) {
        tokio::spawn(follow(raw.clone(), kind.clone(), self.inner.clone()));
    }

    /// Revisions at which objects of a kind went since there had been `count` changes.
    pub(crate) fn gone_since(&self, count: u64, kind: &str) -> Vec<u64> {
        let inner = self.lock();
        let new = inner.news.borrow().saturating_sub(count);
        let old = inner
            .history
            .len()
            .saturating_sub(usize::try_from(new).unwrap_or_default());
        let since = inner.history[old..].iter();
        since
            .filter(|change| change.after.is_none() && change.key.kind == kind)
            .map(|change| change.revision)
            .collect()
    }

    /// The world now.
    pub(crate) fn world(&self) -> World {
        self.lock().world.clone()
    }

    /// Tells of changes: its number grows with each.
    pub(crate) fn news(&self) -> watch::Receiver<u64> {
        self.news.clone()
    }

    /// When the last change was.
    pub(crate) fn last_change(&self) -> Instant {
        self.lock().last
    }

    /// Begins a new history here.
    pub(crate) fn forget(&self) {
        let mut inner = self.lock();
        inner.history.clear();
        inner.start = inner.world.clone();
    }

    /// The world at [`Mirror::forget`], and every change since, in the order in which they were made.
    pub(crate) fn history(&self) -> (World, Vec<Change>) {
        let inner = self.lock();
        let mut history = inner.history.clone();
        history.sort_by_key(|change| change.revision);
        (inner.start.clone(), history)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn follow(raw: Raw, kind: Kind, inner: Arc<Mutex<Inner>>) {
    // In seconds: longer than all cases together.
    const FOR_EVER: u64 = 1_000_000_000;
    let path = format!(
        "{}?watch=true&resourceVersion=0&timeoutSeconds={FOR_EVER}",
        kind.all()
    );
    let response = raw.send("GET", &path, None, None).await;
    let mut frames = response.into_body().into_data_stream();
    let mut rest = Vec::new();
    while let Ok(Some(frame)) = frames.try_next().await {
        rest.extend_from_slice(&frame);
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = rest.drain(..=end).collect();
            let mut event: Value = serde_json::from_slice(&line).expect("an event is JSON");
            let object = event["object"].take();
            note(&inner, event["type"].as_str().unwrap_or_default(), object);
        }
    }
}

fn note(inner: &Mutex<Inner>, event: &str, object: Value) {
    let gone = match event {
        "ADDED" | "MODIFIED" => false,
        "DELETED" => true,
        other => panic!("a watch of the mirror got {other}: {object}"),
    };
    let mut inner = inner.lock().unwrap_or_else(PoisonError::into_inner);
    let key = Key::of(&object);
    let change = Change {
        revision: revision(&object),
        at: Instant::now(),
        before: inner.world.0.get(&key).cloned(),
        after: (!gone).then(|| Arc::new(object)),
        key,
    };
    inner.world.apply(&change);
    inner.last = change.at;
    inner.history.push(change);
    inner.news.send_modify(|count| *count += 1);
}

/// The version of an object as a number: they grow with each change of anything.
pub(crate) fn revision(object: &Value) -> u64 {
    let text = object["metadata"]["resourceVersion"].as_str();
    text.and_then(|text| text.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_read_as_it_is_printed() {
        for text in ["Namespace/work", "Deployment/work/web"] {
            assert_eq!(text.parse::<Key>().unwrap().to_string(), text);
        }
        assert!("web".parse::<Key>().is_err());
    }
}
