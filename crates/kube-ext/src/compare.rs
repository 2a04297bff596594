//! Whether a live object already is what we would apply.
//!
//! The API server has written down what we applied last: `managedFields` names every field that belongs to
//! our manager, list items by their keys. The intent holds when it names exactly those fields and the live
//! object has the intended value in each. So fields of others (defaults, sidecars, replica counts) do not
//! count, a field that we no longer want does, and so does one that somebody else has taken over.
//!
//! A server does not keep everything as it was sent. What is the same to it is the same here where that is certain
//! by the place in the object; the rest is found out by applying, once (see [`crate::settled`]).

use serde_json::{Map, Value};

use crate::quantity;

/// Whether applying `intent` as `manager` would change nothing in `live`.
///
/// `subresource` is `None` or, say, `Some("status")`: what was applied through it is recorded apart.
pub(crate) fn holds(intent: &Value, live: &Value, manager: &str, subresource: Option<&str>) -> bool {
    let root = Place::root(intent);
    owned_fields(live, manager, subresource).is_some_and(|fields| object_holds(fields, intent, live, root))
}

/// Where in an object a value is: the names of the two fields that lead to it. Items of a list are where the list is.
#[derive(Clone, Copy)]
struct Place<'a> {
    parent: &'a str,
    field: &'a str,
    is_root: bool,
    /// The object is of a type that is compiled into Kubernetes. Only of these it is known what they make of values:
    /// an object of a custom resource is kept as it was sent.
    is_native: bool,
}

impl<'a> Place<'a> {
    fn root(intent: &Value) -> Self {
        let version = intent["apiVersion"].as_str().unwrap_or_default();
        let group = version.split_once('/').map_or("", |(group, _)| group);
        Self {
            parent: "",
            field: "",
            is_root: true,
            // The group of a custom resource must have a dot in its name.
            is_native: !group.contains('.'),
        }
    }

    fn at(self, field: &'a str) -> Self {
        Self {
            parent: self.field,
            field,
            is_root: false,
            ..self
        }
    }

    /// Whether the value here is an amount. No map of texts, in which names mean nothing, has objects in it: so two
    /// names are enough to know.
    fn is_quantity(self) -> bool {
        self.is_native
            && matches!(
                (self.parent, self.field),
                ("limits" | "requests" | "overhead", _)
                    | ("emptyDir", "sizeLimit")
                    | (RESOURCE_FIELD, "divisor")
            )
    }

    /// What the server puts here where nothing is said, in lists and objects that are replaced as a whole.
    fn default(self) -> Option<Value> {
        match (self.parent, self.field) {
            _ if !self.is_native => None,
            ("fieldRef", "apiVersion") => Some("v1".into()),
            (RESOURCE_FIELD, "divisor") => Some("0".into()),
            ("serviceAccountToken", "expirationSeconds") => Some(3600.into()),
            _ => None,
        }
    }

    /// As [`Place::default`], of what tells the items of a list apart.
    fn default_key(self, key: &str) -> Option<Value> {
        match (self.field, key) {
            ("ports", "protocol") if self.is_native => Some("TCP".into()),
            _ => None,
        }
    }
}

const RESOURCE_FIELD: &str = "resourceFieldRef";

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
fn is_identity(place: Place<'_>, field: &str) -> bool {
    place.is_root && matches!(field, "apiVersion" | "kind")
}

fn object_holds(fields: &Map<String, Value>, intent: &Value, live: &Value, place: Place<'_>) -> bool {
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
            .filter(|(field, _)| !is_identity(place, field))
            .all(|(field, wanted)| {
                let owned = fields.get(&format!("f:{field}"));
                if place.is_root && field == "metadata" {
                    return metadata_holds(owned, wanted, &live["metadata"], place.at(field));
                }
                match (owned, live.get(field)) {
                    (Some(owned), Some(live)) => value_holds(owned, wanted, live, place.at(field)),
                    (Some(_), None) => is_zero(wanted),
                    // An empty list of named items has no fields that could be recorded.
                    (None, None) => place.is_native && is_empty_list(wanted),
                    (None, Some(_)) => false,
                }
            })
}

