//! The garbage collector: what must go because something else went.
//!
//! It reads the same events as any watch and keeps an index of who owns whom. Dependents go when the last
//! of their owners is gone; an owner deleted in the foreground waits for them; one that orphans them lets go
//! of them first. Namespaces and definitions that are being deleted are emptied.
//!
//! One task does it all, in order, so that the index needs no lock. It starts with everything that is stored:
//! what a crash interrupted is taken up again.

use std::{
    borrow::Cow,
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use serde_json::Value;

use super::{
    Shared,
    context::{Abort, Failed, Gate},
    delete::{DeleteOptions, FOREGROUND, ORPHAN, Propagation},
    meta::{self, OwnerReference},
    rules,
    update::is_released,
};
use crate::{
    crd,
    resource::ResourceType,
    store::{Change, Event, EventKind, Expected, Key, Stored, Watcher, Write},
};

/// An object, by where it is stored.
type Place = (Arc<str>, Key);

/// Who owns whom, and where everything is.
#[derive(Debug, Default)]
struct Index {
    /// Dependents by their owner's uid.
    dependents: HashMap<String, HashSet<Place>>,
    /// Owners' uids by dependent.
    owners: HashMap<Place, Vec<String>>,
    /// Objects by uid.
    places: HashMap<String, Place>,
}

impl Index {
    fn insert(&mut self, place: &Place, object: &Value) {
        self.remove_owners(place);
        let uids: Vec<String> = meta::owners(object).into_iter().map(|owner| owner.uid).collect();
        for uid in &uids {
            self.dependents
                .entry(uid.clone())
                .or_default()
                .insert(place.clone());
        }
        if !uids.is_empty() {
            self.owners.insert(place.clone(), uids);
        }
        self.places.insert(meta::uid(object).to_owned(), place.clone());
    }

    fn remove(&mut self, place: &Place, object: &Value) {
        self.remove_owners(place);
        self.places.remove(meta::uid(object));
    }

    fn remove_owners(&mut self, place: &Place) {
        for uid in self.owners.remove(place).unwrap_or_default() {
            if let Some(dependents) = self.dependents.get_mut(&uid) {
                dependents.remove(place);
                if dependents.is_empty() {
                    self.dependents.remove(&uid);
                }
            }
        }
    }

    fn dependents(&self, uid: &str) -> Vec<Place> {
        self.dependents.get(uid).into_iter().flatten().cloned().collect()
    }
}

/// The collector at work.
struct Collector {
    server: Arc<Shared>,
    index: Index,
    /// Objects to look at, each once.
    queue: BTreeSet<Place>,
}

/// What became of an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Solid,
    /// Being deleted in the foreground: its dependents go first.
    Waiting,
    Absent,
    /// Of a kind that is not served, or out of reach: nothing is concluded.
    Unknown,
}

/// Collects until the store is closed.
pub(super) async fn run(server: Arc<Shared>) {
    loop {
        // The watch starts before the load: what changes in between is seen twice, never missed.
        let Ok(events) = server.store.watch(None, server.store.revision()) else {
            continue;
        };
        let mut collector = Collector {
            server: server.clone(),
            index: Index::default(),
            queue: BTreeSet::new(),
        };
        collector.load();
        if !collector.follow(events).await {
            return;
        }
    }
}

impl Collector {
    fn load(&mut self) {
        for resource in self.server.store.resources() {
            for (key, stored) in self.server.store.list(&resource, None).objects {
                let place = (resource.clone(), key);
                self.index.insert(&place, &stored.object);
                self.queue.insert(place);
            }
        }
    }

    /// Works until the store closes (`false`), or more happened than history holds (`true`: start over).
    async fn follow(mut self, mut events: Watcher) -> bool {
        loop {
            while let Some(place) = self.queue.pop_first() {
                self.look_at(&place).await;
            }
            match events.next().await {
                Ok(Some(event)) => self.note(&event),
                Ok(None) => return false,
                Err(_) => return true,
            }
            while let Ok(Some(event)) = events.try_next() {
                self.note(&event);
            }
        }
    }

