//! The fields that the controllers own in an object, and other values for them.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

/// The fields of `object` that `managers` own, outside of its status, in the syntax of `managedFields`:
/// names, list keys (`k:…`) and set members (`v:…`), separated by `/` (escaped as in a JSON pointer).
///
/// Owner references are left out: who takes them away takes the object away, and it is his then.
pub(crate) fn owned(object: &Value, managers: &BTreeSet<String>) -> BTreeSet<String> {
    let entries = object["metadata"]["managedFields"].as_array();
    let mut fields = BTreeSet::new();
    for entry in entries.into_iter().flatten() {
        let ours = entry["manager"]
            .as_str()
            .is_some_and(|name| managers.contains(name));
        if ours && entry.get("subresource").is_none() {
            walk("", &entry["fieldsV1"], &mut fields);
        }
    }
    fields.retain(|field| !field.starts_with("metadata/ownerReferences"));
    fields
}

fn walk(path: &str, node: &Value, fields: &mut BTreeSet<String>) {
    for (name, below) in node.as_object().into_iter().flatten() {
        if name == "." {
            if !path.is_empty() {
                fields.insert(path.to_owned());
            }
            continue;
        }
        let segment = name.strip_prefix("f:").unwrap_or(name);
        let segment = segment.replace('~', "~0").replace('/', "~1");
        let path = if path.is_empty() {
            segment
        } else {
            format!("{path}/{segment}")
        };
        match below.as_object() {
            Some(below) if !below.is_empty() => {}
            _ => {
                fields.insert(path.clone());
            }
        }
        walk(&path, below, fields);
    }
}

/// Whether a field says which item of its list this is: another value makes another item, which is nobody's
/// but his who wrote it.
pub(crate) fn is_key(field: &str) -> bool {
    let mut segments = segments(field);
    match (segments.pop(), segments.pop()) {
        (Some(Segment::Name(name)), Some(Segment::Item(keys))) => keys.contains_key(&name),
        _ => false,
    }
}

/// One step on the way to a field.
enum Segment {
    Name(String),
    /// The item of a list that has these keys.
    Item(Map<String, Value>),
    /// The member of a set.
    Member(Value),
}

fn segments(field: &str) -> Vec<Segment> {
    let segments = field.split('/').map(|segment| {
        let segment = segment.replace("~1", "/").replace("~0", "~");
        if let Some(keys) = segment.strip_prefix("k:")
            && let Ok(keys) = serde_json::from_str(keys)
        {
            return Segment::Item(keys);
        }
        if let Some(member) = segment.strip_prefix("v:")
            && let Ok(member) = serde_json::from_str(member)
        {
            return Segment::Member(member);
        }
        Segment::Name(segment)
    });
    segments.collect()
}

impl Segment {
    fn is(&self, item: &Value) -> bool {
        match self {
            Self::Name(_) => false,
            Self::Item(keys) => keys.iter().all(|(name, key)| item.get(name) == Some(key)),
            Self::Member(member) => item == member,
        }
    }

    fn of<'a>(&self, parent: &'a Value) -> Option<&'a Value> {
        match self {
            Self::Name(name) => parent.get(name),
            _ => parent.as_array()?.iter().find(|item| self.is(item)),
        }
    }

    fn of_mut<'a>(&self, parent: &'a mut Value) -> Option<&'a mut Value> {
        match self {
            Self::Name(name) => parent.get_mut(name),
            _ => parent.as_array_mut()?.iter_mut().find(|item| self.is(item)),
        }
    }
}

/// The value of the field.
pub(crate) fn get<'a>(object: &'a Value, field: &str) -> Option<&'a Value> {
    segments(field)
        .iter()
        .try_fold(object, |value, segment| segment.of(value))
}

/// Sets a field that is there.
pub(crate) fn set(object: &mut Value, field: &str, to: Value) {
    let place = segments(field)
        .iter()
        .try_fold(object, |value, segment| segment.of_mut(value));
    if let Some(place) = place {
        *place = to;
    }
}

/// Takes a field away. Says whether it was there.
pub(crate) fn remove(object: &mut Value, field: &str) -> bool {
    let segments = segments(field);
    let Some((last, way)) = segments.split_last() else {
        return false;
    };
    let Some(parent) = way
        .iter()
        .try_fold(object, |value, segment| segment.of_mut(value))
    else {
        return false;
    };
    match (last, parent) {
        (Segment::Name(name), Value::Object(fields)) => fields.shift_remove(name).is_some(),
        (last, Value::Array(items)) => {
            let before = items.len();
            items.retain(|item| !last.is(item));
            items.len() < before
        }
        _ => false,
    }
}

