//! Removes what a schema does not know, and fills in what it gives by default.

use std::fmt::Write;

use serde_json::{Map, Value};

use super::node::Cursor;

/// Fields that any object inside an object has (`x-kubernetes-embedded-resource`).
const EMBEDDED: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Removes unknown fields below `value` and adds their paths to `unknown`.
pub(super) fn prune(schema: Cursor<'_>, value: &mut Value, path: &mut String, unknown: &mut Vec<String>) {
    match value {
        Value::Object(fields) => prune_fields(schema, fields, path, unknown),
        Value::Array(items) => {
            let Some(schema) = schema.items() else { return };
            for (index, item) in items.iter_mut().enumerate() {
                within(path, format_args!("[{index}]"), |path| {
                    prune(schema, item, path, unknown)
                });
            }
        }
        _ => {}
    }
}

fn prune_fields(
    schema: Cursor<'_>,
    fields: &mut Map<String, Value>,
    path: &mut String,
    unknown: &mut Vec<String>,
) {
    // A node that says nothing about its fields holds any of them in built-in kinds (`FieldsV1`), and none in custom
    // resources, whose schemas say so where they mean it.
    let node = schema.node();
    let keeps_all =
        schema.keeps_unknown() || (schema.is_opaque() && (node.kind.is_none() || node.definition.is_some()));
    let embedded = schema.node().embedded_resource;
    fields.retain(|name, value| {
        let dot = if path.is_empty() { "" } else { "." };
        within(path, format_args!("{dot}{name}"), |path| {
            match schema.field(name) {
                Some(schema) => {
                    prune(schema, value, path, unknown);
                    true
                }
                None if keeps_all || (embedded && EMBEDDED.contains(&name.as_str())) => true,
                None => {
                    unknown.push(path.clone());
                    false
                }
            }
        })
    });
}

/// Fills in the defaults of fields that are absent, or null where null is not allowed.
pub(super) fn apply_defaults(schema: Cursor<'_>, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, id) in &schema.node().properties {
                let property = schema.at(*id);
                let missing = match fields.get(name) {
                    None => true,
                    Some(Value::Null) => !property.node().nullable,
                    Some(_) => false,
                };
                if let Some(default) = property.node().default.as_ref().filter(|_| missing) {
                    fields.insert(name.clone(), default.clone());
                }
            }
            fields.retain(|name, value| match schema.field(name) {
                Some(schema) => {
                    default_item(schema, value);
                    !value.is_null() || schema.node().nullable || schema.is_opaque()
                }
                None => true,
            });
        }
        Value::Array(items) => {
            if let Some(schema) = schema.items() {
                items.iter_mut().for_each(|item| default_item(schema, item));
            }
        }
        _ => {}
    }
}

fn default_item(schema: Cursor<'_>, value: &mut Value) {
    if let (Value::Null, false, Some(default)) = (&*value, schema.node().nullable, &schema.node().default) {
        *value = default.clone();
    }
    apply_defaults(schema, value);
}

/// Calls `inner` with a path that is longer for that time.
pub(super) fn within<T>(
    path: &mut String,
    step: std::fmt::Arguments<'_>,
    inner: impl FnOnce(&mut String) -> T,
) -> T {
    let length = path.len();
    // Writing to a String cannot fail.
    let _ = path.write_fmt(step);
    let result = inner(path);
    path.truncate(length);
    result
}
