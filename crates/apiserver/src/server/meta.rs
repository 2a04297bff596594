//! Reading and writing the `metadata` of objects that are only JSON.

use std::borrow::Cow;

use serde_json::{Map, Value};

/// The text of a metadata field; empty where it is absent.
pub(crate) fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    get(object, field).and_then(Value::as_str).unwrap_or_default()
}

pub(crate) fn get<'a>(object: &'a Value, field: &str) -> Option<&'a Value> {
    object.get("metadata")?.get(field)
}

pub(crate) fn name(object: &Value) -> &str {
    text(object, "name")
}

pub(crate) fn namespace(object: &Value) -> &str {
    text(object, "namespace")
}

pub(crate) fn uid(object: &Value) -> &str {
    text(object, "uid")
}

pub(crate) fn is_deleting(object: &Value) -> bool {
    get(object, "deletionTimestamp").is_some_and(|value| !value.is_null())
}

/// The generation; 0 where the kind has none.
pub(crate) fn generation(object: &Value) -> i64 {
    get(object, "generation")
        .and_then(Value::as_i64)
        .unwrap_or_default()
}

pub(crate) fn finalizers(object: &Value) -> Vec<&str> {
    strings(get(object, "finalizers"))
}

/// The texts of a list; other items are left out.
pub(crate) fn strings(list: Option<&Value>) -> Vec<&str> {
    list.and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect()
}

pub(crate) fn labels(object: &Value) -> Option<&Map<String, Value>> {
    get(object, "labels").and_then(Value::as_object)
}

/// The metadata of an object, made if it is missing or not an object.
pub(crate) fn of_mut(object: &mut Value) -> &mut Map<String, Value> {
    child_mut(object, "metadata")
}

/// A field that is an object, made if it is missing or something else.
pub(crate) fn child_mut<'a>(object: &'a mut Value, field: &str) -> &'a mut Map<String, Value> {
    let fields = map_mut(object);
    map_mut(fields.entry(field).or_insert(Value::Null))
}

fn map_mut(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(fields) => fields,
        // Made an object just above.
        _ => unreachable!("the value is an object"),
    }
}

pub(crate) fn set(object: &mut Value, field: &str, value: impl Into<Value>) {
    of_mut(object).insert(field.to_owned(), value.into());
}

pub(crate) fn remove(object: &mut Value, field: &str) -> Option<Value> {
    object.get_mut("metadata")?.as_object_mut()?.shift_remove(field)
}

/// Sets the finalizers; an empty list removes the field.
pub(crate) fn set_finalizers(object: &mut Value, finalizers: &[Cow<'_, str>]) {
    if finalizers.is_empty() {
        remove(object, "finalizers");
    } else {
        set(
            object,
            "finalizers",
            finalizers
                .iter()
                .map(|name| Value::from(name.as_ref()))
                .collect::<Vec<_>>(),
        );
    }
}

/// An entry of `metadata.ownerReferences`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OwnerReference {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    /// Whether the owner's foreground deletion waits for this object.
    pub(crate) blocks_deletion: bool,
}

/// The owners of an object.
pub(crate) fn owners(object: &Value) -> Vec<OwnerReference> {
    let field = |entry: &Value, name: &str| {
        entry
            .get(name)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    get(object, "ownerReferences")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .map(|entry| {
            let api_version = field(entry, "apiVersion");
            let (group, version) = split_api_version(&api_version);
            OwnerReference {
                group: group.to_owned(),
                version: version.to_owned(),
                kind: field(entry, "kind"),
                name: field(entry, "name"),
                uid: field(entry, "uid"),
                blocks_deletion: entry.get("blockOwnerDeletion") == Some(&Value::Bool(true)),
            }
        })
        .collect()
}

/// `group/version` taken apart; the core group is empty.
pub(crate) fn split_api_version(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}