/// As [`value_holds`], without the name and namespace, which are not recorded.
fn metadata_holds(owned: Option<&Value>, intent: &Value, live: &Value, place: Place<'_>) -> bool {
    let mut intent = intent.clone();
    if let Some(fields) = intent.as_object_mut() {
        fields.retain(|field, _| !matches!(field.as_str(), "name" | "namespace"));
        if fields.is_empty() {
            return owned.is_none();
        }
    }
    owned.is_some_and(|owned| value_holds(owned, &intent, live, place))
}

/// Whether the API server leaves the value out where it writes the object: its Go types do not tell `""` or an empty
/// list from nothing, though `managedFields` keeps the field. Where somebody has removed a field, it does not: so
/// one that is ours and not there was last applied as such a value, whatever its type.
fn is_zero(value: &Value) -> bool {
    match value {
        Value::String(text) => text.is_empty(),
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Null => false,
    }
}

fn is_empty_list(value: &Value) -> bool {
    value.as_array().is_some_and(Vec::is_empty)
}

fn value_holds(owned: &Value, intent: &Value, live: &Value, place: Place<'_>) -> bool {
    let Some(fields) = owned.as_object() else {
        return false;
    };
    if fields.keys().all(|field| field == ".") {
        // A scalar, a list or object that is replaced as a whole, or an empty one.
        return is_same(intent, live, place);
    }
    match intent {
        Value::Object(_) => object_holds(fields, intent, live, place),
        Value::Array(items) => list_holds(fields, items, live, place),
        _ => false,
    }
}

/// Whether a server that was sent `intent` keeps `live`. All of it is ours.
fn is_same(intent: &Value, live: &Value, place: Place<'_>) -> bool {
    match (intent, live) {
        _ if intent == live => true,
        _ if !place.is_native => false,
        (Value::String(intent), Value::String(live)) => {
            place.is_quantity() && quantity::is_same(intent, live)
        }
        (Value::Array(intent), Value::Array(live)) => {
            intent.len() == live.len()
                && intent
                    .iter()
                    .zip(live)
                    .all(|(intent, live)| is_same(intent, live, place))
        }
        (Value::Object(intent), Value::Object(live)) => {
            let wanted_is_there = intent.iter().all(|(field, wanted)| match live.get(field) {
                Some(live) => is_same(wanted, live, place.at(field)),
                // Others that may be left out may also mean something: no seconds are not none given.
                None => wanted == "" || is_empty_list(wanted),
            });
            let rest_is_default =
                live.iter()
                    .filter(|(field, _)| !intent.contains_key(*field))
                    .all(|(field, live)| {
                        let place = place.at(field);
                        place
                            .default()
                            .is_some_and(|default| is_same(&default, live, place))
                    });
            wanted_is_there && rest_is_default
        }
        _ => false,
    }
}

/// Lists of named items (`k:`) and sets (`v:`). Our items must be there, in our order.
fn list_holds(fields: &Map<String, Value>, intent: &[Value], live: &Value, place: Place<'_>) -> bool {
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
        let Some((item, owned)) = owned.iter().find(|(item, _)| item.is(wanted, place)) else {
            return false;
        };
        let Some(at) = live.iter().skip(from).position(|live| item.is(live, place)) else {
            return false;
        };
        from += at + 1;
        match item {
            Item::Keyed(_) => value_holds(owned, wanted, &live[from - 1], place),
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

    fn is(&self, item: &Value, list: Place<'_>) -> bool {
        match self {
            Self::Keyed(keys) => keys.iter().all(|(key, value)| match item.get(key) {
                Some(given) => given == value,
                None => list.default_key(key).as_ref() == Some(value),
            }),
            Self::Value(value) => item == value,
        }
    }
}

#[cfg(test)]
mod tests;
