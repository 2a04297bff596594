//! From the JSON of an OpenAPI schema to the tree.
//!
//! Reads what [`super::structural`] has checked; of built-in kinds also `$ref` and the `x-kubernetes-patch-*`
//! extensions.

use regex::Regex;
use serde_json::Value;

use super::node::{Kind, Limits, ListType, Node};

/// Where documents for clients keep their schemas.
const COMPONENTS: &str = "#/components/schemas/";

/// The node that `schema` describes.
pub(super) fn node(schema: &Value, builtin: bool) -> Node {
    if let Some(reference) = schema["$ref"].as_str() {
        let name = reference.strip_prefix(COMPONENTS).unwrap_or(reference);
        let mut node = Node::reference(name);
        node.default = schema.get("default").cloned();
        return node;
    }
    let flag = |name: &str| schema[name].as_bool().unwrap_or(false);
    let text = |name: &str| schema[name].as_str();
    let child = |name: &str| schema.get(name).filter(|child| child.is_object()).map(|child| Box::new(node(child, builtin)));
    let int_or_string = flag("x-kubernetes-int-or-string") || text("format") == Some("int-or-string");
    let kind = match text("type") {
        _ if int_or_string => Kind::IntOrString,
        Some("object") => Kind::Object,
        Some("array") => Kind::Array,
        Some("string") => Kind::String,
        Some("integer") => Kind::Integer,
        Some("number") => Kind::Number,
        Some("boolean") => Kind::Boolean,
        _ => Kind::Any,
    };
    let properties: std::collections::BTreeMap<String, Node> = schema["properties"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, child)| (name.clone(), node(child, builtin)))
        .collect();
    let additional = child("additionalProperties");
    // An object of a built-in kind without fields is free-form JSON; of a custom resource, it is empty.
    let free = builtin && kind == Kind::Object && properties.is_empty() && additional.is_none();
    let any = schema["additionalProperties"] == true || (builtin && kind == Kind::Any);
    Node {
        reference: None,
        kind,
        additional,
        items: child("items"),
        required: strings(&schema["required"]),
        default: schema.get("default").cloned(),
        nullable: flag("nullable"),
        preserve_unknown: flag("x-kubernetes-preserve-unknown-fields") || free || any,
        embedded: flag("x-kubernetes-embedded-resource"),
        list: list_type(schema, builtin),
        atomic: text("x-kubernetes-map-type") == Some("atomic"),
        merge_key: text("x-kubernetes-patch-merge-key").map(ToOwned::to_owned),
        merges: text("x-kubernetes-patch-strategy").is_some_and(|strategy| strategy.split(',').any(|s| s == "merge")),
        limits: limits(schema, builtin),
        properties,
    }
}

fn list_type(schema: &Value, builtin: bool) -> ListType {
    match schema["x-kubernetes-list-type"].as_str() {
        Some("set") => ListType::Set,
        Some("map") => ListType::Map(strings(&schema["x-kubernetes-list-map-keys"])),
        Some(_) => ListType::Atomic,
        // Before list types, the patch strategy said the same (structured-merge-diff does so too).
        None if builtin && schema["x-kubernetes-patch-strategy"].as_str().is_some_and(|s| s.contains("merge")) => {
            match schema["x-kubernetes-patch-merge-key"].as_str() {
                Some(key) => ListType::Map(vec![key.to_owned()]),
                None => ListType::Set,
            }
        }
        None => ListType::Atomic,
    }
}

fn limits(schema: &Value, builtin: bool) -> Limits {
    let nodes = |name: &str| -> Vec<Node> {
        schema[name].as_array().into_iter().flatten().map(|child| node(child, builtin)).collect()
    };
    let flag = |name: &str| schema[name].as_bool().unwrap_or(false);
    Limits {
        one_of_values: schema["enum"].as_array().cloned().unwrap_or_default(),
        minimum: schema["minimum"].as_f64(),
        exclusive_minimum: flag("exclusiveMinimum"),
        maximum: schema["maximum"].as_f64(),
        exclusive_maximum: flag("exclusiveMaximum"),
        multiple_of: schema["multipleOf"].as_f64(),
        min_length: schema["minLength"].as_u64(),
        max_length: schema["maxLength"].as_u64(),
        // A pattern that does not compile was refused before a custom resource got here.
        pattern: schema["pattern"].as_str().and_then(|pattern| Regex::new(pattern).ok()),
        format: schema["format"].as_str().map(ToOwned::to_owned),
        min_items: schema["minItems"].as_u64(),
        max_items: schema["maxItems"].as_u64(),
        min_properties: schema["minProperties"].as_u64(),
        max_properties: schema["maxProperties"].as_u64(),
        all_of: nodes("allOf"),
        any_of: nodes("anyOf"),
        one_of: nodes("oneOf"),
        not: schema.get("not").map(|child| Box::new(node(child, builtin))),
    }
}

fn strings(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).map(ToOwned::to_owned).collect()
}

/// Writes references in the form that clients follow.
pub(super) fn full_references(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            for (name, child) in map {
                match child {
                    Value::String(reference) if name == "$ref" && !reference.starts_with('#') => {
                        *reference = format!("{COMPONENTS}{reference}");
                    }
                    child => full_references(child),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(full_references),
        _ => {}
    }
}
