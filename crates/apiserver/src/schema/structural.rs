//! Whether the schema of a CustomResourceDefinition is structural: each value has one type that does not
//! depend on others, so that pruning, defaulting and merging are defined (KEP-1979).

use regex::Regex;
use serde_json::Value;

use super::FieldError;

const TYPES: [&str; 6] = ["object", "array", "string", "integer", "number", "boolean"];

/// What keeps `schema` from being structural; paths are relative to it.
pub(super) fn check(schema: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if schema["type"] != "object" {
        let shown = &schema["type"];
        errors.push(FieldError::invalid("type", shown, "must be object at the root"));
    }
    walk(schema, "", &mut errors);
    errors
}

fn walk(schema: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let at = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    let Some(map) = schema.as_object() else {
        errors.push(FieldError::invalid(path, schema, "must be a schema"));
        return;
    };
    let flag = |name: &str| map.get(name).and_then(Value::as_bool).unwrap_or(false);
    let free = flag("x-kubernetes-int-or-string") || flag("x-kubernetes-preserve-unknown-fields");
    match map.get("type") {
        Some(Value::String(kind)) if TYPES.contains(&kind.as_str()) => {}
        Some(other) if other != "" => {
            errors.push(FieldError::not_supported(at("type"), other, &TYPES.map(Value::from)));
        }
        _ if free => {}
        _ => errors.push(FieldError::required(at("type"), "must not be empty for specified object fields")),
    }
    for name in ["$ref", "$schema", "definitions", "dependencies", "patternProperties", "additionalItems"] {
        if map.contains_key(name) {
            errors.push(FieldError {
                field: at(name),
                reason: "FieldValueForbidden",
                message: "Forbidden: not allowed in a structural schema".to_owned(),
            });
        }
    }
    if schema["type"] == "array" && !map.contains_key("items") {
        errors.push(FieldError::required(at("items"), "must be specified"));
    }
    if let Some(pattern) = schema["pattern"].as_str()
        && let Err(error) = Regex::new(pattern)
    {
        errors.push(FieldError::invalid(at("pattern"), &schema["pattern"], error));
    }
    if schema["x-kubernetes-list-type"] == "map" {
        list_map(schema, &at, errors);
    }
    for (name, child) in map.get("properties").and_then(Value::as_object).into_iter().flatten() {
        walk(child, &at(&format!("properties[{name}]")), errors);
    }
    for name in ["items", "additionalProperties"] {
        if let Some(child) = map.get(name).filter(|child| !child.is_boolean()) {
            walk(child, &at(name), errors);
        }
    }
}

/// The keys of a list map are scalar fields that every item has.
fn list_map(schema: &Value, at: &impl Fn(&str) -> String, errors: &mut Vec<FieldError>) {
    let keys = schema["x-kubernetes-list-map-keys"].as_array().cloned().unwrap_or_default();
    if keys.is_empty() {
        errors.push(FieldError::required(at("x-kubernetes-list-map-keys"), "must not be empty for list type map"));
    }
    let item = &schema["items"];
    for key in keys.iter().filter_map(Value::as_str) {
        let field = &item["properties"][key];
        let required = item["required"].as_array().is_some_and(|required| required.iter().any(|name| name == key));
        if !required && field.get("default").is_none() {
            let detail = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
            errors.push(FieldError::required(at(&format!("items.properties[{key}].default")), detail));
        }
    }
}
