//! The objects in memory and the events that led to them.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::Bound,
    sync::Arc,
};

use serde_json::Value;

use super::Key;

/// An object and its resource version.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Stored {
    pub(crate) revision: u64,
    pub(crate) object: Arc<Value>,
}

/// Objects as they were together at one resource version.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    pub(crate) revision: u64,
    pub(crate) objects: Vec<(Key, Stored)>,
}

/// A change that happened.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    /// The resource version of the change.
    pub(crate) revision: u64,
    pub(crate) resource: Arc<str>,
    pub(crate) key: Key,
    pub(crate) kind: EventKind,
    /// The new state; for a deletion the last one, at the deletion's resource version.
    pub(crate) object: Arc<Value>,
    /// The state before.
    pub(crate) previous: Option<Stored>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventKind {
    Added,
    Modified,
    Deleted,
}

/// History does not reach back to the resource version asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Compacted {
    /// The oldest resource version it reaches.
    pub(crate) oldest: u64,
}

type Objects = BTreeMap<Key, Stored>;

#[derive(Debug)]
pub(super) struct State {
    revision: u64,
    /// Events after this revision are in `history`.
    compacted: u64,
    resources: BTreeMap<Arc<str>, Objects>,
    history: VecDeque<Event>,
    capacity: usize,
}

impl State {
    pub(super) fn new(revision: u64, objects: Vec<(Arc<str>, Key, Stored)>, capacity: usize) -> Self {
        let mut resources: BTreeMap<Arc<str>, Objects> = BTreeMap::new();
        for (resource, key, stored) in objects {
            resources.entry(resource).or_default().insert(key, stored);
        }
        Self {
            revision,
            compacted: revision,
            resources,
            history: VecDeque::new(),
            capacity,
        }
    }

    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    pub(super) fn compacted(&self) -> u64 {
        self.compacted
    }

    pub(super) fn get(&self, resource: &str, key: &Key) -> Option<Stored> {
        self.resources.get(resource)?.get(key).cloned()
    }

    pub(super) fn resources(&self) -> Vec<Arc<str>> {
        self.resources
            .iter()
            .filter(|(_, objects)| !objects.is_empty())
            .map(|(name, _)| name.clone())
            .collect()
    }

    pub(super) fn list(&self, resource: &str, namespace: Option<&str>) -> Snapshot {
        let objects = self
            .resources
            .get(resource)
            .map(|all| within(all, namespace))
            .unwrap_or_default();
        Snapshot {
            revision: self.revision,
            objects,
        }
    }

    /// Takes the changes after `revision` back, newest first.
    pub(super) fn list_at(
        &self,
        resource: &str,
        namespace: Option<&str>,
        revision: u64,
    ) -> Result<Snapshot, Compacted> {
        self.check(revision)?;
        let mut objects = self.resources.get(resource).cloned().unwrap_or_default();
        for event in self
            .history
            .iter()
            .rev()
            .take_while(|event| event.revision > revision)
        {
            if &*event.resource != resource {
                continue;
            }
            match &event.previous {
                Some(previous) => objects.insert(event.key.clone(), previous.clone()),
                None => objects.remove(&event.key),
            };
        }
        Ok(Snapshot {
            revision: revision.min(self.revision),
            objects: within(&objects, namespace),
        })
    }

    /// Whether history holds everything after `revision`.
    pub(super) fn check(&self, revision: u64) -> Result<(), Compacted> {
        if revision < self.compacted {
            Err(Compacted {
                oldest: self.compacted,
            })
        } else {
            Ok(())
        }
    }

    /// The events after `revision`, in order.
    pub(super) fn events_after(&self, revision: u64) -> Result<impl Iterator<Item = &Event>, Compacted> {
        self.check(revision)?;
        let start = self.history.partition_point(|event| event.revision <= revision);
        Ok(self.history.range(start..))
    }

    /// Applies events that are durable. Their revisions follow the current one.
    pub(super) fn apply(&mut self, events: Vec<Event>) {
        for event in events {
            self.revision = event.revision;
            let objects = self.resources.entry(event.resource.clone()).or_default();
            if event.kind == EventKind::Deleted {
                objects.remove(&event.key);
            } else {
                let stored = Stored {
                    revision: event.revision,
                    object: event.object.clone(),
                };
                objects.insert(event.key.clone(), stored);
            }
            self.history.push_back(event);
        }
        while self.history.len() > self.capacity {
            if let Some(forgotten) = self.history.pop_front() {
                self.compacted = forgotten.revision;
            }
        }
    }

    pub(super) fn compact(&mut self) {
        self.history.clear();
        self.compacted = self.revision;
    }
}

fn within(objects: &Objects, namespace: Option<&str>) -> Vec<(Key, Stored)> {
    let Some(namespace) = namespace else {
        return objects
            .iter()
            .map(|(key, stored)| (key.clone(), stored.clone()))
            .collect();
    };
    let first = Key::new(namespace, "");
    objects
        .range((Bound::Included(&first), Bound::Unbounded))
        .take_while(|(key, _)| key.namespace == namespace)
        .map(|(key, stored)| (key.clone(), stored.clone()))
        .collect()
}
