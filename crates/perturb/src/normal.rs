//! Worlds made comparable: what differs between two runs of the same history is taken out.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use crate::mirror::{Key, World};

/// What uids stand for.
pub(crate) type Names = BTreeMap<String, String>;

/// A world without uids, versions, times and addresses.
pub(crate) type Normal = BTreeMap<Key, Value>;

/// Parts of `metadata` that count changes or tell when they happened. A status says of which generation it
/// tells; that is kept, as what it means.
const COUNTERS: [&str; 6] = [
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "selfLink",
    "managedFields",
];

/// The objects of `world` but those in `without`. Of `managedFields` what belongs to `managers` is kept: who
/// else has written to an object differs with what was done to it.
pub(crate) fn normal(
    world: &World,
    without: &BTreeSet<Key>,
    names: &Names,
    managers: &BTreeSet<String>,
) -> Normal {
    world
        .iter()
        .filter(|(key, _)| !without.contains(key))
        .map(|(key, object)| (key.clone(), object_of(object, names, managers)))
        .collect()
}

fn object_of(object: &Value, names: &Names, managers: &BTreeSet<String>) -> Value {
    let generation = &object["metadata"]["generation"];
    let mut normal = value(object, names);
    if let Some(metadata) = normal.get_mut("metadata").and_then(Value::as_object_mut) {
        for name in COUNTERS {
            metadata.shift_remove(name);
        }
        metadata.insert("managedFields".to_owned(), fields_of(object, names, managers));
    }
    if let Some(status) = normal.get_mut("status") {
        relate(status, generation);
    }
    if normal["kind"] == "Service" {
        allocated(&mut normal["spec"]);
    }
    normal
}

/// Says of each generation in a status whether it is the present one.
fn relate(part: &mut Value, generation: &Value) {
    match part {
        Value::Object(fields) => {
            for (name, field) in fields {
                match name.as_str() {
                    "observedGeneration" if field == generation => *field = "present".into(),
                    "observedGeneration" => *field = "older".into(),
                    _ => relate(field, generation),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| relate(item, generation)),
        _ => {}
    }
}

/// What the server gives out of a range.
fn allocated(spec: &mut Value) {
    if spec["clusterIP"] != "None"
        && let Some(spec) = spec.as_object_mut()
    {
        spec.shift_remove("clusterIP");
        spec.shift_remove("clusterIPs");
    }
}

fn fields_of(object: &Value, names: &Names, managers: &BTreeSet<String>) -> Value {
    let entries = object["metadata"]["managedFields"].as_array();
    let mut entries: Vec<Value> = entries
        .into_iter()
        .flatten()
        .filter(|entry| {
            entry["manager"]
                .as_str()
                .is_some_and(|name| managers.contains(name))
        })
        .map(|entry| value(entry, names))
        .collect();
    for entry in entries.iter_mut().filter_map(Value::as_object_mut) {
        entry.shift_remove("time");
    }
    entries.sort_by_key(|entry| {
        ["manager", "subresource", "operation"]
            .map(|name| entry[name].as_str().unwrap_or_default().to_owned())
    });
    Value::Array(entries)
}

fn value(from: &Value, names: &Names) -> Value {
    match from {
        Value::Object(fields) => {
            // Sorted: the order of fields says nothing.
            let mut sorted: Vec<_> = fields.iter().collect();
            sorted.sort_by_key(|(name, _)| *name);
            let fields = sorted.into_iter().map(|(name, field)| {
                let mut field = value(field, names);
                if name == "conditions"
                    && let Some(conditions) = field.as_array_mut()
                {
                    conditions.sort_by_key(|condition| condition["type"].as_str().map(str::to_owned));
                }
                (key(name, names), field)
            });
            Value::Object(fields.collect::<Map<_, _>>())
        }
        Value::Array(items) => items.iter().map(|item| value(item, names)).collect(),
        Value::String(text) => match names.get(text) {
            Some(name) => Value::from(name.as_str()),
            None if is_time(text) => Value::from("a time"),
            None => from.clone(),
        },
        other => other.clone(),
    }
}

/// A field's name. Where it is a list key of `managedFields`, it may hold a uid.
fn key(name: &str, names: &Names) -> String {
    let uid = name
        .strip_prefix("k:{\"uid\":\"")
        .and_then(|rest| rest.strip_suffix("\"}"));
    match uid.and_then(|uid| names.get(uid)) {
        Some(named) => format!("k:{{\"uid\":\"{named}\"}}"),
        None => name.to_owned(),
    }
}

fn is_time(text: &str) -> bool {
    text.len() >= 20
        && text.ends_with('Z')
        && text.as_bytes()[0].is_ascii_digit()
        && text.parse::<jiff::Timestamp>().is_ok()
}

/// Where two values differ: pointers with what is on either side, at most `most`.
pub(crate) fn differences(expected: &Value, found: &Value, most: usize) -> Vec<String> {
    let mut differences = Vec::new();
    compare("", expected, found, &mut differences);
    let more = differences.len().saturating_sub(most);
    differences.truncate(most);
    if more > 0 {
        differences.push(format!("and {more} more"));
    }
    differences
}

fn compare(path: &str, expected: &Value, found: &Value, differences: &mut Vec<String>) {
    match (expected, found) {
        (Value::Object(a), Value::Object(b)) => {
            let names: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            for name in names {
                let path = format!("{path}/{}", name.replace('/', "~1"));
                match (a.get(name), b.get(name)) {
                    (Some(a), Some(b)) => compare(&path, a, b, differences),
                    (Some(a), None) => differences.push(format!("{path}: {} is missing", brief(a))),
                    (None, b) => {
                        differences.push(format!("{path}: {} is new", brief(b.unwrap_or(&Value::Null))));
                    }
                }
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (index, (a, b)) in a.iter().zip(b).enumerate() {
                compare(&format!("{path}/{index}"), a, b, differences);
            }
        }
        (a, b) if a != b => {
            differences.push(format!("{path}: {} instead of {}", brief(b), brief(a)));
        }
        _ => {}
    }
}

fn brief(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(160) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_uid_becomes_its_name_and_a_time_only_a_time() {
        let names = Names::from([("u-1".to_owned(), "Widget/work/a".to_owned())]);
        let object = json!({
            "kind": "ConfigMap",
            "metadata": {
                "uid": "u-2", "generation": 3, "ownerReferences": [{"uid": "u-1"}],
                "managedFields": [
                    {"manager": "other", "time": "2026-01-01T00:00:00Z"},
                    {"manager": "mine", "time": "2026-01-01T00:00:00Z", "fieldsV1": {"k:{\"uid\":\"u-1\"}": {}}},
                ],
            },
            "status": {"observedGeneration": 3, "conditions": [
                {"type": "B", "observedGeneration": 2},
                {"type": "A", "lastTransitionTime": "2026-01-01T00:00:00Z"},
            ]},
        });
        assert_eq!(
            object_of(&object, &names, &BTreeSet::from(["mine".to_owned()])),
            json!({
                "kind": "ConfigMap",
                "metadata": {
                    "ownerReferences": [{"uid": "Widget/work/a"}],
                    "managedFields": [{"manager": "mine", "fieldsV1": {"k:{\"uid\":\"Widget/work/a\"}": {}}}],
                },
                "status": {"observedGeneration": "present", "conditions": [
                    {"type": "A", "lastTransitionTime": "a time"},
                    {"type": "B", "observedGeneration": "older"},
                ]},
            })
        );
    }
}
