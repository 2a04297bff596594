//! What a decoder of a built-in kind refuses: values of the wrong type.
//!
//! Built-in kinds are Go structs in kube-apiserver; a wrong type is an error of its JSON decoder, not of validation.

use serde_json::Value;

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
            fields.retain(|_, value| !value.is_null());
            for (field, value) in fields {
                if let Some(schema) = schema.field(field) {
                    path.push(field.clone());
                    below(schema, value, name, path)?;
                    path.pop();
                }
            }
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