/// An object that has nothing but this field, for a server-side apply.
pub(crate) fn only(object: &Value, field: &str, value: Value) -> Value {
    let built = segments(field)
        .into_iter()
        .rev()
        .fold(value, |below, segment| match segment {
            Segment::Name(name) => json!({ name: below }),
            Segment::Member(_) => json!([below]),
            Segment::Item(keys) => {
                let mut item = Value::Object(keys);
                merge(&mut item, below);
                json!([item])
            }
        });
    let mut only = json!({
        "apiVersion": object["apiVersion"],
        "kind": object["kind"],
        "metadata": {"name": object["metadata"]["name"]},
    });
    if let Some(namespace) = object["metadata"].get("namespace") {
        only["metadata"]["namespace"] = namespace.clone();
    }
    merge(&mut only, built);
    only
}

fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (name, value) in from {
                match into.get_mut(&name) {
                    Some(there) => merge(there, value),
                    None => {
                        into.insert(name, value);
                    }
                }
            }
        }
        (into, from) => *into = from,
    }
}

/// Other values for a field, in the order in which they are tried: a server takes not every one.
pub(crate) fn others(value: &Value) -> Vec<Value> {
    match value {
        Value::String(text) => {
            let mut others = vec![json!(format!("{text}x")), json!("changed"), json!("7")];
            others.extend(WORDS.iter().map(|word| json!(word)));
            others.retain(|other| other != value);
            others
        }
        Value::Number(number) => vec![json!(number.as_i64().unwrap_or_default() + 1)],
        Value::Bool(yes) => vec![json!(!yes)],
        Value::Array(items) => {
            let mut shorter = items.clone();
            shorter.pop();
            let mut longer = items.clone();
            longer.push(json!("changed"));
            vec![Value::Array(longer), Value::Array(shorter)]
        }
        Value::Object(fields) => {
            let mut more = fields.clone();
            more.insert("changed".to_owned(), json!("changed"));
            vec![Value::Object(more)]
        }
        Value::Null => Vec::new(),
    }
}

/// Values of enumerations in the core types.
const WORDS: [&str; 10] = [
    "Always",
    "Never",
    "IfNotPresent",
    "ClusterIP",
    "NodePort",
    "UDP",
    "TCP",
    "Recreate",
    "HTTPS",
    "Default",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn object() -> Value {
        json!({
            "apiVersion": "v1", "kind": "Thing",
            "metadata": {
                "name": "a",
                "labels": {"x.io/y": "z"},
                "managedFields": [
                    {"manager": "other", "fieldsV1": {"f:data": {}}},
                    {"manager": "mine", "subresource": "status", "fieldsV1": {"f:status": {}}},
                    {"manager": "mine", "fieldsV1": {
                        "f:metadata": {"f:labels": {"f:x.io/y": {}}, "f:ownerReferences": {"k:{\"uid\":\"u\"}": {}}},
                        "f:spec": {"f:ports": {"k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:name": {}}}},
                    }},
                ],
            },
            "spec": {"ports": [{"port": 80, "protocol": "TCP", "name": "http"}]},
        })
    }

    #[test]
    fn owned_fields_are_found_changed_and_removed() {
        let port = r#"spec/ports/k:{"port":80,"protocol":"TCP"}"#;
        let name = format!("{port}/name");
        let fields = owned(&object(), &BTreeSet::from(["mine".to_owned()]));
        let expected = ["metadata/labels/x.io~1y", port, &name].map(str::to_owned);
        assert_eq!(fields, BTreeSet::from(expected));

        assert!(is_key(&format!("{port}/protocol")) && !is_key(&name) && !is_key(port));

        let mut changed = object();
        assert_eq!(get(&changed, &name), Some(&json!("http")));
        set(&mut changed, &name, json!("other"));
        assert_eq!(get(&changed, "metadata/labels/x.io~1y"), Some(&json!("z")));
        assert!(remove(&mut changed, "metadata/labels/x.io~1y"));
        assert_eq!(changed["spec"]["ports"][0]["name"], "other");
        assert!(remove(&mut changed, port) && !remove(&mut changed, port));
        assert_eq!(
            only(&object(), &name, json!("other")),
            json!({
                "apiVersion": "v1", "kind": "Thing", "metadata": {"name": "a"},
                "spec": {"ports": [{"port": 80, "protocol": "TCP", "name": "other"}]},
            })
        );
    }
}
