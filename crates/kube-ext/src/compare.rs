//! Whether a live object already is what we would apply.
//!
//! The API server has written down what we applied last: `managedFields` names every field that belongs to
//! our manager, list items by their keys. The intent holds when it names exactly those fields and the live
//! object has the intended value in each. So fields of others (defaults, sidecars, replica counts) do not
//! count, a field that we no longer want does, and so does one that somebody else has taken over.

use serde_json::{Map, Value};

/// Whether applying `intent` as `manager` would change nothing in `live`.
///
/// `subresource` is `None` or, say, `Some("status")`: what was applied through it is recorded apart.
pub(crate) fn holds(intent: &Value, live: &Value, manager: &str, subresource: Option<&str>) -> bool {
    owned_fields(live, manager, subresource).is_some_and(|fields| object_holds(fields, intent, live, true))
}

fn owned_fields<'a>(
    live: &'a Value,
    manager: &str,
    subresource: Option<&str>,
) -> Option<&'a Map<String, Value>> {
    let entries = live["metadata"]["managedFields"].as_array()?;
    let ours = entries.iter().find(|entry| {
        entry["manager"] == manager
            && entry["operation"] == "Apply"
            && entry["subresource"].as_str().filter(|name| !name.is_empty()) == subresource
    })?;
    ours["fieldsV1"].as_object()
}

/// What identifies an object belongs to nobody and is not recorded.
fn is_identity(path_is_root: bool, field: &str) -> bool {
    path_is_root && matches!(field, "apiVersion" | "kind")
}

fn object_holds(fields: &Map<String, Value>, intent: &Value, live: &Value, root: bool) -> bool {
    let (Some(intent), Some(live)) = (intent.as_object(), live.as_object()) else {
        return false;
    };
    let still_wanted = fields
        .keys()
        .filter_map(|field| field.strip_prefix("f:"))
        .all(|field| intent.contains_key(field));
    still_wanted
        && intent
            .iter()
            .filter(|(field, _)| !is_identity(root, field))
            .all(|(field, wanted)| {
                if root && field == "metadata" {
                    return metadata_holds(fields.get("f:metadata"), wanted, &live["metadata"]);
                }
                fields.get(&format!("f:{field}")).is_some_and(|owned| {
                    let live = live.get(field);
                    live.is_some_and(|live| value_holds(owned, wanted, live))
                        || live.is_none() && is_zero(wanted)
                })
            })
}

/// As [`value_holds`], without the name and namespace, which are not recorded.
fn metadata_holds(owned: Option<&Value>, intent: &Value, live: &Value) -> bool {
    let mut intent = intent.clone();
    if let Some(fields) = intent.as_object_mut() {
        fields.retain(|field, _| !matches!(field.as_str(), "name" | "namespace"));
        if fields.is_empty() {
            return owned.is_none();
        }
    }
    owned.is_some_and(|owned| value_holds(owned, &intent, live))
}

/// Whether the API server leaves the value out where it writes the object: its Go types do not tell `""` from
/// nothing, though `managedFields` keeps the field.
fn is_zero(value: &Value) -> bool {
    match value {
        Value::String(text) => text.is_empty(),
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::Null | Value::Array(_) | Value::Object(_) => false,
    }
}

fn value_holds(owned: &Value, intent: &Value, live: &Value) -> bool {
    let Some(fields) = owned.as_object() else {
        return false;
    };
    if fields.keys().all(|field| field == ".") {
        // A scalar, a list or object that is replaced as a whole, or an empty one.
        return intent == live;
    }
    match intent {
        Value::Object(_) => object_holds(fields, intent, live, false),
        Value::Array(items) => list_holds(fields, items, live),
        _ => false,
    }
}

/// Lists of named items (`k:`) and sets (`v:`). Our items must be there, in our order.
fn list_holds(fields: &Map<String, Value>, intent: &[Value], live: &Value) -> bool {
    let Some(live) = live.as_array() else {
        return false;
    };
    let owned: Vec<(Item, &Value)> = fields
        .iter()
        .filter_map(|(field, owned)| Some((Item::parse(field)?, owned)))
        .collect();
    if owned.len() != intent.len() {
        return false;
    }
    let mut from = 0;
    intent.iter().all(|wanted| {
        let Some((item, owned)) = owned.iter().find(|(item, _)| item.is(wanted)) else {
            return false;
        };
        let Some(at) = live.iter().skip(from).position(|live| item.is(live)) else {
            return false;
        };
        from += at + 1;
        match item {
            Item::Keyed(_) => value_holds(owned, wanted, &live[from - 1]),
            Item::Value(_) => true,
        }
    })
}

/// An item of a list as `managedFields` names it.
enum Item {
    Keyed(Map<String, Value>),
    Value(Value),
}

impl Item {
    fn parse(field: &str) -> Option<Self> {
        if let Some(keys) = field.strip_prefix("k:") {
            return serde_json::from_str(keys).ok().map(Self::Keyed);
        }
        field
            .strip_prefix("v:")
            .and_then(|value| serde_json::from_str(value).ok())
            .map(Self::Value)
    }

