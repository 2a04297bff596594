//! What is remembered of each resource from one pass over it to the next.
//!
//! The store that passes read lags behind what they write. A pass over a resource as it was before the last status
//! was written would compare with a status that is no longer there, and its own would be refused as meant for an
//! older version. So it is put off until that version has come out of the watch.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use kaos_kube_ext::is_older;
use kube::{
    Resource,
    core::object::HasStatus,
    runtime::reflector::{ObjectRef, Store},
};
use serde::Serialize;
use tokio::time::Instant;

/// How long the figures of a rollout may differ from those of a status.
pub(crate) const SETTLES: Duration = Duration::from_secs(10);

/// How long passes are put off at most. A server that was restored from a copy counts its versions from there, and
/// never comes to the one that is waited for.
pub(crate) const PUT_OFF: Duration = Duration::from_secs(10);

/// The passes over the resources of a kind.
pub(crate) struct Passes<K: Resource<DynamicType = ()> + 'static> {
    store: Store<K>,
    records: Mutex<HashMap<ObjectRef<K>, Record>>,
}

/// Whether a pass can be made.
#[derive(Debug)]
pub(crate) enum Turn<K> {
    /// Over the resource as it is here.
    Now(Arc<K>),
    /// When the last status that was written has come out of the watch, or after [`PUT_OFF`].
    Later,
    /// Never: the resource is gone.
    Never,
}

#[derive(Debug, Default)]
struct Record {
    /// What the last pass knew and said.
    done: Option<Done>,
    /// The uid, and the version in which the last status is that was written.
    written: Option<(Option<String>, String)>,
    /// Since when passes are put off until that version is seen.
    put_off: Option<Instant>,
    /// Since when the figures of a rollout in the status are not those of the Deployment.
    behind: Option<Instant>,
}

/// What a pass over a resource knew of it, and what it said.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Done {
    uid: Option<String>,
    generation: Option<i64>,
    finalizers: Option<Vec<String>>,
    is_going: bool,
    /// A digest.
    status: u64,
}

impl Done {
    fn of<K: Resource>(resource: &K, status: Option<&impl Serialize>) -> Self {
        let meta = resource.meta();
        let mut digest = DefaultHasher::new();
        // A status that cannot be written as JSON is not written at all.
        serde_json::to_vec(&status).unwrap_or_default().hash(&mut digest);
        Self {
            uid: meta.uid.clone(),
            generation: meta.generation,
            finalizers: meta.finalizers.clone(),
            is_going: meta.deletion_timestamp.is_some(),
            status: digest.finish(),
        }
    }
}

impl Record {
    /// Whether `resource` is as it was before the last status was written.
    fn is_ahead_of(&self, resource: &impl Resource) -> bool {
        let meta = resource.meta();
        let (Some((uid, written)), Some(seen)) = (&self.written, &meta.resource_version) else {
            return false;
        };
        *uid == meta.uid && is_older(seen, written)
    }
}

