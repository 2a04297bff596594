//! Objects that are as an apply left them, told from the version that a watch has shown.
//!
//! Reading an object before each apply costs as much as all else about it. Where the caller's store has the very
//! version that an apply made or found right, and the intent is the same, nothing can have changed.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

/// How many objects are remembered at most. Each takes some two hundred bytes; beyond it all are read once more.
const REMEMBERED: usize = 1 << 16;

/// What clones of one applier remember together.
#[derive(Clone, Debug, Default)]
pub(crate) struct AsLeft(Arc<Mutex<HashMap<Key, Left>>>);

/// Kind, namespace and name.
pub(crate) type Key = (String, String, String);

#[derive(Debug, PartialEq, Eq)]
struct Left {
    uid: Option<String>,
    version: Option<String>,
    intent: u64,
}

impl Left {
    fn of(intent: &Value, uid: Option<&str>, version: Option<&str>) -> Self {
        let mut digest = DefaultHasher::new();
        intent.to_string().hash(&mut digest);
        Self {
            uid: uid.map(str::to_owned),
            version: version.map(str::to_owned),
            intent: digest.finish(),
        }
    }
}

impl AsLeft {
    /// Whether an apply of `intent` to the version that was seen would change nothing.
    pub(crate) fn is(&self, key: &Key, intent: &Value, seen: &ObjectMeta) -> bool {
        let now = Left::of(intent, seen.uid.as_deref(), seen.resource_version.as_deref());
        now.version.is_some() && self.lock().get(key) == Some(&now)
    }

    /// Whether an object of this name has been there, as far as is remembered.
    pub(crate) fn has_been(&self, key: &Key) -> bool {
        self.lock().contains_key(key)
    }

    /// To be told of the object that an apply of `intent` made or found right.
    pub(crate) fn remember(&self, key: Key, intent: &Value, live: &Value) {
        let text = |field: &str| live["metadata"][field].as_str();
        let left = Left::of(intent, text("uid"), text("resourceVersion"));
        let mut all = self.lock();
        if all.len() >= REMEMBERED && !all.contains_key(&key) {
            all.clear();
        }
        all.insert(key, left);
    }

    /// To be told of an object that is there though no apply made it: it is looked at before the next one.
    pub(crate) fn remember_other(&self, key: Key) {
        self.lock().entry(key).or_insert(Left {
            uid: None,
            version: None,
            intent: 0,
        });
    }

    /// To be told of an object that is gone.
    pub(crate) fn forget(&self, key: &Key) {
        self.lock().remove(key);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Left>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_the_same_intent_for_the_same_version_of_the_same_object_is_as_left() {
        let key: Key = ("Service".to_owned(), "ns".to_owned(), "a".to_owned());
        let left = AsLeft::default();
        let seen = |uid: &str, version: &str| ObjectMeta {
            uid: Some(uid.to_owned()),
            resource_version: Some(version.to_owned()),
            ..ObjectMeta::default()
        };
        let intent = json!({"spec": 1});
        assert!(!left.is(&key, &intent, &seen("u", "7")) && !left.has_been(&key));
        left.remember(
            key.clone(),
            &intent,
            &json!({"metadata": {"uid": "u", "resourceVersion": "7"}}),
        );
        assert!(left.is(&key, &intent, &seen("u", "7")) && left.has_been(&key));
        assert!(!left.is(&key, &json!({"spec": 2}), &seen("u", "7")));
        assert!(!left.is(&key, &intent, &seen("u", "8")));
        assert!(!left.is(&key, &intent, &seen("v", "7")));
        assert!(!left.is(&key, &intent, &ObjectMeta::default()));
        left.forget(&key);
        assert!(!left.is(&key, &intent, &seen("u", "7")) && !left.has_been(&key));
        left.remember_other(key.clone());
        assert!(!left.is(&key, &intent, &ObjectMeta::default()) && left.has_been(&key));
    }
}