    fn is(&self, item: &Value) -> bool {
        match self {
            Self::Keyed(keys) => keys.iter().all(|(key, value)| item.get(key) == Some(value)),
            Self::Value(value) => item == value,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const US: &str = "us";

    /// A Service-like object as a server returns it: with fields of its own and those of others.
    fn live() -> Value {
        json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {
                "name": "a", "namespace": "n", "uid": "1", "resourceVersion": "7",
                "labels": {"app": "a", "theirs": "x"},
                "managedFields": [
                    {"manager": "them", "operation": "Update", "fieldsV1": {"f:metadata": {"f:labels": {"f:theirs": {}}}}},
                    {"manager": US, "operation": "Apply", "fieldsV1": {
                        "f:metadata": {"f:labels": {"f:app": {}}},
                        "f:spec": {
                            "f:selector": {},
                            "f:ports": {
                                "k:{\"port\":8000,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}, "f:protocol": {}, "f:name": {}},
                                "k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}, "f:protocol": {}, "f:name": {}}
                            }
                        }
                    }},
                    {"manager": US, "operation": "Apply", "subresource": "status", "fieldsV1": {"f:status": {"f:phase": {}}}}
                ]
            },
            "spec": {
                "clusterIP": "10.0.0.1",
                "selector": {"app": "a"},
                "ports": [
                    {"port": 8000, "protocol": "TCP", "name": "http", "targetPort": 8000},
                    {"port": 80, "protocol": "TCP", "name": "short", "targetPort": 80}
                ]
            },
            "status": {"phase": "Ready", "theirs": 1}
        })
    }

    fn intent() -> Value {
        json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "a", "namespace": "n", "labels": {"app": "a"}},
            "spec": {
                "selector": {"app": "a"},
                "ports": [
                    {"port": 8000, "protocol": "TCP", "name": "http"},
                    {"port": 80, "protocol": "TCP", "name": "short"}
                ]
            }
        })
    }

    #[test]
    fn what_was_applied_holds_whatever_others_added() {
        assert!(holds(&intent(), &live(), US, None));
        let status = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "status": {"phase": "Ready"}});
        assert!(holds(&status, &live(), US, Some("status")));
    }

    /// As a real server keeps `{"name": "EMPTY", "value": ""}` in a container's `env`.
    #[test]
    fn an_empty_value_holds_where_the_server_leaves_it_out() {
        let live = json!({
            "metadata": {"managedFields": [{"manager": US, "operation": "Apply", "fieldsV1": {"f:env": {
                "k:{\"name\":\"EMPTY\"}": {".": {}, "f:name": {}, "f:value": {}}
            }}}]},
            "env": [{"name": "EMPTY"}]
        });
        let intent = |value: &str| json!({"env": [{"name": "EMPTY", "value": value}]});
        assert!(holds(&intent(""), &live, US, None));
        assert!(!holds(&intent("x"), &live, US, None));
    }

    #[test]
    fn it_does_not_hold_for_another_manager() {
        assert!(!holds(&intent(), &live(), "somebody", None));
    }

    /// Each case changes the intent or the live object at a JSON pointer; `null` removes.
    #[test]
    fn every_difference_is_seen() {
        let cases = [
            ("a changed value", "intent", "/spec/ports/1/name", json!("other")),
            (
                "a value changed by hand",
                "live",
                "/spec/ports/1/name",
                json!("other"),
            ),
            (
                "a field removed by hand",
                "live",
                "/metadata/labels/app",
                Value::Null,
            ),
            (
                "a field no longer wanted",
                "intent",
                "/spec/ports/0/name",
                Value::Null,
            ),
            (
                "a whole block no longer wanted",
                "intent",
                "/metadata/labels",
                Value::Null,
            ),
            ("an item no longer wanted", "intent", "/spec/ports/1", Value::Null),
            (
                "a field not yet ours",
                "intent",
                "/spec/clusterIP",
                json!("10.0.0.1"),
            ),
            (
                "an atomic object with more in it",
                "live",
                "/spec/selector/more",
                json!("x"),
            ),
            (
                "an atomic object with less",
                "intent",
                "/spec/selector",
                json!({}),
            ),
            ("a field that is gone", "live", "/spec/selector", Value::Null),
        ];
        for (what, side, pointer, value) in cases {
            let (mut intent, mut live) = (intent(), live());
            let target = if side == "intent" { &mut intent } else { &mut live };
            let (parent, key) = pointer.rsplit_once('/').unwrap();
            match (target.pointer_mut(parent).unwrap(), value) {
                (Value::Object(object), Value::Null) => drop(object.remove(key)),
                (Value::Array(items), Value::Null) => drop(items.remove(key.parse().unwrap())),
                (parent, value) => parent[key] = value,
            }
            assert!(!holds(&intent, &live, US, None), "{what}");
        }
    }

    #[test]
    fn order_counts_for_our_items_only() {
        let mut reordered = intent();
        reordered["spec"]["ports"].as_array_mut().unwrap().reverse();
        assert!(!holds(&reordered, &live(), US, None));
        let mut injected = live();
        injected["spec"]["ports"]
            .as_array_mut()
            .unwrap()
            .insert(1, json!({"port": 9, "protocol": "TCP"}));
        assert!(holds(&intent(), &injected, US, None));
    }
}
