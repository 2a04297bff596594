//! What a decoder of a built-in kind refuses: values of the wrong type.
//!
//! Built-in kinds are Go structs in kube-apiserver; a wrong type is an error of its JSON decoder, not of validation.

use serde_json::{Map, Value};

use super::node::{Cursor, Type};

/// Drops nulls, which such a decoder takes for absent, and empty lists, which Go does not write. Returns the first
/// error. `kind` is the name of the struct.
pub(super) fn decode(schema: Cursor<'_>, value: &mut Value, kind: &str) -> Result<(), String> {
    below(schema, value, kind, &mut Vec::new())
}

/// `holder` is the struct that the value is a field of.
fn below(schema: Cursor<'_>, value: &mut Value, holder: &str, path: &mut Vec<String>) -> Result<(), String> {
    if !fits(schema, value) {
        let found = match value {
            Value::Null => "null",
            Value::Bool(_) => "bool",
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        return Err(format!(
            "json: cannot unmarshal {found} into Go struct field {holder}.{} of type {}",
            path.join("."),
            go_type(schema)
        ));
    }
    let holder = go_name(schema).unwrap_or(holder);
    match value {
        Value::Object(fields) if !schema.is_opaque() => {
            null_texts(schema, fields);
            fields.retain(|_, value| !value.is_null());
            for (field, value) in fields.iter_mut() {
                if let Some(field_schema) = schema.property(field) {
                    path.push(field.clone());
                    below(field_schema, value, holder, path)?;
                    path.pop();
                } else if let Some(values) = schema.additional() {
                    below(values, value, holder, path)?;
                }
            }
            fields.retain(|field, value| !is_omitted(schema, field, value));
        }
        Value::Array(items) => {
            if let Some(schema) = schema.items() {
                for item in items {
                    below(schema, item, holder, path)?;
                }
            }
        }
        _ => {}
    }
    Ok(())
}

/// A null in a map of texts is the empty text.
fn null_texts(schema: Cursor<'_>, fields: &mut Map<String, Value>) {
    let Some(values) = schema
        .additional()
        .filter(|values| values.node().kind == Some(Type::String))
    else {
        return;
    };
    if values.node().format.is_none() {
        fields
            .values_mut()
            .filter(|value| value.is_null())
            .for_each(|value| *value = "".into());
    }
}

/// Whether Go leaves a field out when it writes the object: empty lists and maps that are not required.
fn is_omitted(schema: Cursor<'_>, field: &str, value: &Value) -> bool {
    let Some(property) = schema.property(field) else {
        return false;
    };
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
                fields
                    .entry(field.as_str())
                    .or_insert_with(|| Value::Object(Map::new()));
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
    let structs = node
        .by_value
        .iter()
        .filter_map(|name| Some((name.clone(), zero(schema.property(name)?))));
    let lists = node.required.iter().filter_map(|name| {
        let list = schema.property(name)?.node().kind == Some(Type::Array);
        list.then(|| (name.clone(), Value::Null))
    });
    Value::Object(structs.chain(lists).collect())
}

fn fits(schema: Cursor<'_>, value: &Value) -> bool {
    let node = schema.node();
    if node.int_or_string {
        return value.is_string() || value.is_number();
    }
    match node.kind {
        None => true,
        Some(Type::Object) => value.is_object(),
        Some(Type::Array) => value.is_array(),
        Some(Type::String) => value.is_string(),
        Some(Type::Integer) => value
            .as_i64()
            .is_some_and(|number| node.format.as_deref() != Some("int32") || i32::try_from(number).is_ok()),
        Some(Type::Number) => value.is_number(),
        Some(Type::Boolean) => value.is_boolean(),
    }
}

/// The name of a struct: the last part of its definition's name.
fn go_name(schema: Cursor<'_>) -> Option<&str> {
    schema.node().definition.as_deref()?.rsplit('.').next()
}

/// A type as Go prints it, such as `[]v1.Container`.
fn go_type(schema: Cursor<'_>) -> String {
    let node = schema.node();
    if let Some(definition) = &node.definition {
        // `io.k8s.api.core.v1.Container`: the package is the version.
        let parts: Vec<&str> = definition.rsplitn(3, '.').collect();
        return match parts.as_slice() {
            [name, package, _] => format!("{package}.{name}"),
            _ => definition.to_string(),
        };
    }
    match (node.kind, node.format.as_deref()) {
        (None, _) => "string".to_owned(),
        (Some(Type::Object), _) => {
            format!(
                "map[string]{}",
                schema
                    .additional()
                    .map_or_else(|| "interface {}".to_owned(), go_type)
            )
        }
        (Some(Type::Array), _) => format!(
            "[]{}",
            schema.items().map_or_else(|| "interface {}".to_owned(), go_type)
        ),
        (Some(Type::String), _) => "string".to_owned(),
        (Some(Type::Integer), Some("int64")) => "int64".to_owned(),
        (Some(Type::Integer), _) => "int32".to_owned(),
        (Some(Type::Number), _) => "float64".to_owned(),
        (Some(Type::Boolean), _) => "bool".to_owned(),
    }
}
