//! Which resources are served now: the closed list of built-in kinds, and those that
//! CustomResourceDefinitions add and take away.

use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError, RwLock},
};

use tokio::sync::watch;

use crate::resource::ResourceType;

/// Group, version and plural.
type ResourceKey = (String, String, String);

/// The served resources. Readers get `Arc`s and never hold the lock.
#[derive(Debug)]
pub(crate) struct Registry {
    inner: RwLock<Inner>,
    /// Grows whenever what is served changes.
    generation: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Inner {
    resources: BTreeMap<ResourceKey, Arc<ResourceType>>,
    /// The keys that each CustomResourceDefinition (by its name) brought.
    custom: BTreeMap<String, Vec<ResourceKey>>,
}

fn key(resource: &ResourceType) -> ResourceKey {
    (
        resource.group.clone(),
        resource.version.clone(),
        resource.plural.clone(),
    )
}

impl Registry {
    /// Serves the built-in kinds.
    pub(crate) fn new(builtin: Vec<ResourceType>) -> Self {
        let resources = builtin
            .into_iter()
            .map(|resource| (key(&resource), Arc::new(resource)))
            .collect();
        Self {
            inner: RwLock::new(Inner {
                resources,
                custom: BTreeMap::new(),
            }),
            generation: watch::Sender::new(1),
        }
    }

    /// All served resources, ordered by group, version and plural.
    pub(crate) fn all(&self) -> Vec<Arc<ResourceType>> {
        self.read().resources.values().cloned().collect()
    }

    /// One resource, if it is served.
    pub(crate) fn lookup(&self, group: &str, version: &str, plural: &str) -> Option<Arc<ResourceType>> {
        self.read()
            .resources
            .get(&(group.to_owned(), version.to_owned(), plural.to_owned()))
            .cloned()
    }

    /// The served resource of a kind.
    pub(crate) fn lookup_kind(&self, group: &str, version: &str, kind: &str) -> Option<Arc<ResourceType>> {
        let inner = self.read();
        let from = (group.to_owned(), version.to_owned(), String::new());
        inner
            .resources
            .range(from..)
            .take_while(|((g, v, _), _)| g == group && v == version)
            .map(|(_, resource)| resource)
            .find(|resource| resource.kind == kind)
            .cloned()
    }

    /// A served resource whose objects are stored under this name, in any of its versions.
    pub(crate) fn stored_as(&self, name: &str) -> Option<Arc<ResourceType>> {
        self.read()
            .resources
            .values()
            .find(|resource| resource.storage_name() == name)
            .cloned()
    }

    /// A number that grows whenever what is served changes. Documents built from [`Registry::all`] may be kept
    /// as long as it stays the same.
    pub(crate) fn generation(&self) -> u64 {
        *self.generation.borrow()
    }

    /// Wakes whenever what is served changes.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.generation.subscribe()
    }

    /// Serves what one CustomResourceDefinition defines, in place of what it defined before.
    pub(crate) fn set_custom(&self, definition: &str, resources: Vec<ResourceType>) {
        let mut inner = self.write();
        for old in inner.custom.remove(definition).unwrap_or_default() {
            inner.resources.remove(&old);
        }
        let keys: Vec<_> = resources.iter().map(key).collect();
        inner
            .resources
            .extend(keys.iter().cloned().zip(resources.into_iter().map(Arc::new)));
        if !keys.is_empty() {
            inner.custom.insert(definition.to_owned(), keys);
        }
        drop(inner);
        self.generation.send_modify(|generation| *generation += 1);
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, Inner> {
        self.inner.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, Inner> {
        self.inner.write().unwrap_or_else(PoisonError::into_inner)
    }
}