impl<K> Passes<K>
where
    K: Resource<DynamicType = ()> + HasStatus + Clone + 'static,
    K::Status: Serialize,
{
    /// No pass has been made yet over the resources in `store`.
    pub(crate) fn new(store: Store<K>) -> Self {
        Self {
            store,
            records: Mutex::default(),
        }
    }

    /// Whether the next pass over this resource can be made.
    pub(crate) fn turn(&self, key: &ObjectRef<K>) -> Turn<K> {
        let mut records = self.records();
        // Looked for while nobody can ask for news: what comes later finds that a pass was put off.
        let Some(resource) = self.store.get(key) else {
            return Turn::Never;
        };
        let Some(record) = records.get_mut(key) else {
            return Turn::Now(resource);
        };
        if record.is_ahead_of(&*resource) {
            if record.put_off.get_or_insert_with(Instant::now).elapsed() < PUT_OFF {
                return Turn::Later;
            }
            record.written = None;
        }
        record.put_off = None;
        Turn::Now(resource)
    }

    /// Whether this very resource is still there.
    pub(crate) fn is_there(&self, resource: &K) -> bool {
        let stored = self.store.get(&ObjectRef::from_obj(resource));
        stored.is_some_and(|stored| stored.meta().uid == resource.meta().uid)
    }

    /// Whether the resource, as it has come out of the watch, is another than what the last pass over it knew and
    /// said, or is what a pass was put off for. What a pass itself writes comes out of the watch, too.
    pub(crate) fn is_news(&self, resource: &K) -> bool {
        let records = self.records();
        let Some(record) = records.get(&ObjectRef::from_obj(resource)) else {
            return true;
        };
        let was_awaited = record.put_off.is_some() && !record.is_ahead_of(resource);
        was_awaited || record.done != Some(Done::of(resource, resource.status()))
    }

    /// To be told of what a pass over the resource says, before it is written.
    pub(crate) fn say(&self, resource: &K, status: &K::Status) {
        self.with(resource, |record| {
            record.done = Some(Done::of(resource, Some(status)));
        });
    }

    /// To be told of the version of the resource in which its status was written.
    pub(crate) fn written(&self, resource: &K, version: String) {
        self.with(resource, |record| {
            record.written = Some((resource.meta().uid.clone(), version));
        });
    }

    /// To be told when a pass finds nothing to say but other figures of a rollout. Whether they are to wait for more
    /// to change.
    pub(crate) fn lets_settle(&self, resource: &K) -> bool {
        self.with(resource, |record| {
            let waits = record.behind.get_or_insert_with(Instant::now).elapsed() < SETTLES;
            if !waits {
                record.behind = None;
            }
            waits
        })
    }

    /// To be told when a pass says all it knows.
    pub(crate) fn has_settled(&self, resource: &K) {
        self.with(resource, |record| record.behind = None);
    }

    /// Whether figures of a rollout are still to be said.
    pub(crate) fn is_behind(&self, resource: &K) -> bool {
        self.with(resource, |record| record.behind.is_some())
    }

    /// To be told of a resource that is gone.
    pub(crate) fn forget(&self, resource: &K) {
        self.records().remove(&ObjectRef::from_obj(resource));
    }

    fn with<T>(&self, resource: &K, act: impl FnOnce(&mut Record) -> T) -> T {
        act(self.records().entry(ObjectRef::from_obj(resource)).or_default())
    }

    fn records(&self) -> MutexGuard<'_, HashMap<ObjectRef<K>, Record>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use kaos_api::v1alpha1::{Agent, AgentStatus};
    use kube::runtime::{
        reflector::{self, store::Writer},
        watcher::Event,
    };
    use tokio::time::advance;

    use super::*;
    use crate::common::testing::stored;

    fn agent(uid: &str, version: &str) -> Agent {
        let mut agent: Agent = stored("sam", "modelAPI: models");
        agent.metadata.uid = Some(uid.to_owned());
        agent.metadata.resource_version = Some(version.to_owned());
        agent
    }

    /// Passes over a resource that is in the store, over which one was made that said this and wrote version 10.
    fn written(status: &AgentStatus) -> (Passes<Agent>, Writer<Agent>) {
        let (store, mut watch) = reflector::store();
        let passes = Passes::new(store);
        let first = agent("a", "9");
        watch.apply_watcher_event(&Event::Apply(first.clone()));
        assert!(passes.is_news(&first));
        assert_eq!(turn(&passes), "now 9");
        passes.say(&first, status);
        passes.written(&first, "10".to_owned());
        (passes, watch)
    }

    fn turn(passes: &Passes<Agent>) -> String {
        match passes.turn(&ObjectRef::from_obj(&agent("a", ""))) {
            Turn::Now(agent) => format!("now {}", agent.metadata.resource_version.as_deref().unwrap()),
            Turn::Later => "later".to_owned(),
            Turn::Never => "never".to_owned(),
        }
    }

    #[test]
    fn a_pass_waits_until_the_last_status_has_come() {
        let status = AgentStatus::default();
        let (passes, mut watch) = written(&status);
        let mut own = agent("a", "10");
        own.status = Some(status.clone());
        // Nobody asked for a pass meanwhile.
        assert!(!passes.is_news(&own));

        assert_eq!(turn(&passes), "later");
        let mut older = agent("a", "9");
        older.status = Some(status.clone());
        assert!(!passes.is_news(&older));
        watch.apply_watcher_event(&Event::Apply(own.clone()));
        assert!(passes.is_news(&own), "a pass was put off for it");
        assert_eq!(turn(&passes), "now 10");
        assert!(!passes.is_news(&own), "it has been made");

        // What others write comes with what was written before it.
        passes.written(&own, "12".to_owned());
        assert_eq!(turn(&passes), "later");
        let mut others = agent("a", "13");
        others.status = Some(status);
        watch.apply_watcher_event(&Event::Apply(others.clone()));
        assert!(passes.is_news(&others));
        assert_eq!(turn(&passes), "now 13");
    }

    #[test]
    fn no_pass_waits_for_a_resource_that_is_gone() {
        let (passes, mut watch) = written(&AgentStatus::default());
        assert_eq!(turn(&passes), "later");
        watch.apply_watcher_event(&Event::Delete(agent("a", "11")));
        assert_eq!(turn(&passes), "never");
        // Its deletion was not seen, and the list comes from a server that was set back.
        watch.apply_watcher_event(&Event::Apply(agent("b", "8")));
        assert!(passes.is_news(&agent("b", "8")));
        assert_eq!(turn(&passes), "now 8");
        assert!(!passes.is_there(&agent("a", "10")) && passes.is_there(&agent("b", "8")));
    }

    #[tokio::test(start_paused = true)]
    async fn a_version_that_never_comes_is_not_waited_for_again() {
        let (passes, _watch) = written(&AgentStatus::default());
        assert_eq!(turn(&passes), "later");
        advance(PUT_OFF / 2).await;
        assert_eq!(turn(&passes), "later");
        advance(PUT_OFF / 2).await;
        assert_eq!(turn(&passes), "now 9");
        assert_eq!(turn(&passes), "now 9");
    }

    #[test]
    fn versions_that_are_no_numbers_are_not_waited_for() {
        let (passes, _watch) = written(&AgentStatus::default());
        passes.written(&agent("a", "9"), "b7f".to_owned());
        assert_eq!(turn(&passes), "now 9");
    }

    #[tokio::test(start_paused = true)]
    async fn figures_settle_for_so_long_and_no_longer() {
        let (passes, _watch) = written(&AgentStatus::default());
        let agent = agent("a", "10");
        assert!(passes.lets_settle(&agent) && passes.is_behind(&agent));
        advance(SETTLES / 2).await;
        assert!(passes.lets_settle(&agent));
        advance(SETTLES / 2).await;
        assert!(!passes.lets_settle(&agent) && !passes.is_behind(&agent));
        assert!(passes.lets_settle(&agent));
        passes.has_settled(&agent);
        assert!(!passes.is_behind(&agent));
    }
}
