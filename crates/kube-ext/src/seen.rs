//! Objects that are as an apply left them, told from what a watch has shown.
//!
//! Reading an object before each apply costs as much as all else about it. Where the caller's store has the object
//! as an apply made it or found it right, and the intent is the same, the apply would change nothing.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// How many objects are remembered at most. Each takes some two hundred bytes; beyond it all are read once more.
const REMEMBERED: usize = 1 << 16;

/// A digest of all that an apply of an object depends on: that it is the same object, and what was applied to it.
///
/// Who changes an applied field takes it from its owner, so `managedFields` tells of every change of a value. The
/// generation tells of the order of lists besides. What else is written (a status, an annotation of others) leaves
/// both alone. A kind without generations has its resource version in their place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint(u64);

impl Fingerprint {
    /// Of an object with this metadata, all of it.
    pub fn of(metadata: &ObjectMeta) -> Self {
        let mut digest = DefaultHasher::new();
        metadata.uid.hash(&mut digest);
        metadata.deletion_timestamp.is_some().hash(&mut digest);
        match metadata.generation {
            Some(generation) => generation.hash(&mut digest),
            None => metadata.resource_version.hash(&mut digest),
        }
        for entry in metadata.managed_fields.iter().flatten() {
            let is_whole = entry.subresource.as_deref().unwrap_or_default().is_empty();
            if is_whole && entry.operation.as_deref() == Some("Apply") {
                entry.manager.hash(&mut digest);
                entry.fields_v1.as_ref().map(|fields| &fields.0).hash(&mut digest);
            }
        }
        Self(digest.finish())
    }
}

/// What clones of one applier remember together.
#[derive(Clone, Debug, Default)]
pub(crate) struct AsLeft(Arc<Mutex<HashMap<Key, Option<Left>>>>);

/// Kind, namespace and name.
pub(crate) type Key = (String, String, String);

/// What an apply left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Left {
    object: Fingerprint,
    /// A digest.
    intent: u64,
}

impl AsLeft {
    /// Whether an apply of the intent of this digest to what was seen would change nothing.
    pub(crate) fn is(&self, key: &Key, intent: u64, seen: Fingerprint) -> bool {
        let now = Left { object: seen, intent };
        self.lock().get(key) == Some(&Some(now))
    }

    /// Whether an object of this name has been there, as far as is remembered.
    pub(crate) fn has_been(&self, key: &Key) -> bool {
        self.lock().contains_key(key)
    }

    /// To be told of the object that an apply of the intent made or found right.
    pub(crate) fn remember(&self, key: Key, intent: u64, live: &ObjectMeta) {
        let object = Fingerprint::of(live);
        let mut all = self.lock();
        if all.len() >= REMEMBERED && !all.contains_key(&key) {
            all.clear();
        }
        all.insert(key, Some(Left { object, intent }));
    }

    /// To be told of an object that is there though no apply made it: it is looked at before the next one.
    pub(crate) fn remember_other(&self, key: Key) {
        self.lock().entry(key).or_insert(None);
    }

    /// To be told of an object that is gone.
    pub(crate) fn forget(&self, key: &Key) {
        self.lock().remove(key);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Option<Left>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn metadata(of: Value) -> ObjectMeta {
        serde_json::from_value(of).unwrap()
    }

    fn deployment() -> Value {
        json!({"uid": "u", "generation": 1, "resourceVersion": "7", "managedFields": [
            {"manager": "us", "operation": "Apply", "time": "2026-01-01T00:00:00Z", "fieldsV1": {"f:spec": {"f:a": {}}}},
            {"manager": "controller", "operation": "Update", "subresource": "status", "fieldsV1": {"f:status": {}}},
        ]})
    }

    #[test]
    fn what_an_apply_does_not_depend_on_is_in_no_fingerprint() {
        let before = Fingerprint::of(&metadata(deployment()));
        for (pointer, value) in [
            ("/resourceVersion", json!("8")),
            ("/annotations", json!({"theirs": "1"})),
            ("/managedFields/0/time", json!("2026-01-02T00:00:00Z")),
            ("/managedFields/1/fieldsV1", json!({"f:metadata": {}})),
            ("/managedFields/1/operation", json!("Apply")),
        ] {
            let after = Fingerprint::of(&metadata(changed(pointer, value)));
            assert_eq!(after, before, "{pointer}");
        }
        for (pointer, value) in [
            ("/uid", json!("v")),
            ("/generation", json!(2)),
            ("/generation", Value::Null),
            ("/deletionTimestamp", json!("2026-01-01T00:00:00Z")),
            ("/managedFields/0/fieldsV1", json!({"f:spec": {}})),
            ("/managedFields/0/manager", json!("them")),
            ("/managedFields/0/operation", json!("Update")),
            ("/managedFields", json!([])),
        ] {
            let after = Fingerprint::of(&metadata(changed(pointer, value)));
            assert_ne!(after, before, "{pointer}");
        }
    }

    fn changed(pointer: &str, value: Value) -> Value {
        let mut object = deployment();
        if pointer.matches('/').count() == 1 {
            object[&pointer[1..]] = value;
        } else {
            *object.pointer_mut(pointer).unwrap() = value;
        }
        object
    }

    #[test]
    fn without_generations_every_version_is_another() {
        let of = |version: &str| Fingerprint::of(&metadata(json!({"uid": "u", "resourceVersion": version})));
        assert_eq!(of("7"), of("7"));
        assert_ne!(of("7"), of("8"));
    }

    #[test]
    fn only_the_same_intent_for_the_same_object_is_as_left() {
        let key: Key = ("Service".to_owned(), "ns".to_owned(), "a".to_owned());
        let left = AsLeft::default();
        let live = |version: &str| metadata(json!({"uid": "u", "resourceVersion": version}));
        let seen = |version: &str| Fingerprint::of(&live(version));
        assert!(!left.is(&key, 1, seen("7")) && !left.has_been(&key));
        left.remember(key.clone(), 1, &live("7"));
        assert!(left.is(&key, 1, seen("7")) && left.has_been(&key));
        assert!(!left.is(&key, 2, seen("7")));
        assert!(!left.is(&key, 1, seen("8")));
        left.forget(&key);
        assert!(!left.is(&key, 1, seen("7")) && !left.has_been(&key));
        left.remember_other(key.clone());
        assert!(!left.is(&key, 1, seen("7")) && left.has_been(&key));
    }
}
