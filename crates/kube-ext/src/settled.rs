//! Which applies were found to change nothing.
//!
//! Not all that a server makes of an object can be told beforehand: what it fills in, what a webhook adds. Where an
//! apply has left the object as it was, the same apply of the same object would do so again.

use std::{
    collections::HashSet,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, Mutex, PoisonError},
};

use serde_json::Value;

/// How many are remembered at least, and half of how many at most. Each takes about sixteen bytes.
const REMEMBERED: usize = 1 << 16;

/// What clones of one applier remember together. Whatever was asked about longest ago is forgotten first, and costs
/// one needless apply when it is asked about again.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settled {
    generations: Arc<Mutex<Generations>>,
}

#[derive(Debug, Default)]
struct Generations {
    young: HashSet<u64>,
    old: HashSet<u64>,
}

impl Generations {
    fn insert(&mut self, digest: u64) {
        if self.young.len() >= REMEMBERED {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(digest);
    }
}

impl Settled {
    /// Whether applying `intent` to `live` is known to change nothing.
    pub(crate) fn knows(&self, intent: &Value, live: &Value) -> bool {
        let digest = digest(intent, live);
        let mut generations = self.generations.lock().unwrap_or_else(PoisonError::into_inner);
        if generations.young.contains(&digest) {
            return true;
        }
        let known = generations.old.contains(&digest);
        if known {
            generations.insert(digest);
        }
        known
    }

    /// To be told of every apply of `intent` that made `after` of `before`.
    pub(crate) fn learn(&self, intent: &Value, before: &Value, after: &Value) {
        let digest = digest(intent, before);
        let is_unchanged = before["metadata"]["resourceVersion"] == after["metadata"]["resourceVersion"]
            || digest == self::digest(intent, after);
        if is_unchanged {
            let mut generations = self.generations.lock().unwrap_or_else(PoisonError::into_inner);
            generations.insert(digest);
        }
    }
}

/// A digest of an intent and of what of an object an apply of it depends on or can change. The uid is part of it.
fn digest(intent: &Value, live: &Value) -> u64 {
    let mut live = live.clone();
    if let Some(object) = live.as_object_mut() {
        object.shift_remove("status");
    }
    if let Some(metadata) = live["metadata"].as_object_mut() {
        metadata.shift_remove("resourceVersion");
        // Where others note things all the time.
        if let Some(notes) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            notes.retain(|name, _| !intent["metadata"]["annotations"][name].is_null());
            if notes.is_empty() {
                metadata.shift_remove("annotations");
            }
        }
        if let Some(entries) = metadata.get_mut("managedFields").and_then(Value::as_array_mut) {
            entries.retain(|entry| entry["subresource"] != "status");
            for entry in entries.iter_mut().filter_map(Value::as_object_mut) {
                entry.shift_remove("time");
            }
        }
    }
    let mut digest = DefaultHasher::new();
    intent.to_string().hash(&mut digest);
    live.to_string().hash(&mut digest);
    digest.finish()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn live(version: &str) -> Value {
        json!({
            "metadata": {"uid": "1", "resourceVersion": version, "annotations": {"ours": "x", "theirs": version}, "managedFields": [
                {"manager": "us", "time": version, "fieldsV1": {"f:spec": {}}},
                {"manager": "them", "subresource": "status", "fieldsV1": {version: {}}}
            ]},
            "spec": {"a": 1},
            "status": {"seen": version}
        })
    }

    #[test]
    fn an_apply_that_changed_nothing_is_remembered_through_what_others_report() {
        for after in [live("7"), live("8")] {
            let settled = Settled::default();
            let intent = json!({"metadata": {"annotations": {"ours": "x"}}, "spec": {"a": 1.0}});
            assert!(!settled.knows(&intent, &live("7")));
            settled.learn(&intent, &live("7"), &after);
            assert!(settled.clone().knows(&intent, &live("9")));
            assert!(!settled.knows(&json!({"spec": {"a": 2}}), &live("9")));
        }
    }

    #[test]
    fn every_change_of_the_object_itself_is_news() {
        let intent = json!({"metadata": {"annotations": {"ours": "x"}}});
        let settled = Settled::default();
        settled.learn(&intent, &live("7"), &live("7"));
        for (pointer, value) in [
            ("/spec/a", json!(2)),
            ("/metadata/uid", json!("2")),
            ("/metadata/annotations/ours", json!("y")),
            ("/metadata/managedFields/0/manager", json!("them")),
            ("/metadata/managedFields/0/fieldsV1", json!({})),
        ] {
            let mut changed = live("7");
            *changed.pointer_mut(pointer).unwrap() = value;
            assert!(!settled.knows(&intent, &changed), "{pointer}");
        }
    }

    #[test]
    fn an_apply_that_changed_something_teaches_nothing() {
        let (settled, intent) = (Settled::default(), json!({}));
        let mut after = live("8");
        after["spec"]["a"] = json!(2);
        settled.learn(&intent, &live("7"), &after);
        assert!(!settled.knows(&intent, &live("7")));
        assert!(!settled.knows(&intent, &after));
    }

    #[test]
    fn what_is_remembered_is_bounded_and_what_is_asked_about_stays() {
        let settled = Settled::default();
        let numbered = |number: usize| (json!(number), json!({"metadata": {"resourceVersion": "1"}}));
        for number in 0..3 * REMEMBERED {
            let (intent, live) = numbered(number);
            settled.learn(&intent, &live, &live);
            if number % 1000 == 0 {
                let (asked, live) = numbered(0);
                assert!(settled.knows(&asked, &live), "after {number}");
            }
        }
        let generations = settled.generations.lock().unwrap();
        assert!(generations.young.len() + generations.old.len() <= 2 * REMEMBERED);
        drop(generations);
        let (intent, live) = numbered(1);
        assert!(!settled.knows(&intent, &live));
    }
}