    fn note(&mut self, event: &Event) {
        let place = (event.resource.clone(), event.key.clone());
        if event.kind != EventKind::Deleted {
            self.index.insert(&place, &event.object);
            self.queue.insert(place);
            return;
        }
        self.index.remove(&place, &event.object);
        self.queue.extend(self.index.dependents(meta::uid(&event.object)));
        // Whoever waits for this object to go: its owners, its namespace, its definition.
        let owners = meta::owners(&event.object);
        self.queue.extend(
            owners
                .iter()
                .filter_map(|owner| self.index.places.get(&owner.uid))
                .cloned(),
        );
        if !event.key.namespace.is_empty() {
            self.queue
                .insert(("namespaces".into(), Key::new("", &event.key.namespace)));
        }
        self.queue
            .insert((crd::DEFINITIONS.into(), Key::new("", &event.resource)));
    }

    async fn look_at(&mut self, place: &Place) {
        let Some(resource) = self.server.registry.stored_as(&place.0) else {
            return;
        };
        let Some(current) = self.server.store.get(&place.0, &place.1) else {
            return;
        };
        let object = &current.object;
        let result = if !meta::is_deleting(object) {
            self.collect(&resource, place, object).await
        } else if rules::is_namespace(&resource) {
            self.empty_namespace(&resource, place).await
        } else if rules::is_definition(&resource) {
            self.empty_definition(&resource, place, object).await
        } else if meta::finalizers(object).contains(&ORPHAN) {
            self.orphan(&resource, place, object).await
        } else if meta::finalizers(object).contains(&FOREGROUND) {
            self.wait_for_dependents(&resource, place, object).await
        } else {
            Ok(())
        };
        match result {
            Ok(()) | Err(Abort::Disconnected) => {}
            // Others may delete or change the same objects; their events bring them back here.
            Err(Abort::Refused(error)) if matches!(error.reason, "NotFound" | "Conflict") => {}
            Err(Abort::Refused(error)) => {
                tracing::warn!(resource = %place.0, name = %place.1.name, error = %error.message, "garbage collection failed");
            }
        }
    }

    /// Deletes an object whose owners are all gone, and lets go of those that are gone where others stay.
    async fn collect(&mut self, resource: &ResourceType, place: &Place, object: &Value) -> Result<(), Abort> {
        let owners = meta::owners(object);
        if owners.is_empty() {
            return Ok(());
        }
        let states: Vec<Owner> = owners
            .iter()
            .map(|owner| self.state_of(owner, &place.1))
            .collect();
        if states.contains(&Owner::Unknown) {
            return Ok(());
        }
        if states.contains(&Owner::Solid) {
            let gone: Vec<&str> = owners
                .iter()
                .zip(&states)
                .filter(|(_, state)| **state != Owner::Solid)
                .map(|(owner, _)| owner.uid.as_str())
                .collect();
            if gone.is_empty() {
                return Ok(());
            }
            return self
                .change(resource, place, |object| remove_owners(object, &gone))
                .await;
        }
        let has_dependents = !self.index.dependents(meta::uid(object)).is_empty();
        let propagation = match states.contains(&Owner::Waiting) && has_dependents {
            true => Propagation::Foreground,
            false => Propagation::Background,
        };
        self.delete(resource, &place.1, object, Some(propagation)).await
    }

    fn state_of(&self, owner: &OwnerReference, dependent: &Key) -> Owner {
        let registry = &self.server.registry;
        let Some(resource) = registry.lookup_kind(&owner.group, &owner.version, &owner.kind) else {
            return Owner::Unknown;
        };
        if resource.namespaced && dependent.namespace.is_empty() {
            return Owner::Unknown;
        }
        let namespace = if resource.namespaced {
            dependent.namespace.as_str()
        } else {
            ""
        };
        let stored = self
            .server
            .store
            .get(&resource.storage_name(), &Key::new(namespace, &owner.name));
        match stored.filter(|stored| meta::uid(&stored.object) == owner.uid) {
            None => Owner::Absent,
            Some(Stored { object, .. }) => {
                let waits = meta::is_deleting(&object) && meta::finalizers(&object).contains(&FOREGROUND);
                if waits { Owner::Waiting } else { Owner::Solid }
            }
        }
    }

    /// Foreground deletion: the dependents see that their owner waits and go; it goes after those that block it.
    async fn wait_for_dependents(
        &mut self,
        resource: &ResourceType,
        place: &Place,
        object: &Value,
    ) -> Result<(), Abort> {
        let uid = meta::uid(object);
        let mut blocked = false;
        for dependent in self.index.dependents(uid) {
            let Some(stored) = self.server.store.get(&dependent.0, &dependent.1) else {
                continue;
            };
            blocked |= meta::owners(&stored.object)
                .iter()
                .any(|owner| owner.uid == uid && owner.blocks_deletion);
            if !meta::is_deleting(&stored.object) {
                self.queue.insert(dependent);
            }
        }
        if blocked {
            return Ok(());
        }
        self.change(resource, place, |object| remove_finalizer(object, FOREGROUND))
            .await
    }

