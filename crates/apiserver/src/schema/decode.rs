//! What a decoder of a built-in kind refuses: values of the wrong type.
//!
//! Built-in kinds are Go structs in kube-apiserver; a wrong type is an error of its JSON decoder, not of validation.

use serde_json::{Map, Value};

use super::node::{Cursor, Type};

/// Drops nulls, which such a decoder takes for absent, and returns the first error. `kind` is the name of the struct.
pub(super) fn decode(schema: Cursor<'_>, value: &mut Value, kind: &str) -> Result<(), String> {
    below(schema, value, kind, &mut Vec::new())
}

fn below(schema: Cursor<'_>, value: &mut Value, name: &str, path: &mut Vec<String>) -> Result<(), String> {
    let expected = match schema.node().kind {
        None if schema.node().int_or_string => Some(Type::String).filter(|_| !value.is_number()),
        kind => kind,
    };
    if let Some(kind) = expected.filter(|kind| !fits(schema, *kind, value)) {
        let found = match value {
            Value::Null => "null",
            Value::Bool(_) => "bool",
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        let place = path.join(".");
        return Err(format!(
            "json: cannot unmarshal {found} into Go struct field {name}{}{place} of type {}",
            if place.is_empty() { "" } else { "." },
            go_type(schema, kind)
        ));
    }
    match value {
        Value::Object(fields) if !schema.is_opaque() => {
            null_texts(schema, fields);
            fields.retain(|_, value| !value.is_null());
            for (field, value) in fields.iter_mut() {
                if let Some(schema) = schema.field(field) {
                    path.push(field.clone());
                    below(schema, value, name, path)?;
                    path.pop();
                }
            }
            fields.retain(|field, value| !is_omitted(schema, field, value));
        }
        Value::Array(items) => {
            if let Some(schema) = schema.items() {
                for item in items {
                    below(schema, item, name, path)?;
                }
            }
        }
        _ => {}
    }
    Ok(())
}

/// A null in a map of texts is the empty text.
fn null_texts(schema: Cursor<'_>, fields: &mut Map<String, Value>) {
    let Some(values) = schema.additional().filter(|values| values.node().kind == Some(Type::String)) else { return };
    if values.node().format.is_none() {
        fields.values_mut().filter(|value| value.is_null()).for_each(|value| *value = "".into());
    }
}

/// Whether Go leaves a field out when it writes the object: empty lists and maps that are not required.
fn is_omitted(schema: Cursor<'_>, field: &str, value: &Value) -> bool {
    let Some(property) = schema.property(field) else { return false };
    let node = property.node();
    let empty = match value {
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty() && node.additional.is_some(),
        _ => false,
    };
    // An empty list of managed fields is a request of its own: to forget them.
    empty && field != "managedFields" && !schema.node().required.iter().any(|required| required == field)
}

/// Adds the fields that are structs by value, which Go always writes.
pub(super) fn fill(schema: Cursor<'_>, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for field in &schema.node().by_value {
                fields.entry(field.as_str()).or_insert_with(|| Value::Object(Map::new()));
            }
            for (field, value) in fields {
                if let Some(schema) = schema.field(field) {
                    fill(schema, value);
                }
            }
        }
        Value::Array(items) => {
            if let Some(schema) = schema.items() {
                items.iter_mut().for_each(|item| fill(schema, item));
            }
        }
        _ => {}
    }
}

/// The object that Go writes when nothing is set: structs by value, and null for required lists.
pub(super) fn zero(schema: Cursor<'_>) -> Value {
    let node = schema.node();
    let structs = node.by_value.iter().filter_map(|name| Some((name.clone(), zero(schema.property(name)?))));
    let lists = node.required.iter().filter_map(|name| {
        let list = schema.property(name)?.node().kind == Some(Type::Array);
        list.then(|| (name.clone(), Value::Null))
    });
    Value::Object(structs.chain(lists).collect())
}

fn fits(schema: Cursor<'_>, kind: Type, value: &Value) -> bool {
    let node = schema.node();
    match kind {
        Type::Object => value.is_object(),
        Type::Array => value.is_array(),
        Type::String => value.is_string(),
        Type::Integer => value.as_i64().is_some_and(|number| {
            node.format.as_deref() != Some("int32") || i32::try_from(number).is_ok()
        }),
        Type::Number => value.is_number(),
        Type::Boolean => value.is_boolean(),
    }
}

fn go_type(schema: Cursor<'_>, kind: Type) -> &'static str {
    match (kind, schema.node().format.as_deref()) {
        (Type::Object, _) => "struct",
        (Type::Array, _) => "slice",
        (Type::String, _) => "string",
        (Type::Integer, Some("int64")) => "int64",
        (Type::Integer, _) => "int32",
        (Type::Number, _) => "float64",
        (Type::Boolean, _) => "bool",
    }
}