    async fn orphan(&mut self, resource: &ResourceType, place: &Place, object: &Value) -> Result<(), Abort> {
        let uid = meta::uid(object);
        for dependent in self.index.dependents(uid) {
            if let Some(resource) = self.server.registry.stored_as(&dependent.0) {
                self.change(&resource, &dependent, |object| remove_owners(object, &[uid]))
                    .await?;
            }
        }
        self.change(resource, place, |object| remove_finalizer(object, ORPHAN))
            .await
    }

    async fn empty_namespace(&mut self, resource: &ResourceType, place: &Place) -> Result<(), Abort> {
        let mut empty = true;
        for name in self.server.store.resources() {
            let objects = self.server.store.list(&name, Some(&place.1.name)).objects;
            empty &= objects.is_empty();
            let Some(resource) = self.server.registry.stored_as(&name) else {
                continue;
            };
            for (key, stored) in objects {
                self.delete(&resource, &key, &stored.object, Some(Propagation::Background))
                    .await?;
            }
        }
        if !empty {
            // The deletions just made bring this namespace back here.
            return Ok(());
        }
        self.change(resource, place, |object| {
            meta::child_mut(object, "spec").shift_remove("finalizers");
        })
        .await
    }

    async fn empty_definition(
        &mut self,
        resource: &ResourceType,
        place: &Place,
        definition: &Value,
    ) -> Result<(), Abort> {
        let name = crd::defined_resource(definition);
        let objects = self.server.store.list(&name, None).objects;
        if objects.is_empty() {
            return self
                .change(resource, place, |object| remove_finalizer(object, crd::CLEANUP))
                .await;
        }
        if let Some(defined) = self.server.registry.stored_as(&name) {
            for (key, stored) in objects {
                self.delete(&defined, &key, &stored.object, None).await?;
            }
        }
        Ok(())
    }

    /// Deletes an object, unless another one took its name.
    async fn delete(
        &self,
        resource: &ResourceType,
        key: &Key,
        object: &Value,
        propagation: Option<Propagation>,
    ) -> Result<(), Abort> {
        let uid = Some(meta::uid(object).to_owned());
        let options = DeleteOptions {
            uid,
            propagation,
            ..DeleteOptions::default()
        };
        match self.server.delete(resource, key, &options, &Gate::open()).await {
            Ok(_) => Ok(()),
            Err(Abort::Refused(error)) if matches!(error.reason, "NotFound" | "Conflict") => Ok(()),
            Err(abort) => Err(abort),
        }
    }

    /// Changes a stored object, whatever its version. A change that frees a deleted object removes it.
    async fn change(
        &self,
        resource: &ResourceType,
        place: &Place,
        change: impl Fn(&mut Value),
    ) -> Result<(), Abort> {
        loop {
            let Some(current) = self.server.store.get(&place.0, &place.1) else {
                return Ok(());
            };
            let mut object = Value::clone(&current.object);
            change(&mut object);
            if object == *current.object {
                return Ok(());
            }
            let released = is_released(resource, &object);
            let write = Write {
                resource: place.0.clone(),
                key: place.1.clone(),
                expected: Expected::Version(current.revision),
                change: if released {
                    Change::Delete(object)
                } else {
                    Change::Put(object)
                },
                needs: None,
            };
            match self.server.commit(&Gate::open(), write).await {
                Ok(_) => return Ok(()),
                Err(Failed::Conflict | Failed::Missing) => {}
                Err(Failed::Abort(abort)) => return Err(abort),
            }
        }
    }
}

fn remove_finalizer(object: &mut Value, finalizer: &str) {
    let rest: Vec<Cow<'_, str>> = meta::finalizers(object)
        .into_iter()
        .filter(|name| *name != finalizer)
        .map(|name| Cow::Owned(name.to_owned()))
        .collect();
    meta::set_finalizers(object, &rest);
}

fn remove_owners(object: &mut Value, uids: &[&str]) {
    let Some(owners) = object
        .pointer_mut("/metadata/ownerReferences")
        .and_then(Value::as_array_mut)
    else {
        return;
    };
    owners.retain(|owner| {
        !owner
            .get("uid")
            .and_then(Value::as_str)
            .is_some_and(|uid| uids.contains(&uid))
    });
    if owners.is_empty() {
        meta::remove(object, "ownerReferences");
    }
}
