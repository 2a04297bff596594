//! Which schemas a CustomResourceDefinition may have: structural ones
//! (`k8s.io/apiextensions-apiserver/pkg/apiserver/schema`).

use regex::Regex;
use serde_json::{Map, Value};

use super::{error::FieldError, rules::Rules};

/// Keywords of JSON Schema that no structural schema has.
const REFUSED: [&str; 8] = [
    "$ref",
    "$schema",
    "additionalItems",
    "definitions",
    "dependencies",
    "id",
    "patternProperties",
    "deprecated",
];

/// Keywords that a branch of `allOf`, `anyOf`, `oneOf` or `not` may not have: branches only check values.
const NOT_IN_BRANCHES: [&str; 9] = [
    "additionalProperties",
    "default",
    "description",
    "nullable",
    "title",
    "type",
    "x-kubernetes-embedded-resource",
    "x-kubernetes-int-or-string",
    "x-kubernetes-preserve-unknown-fields",
];

/// What is wrong with a schema. Fields are relative to it.
pub(super) fn check(schema: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    match schema.get("type").and_then(Value::as_str) {
        Some("object") => {}
        Some(_) => errors.push(FieldError::invalid(
            "type",
            &schema["type"],
            "must be object at the root",
        )),
        None => errors.push(FieldError::required("type", "must not be empty at the root")),
    }
    node(schema, "", Level::Root, &mut errors);
    errors
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Field,
    Item,
    Branch,
}

fn join(path: &str, step: &str) -> String {
    if path.is_empty() {
        step.to_owned()
    } else {
        format!("{path}.{step}")
    }
}

fn node(schema: &Value, path: &str, level: Level, errors: &mut Vec<FieldError>) {
    let Some(fields) = schema.as_object() else {
        errors.push(FieldError::type_invalid(path, schema, "must be an object"));
        return;
    };
    for key in REFUSED.iter().filter(|key| fields.contains_key(**key)) {
        errors.push(FieldError::forbidden(
            join(path, key),
            "must not be set to be structural",
        ));
    }
    if fields.get("uniqueItems") == Some(&Value::Bool(true)) {
        let why = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        errors.push(FieldError::forbidden(join(path, "uniqueItems"), why));
    }
    if let Some(pattern) = fields
        .get("pattern")
        .filter(|pattern| Regex::new(pattern.as_str().unwrap_or("(")).is_err())
    {
        let why = "must be a valid regular expression, but isn't";
        errors.push(FieldError::invalid(join(path, "pattern"), pattern, why));
    }
    if level == Level::Branch {
        for key in NOT_IN_BRANCHES.iter().filter(|key| fields.contains_key(**key)) {
            // The one use of types in branches: telling the two of int-or-string apart.
            if *key != "type" {
                errors.push(FieldError::forbidden(
                    join(path, key),
                    "must be empty to be structural",
                ));
            }
        }
    } else {
        kind(fields, path, level, errors);
        keys(fields, path, errors);
        rules(schema, path, errors);
    }
    below(fields, path, level, errors);
}

fn is_true(fields: &Map<String, Value>, key: &str) -> bool {
    fields.get(key) == Some(&Value::Bool(true))
}

fn kind(fields: &Map<String, Value>, path: &str, level: Level, errors: &mut Vec<FieldError>) {
    let kind = fields.get("type").and_then(Value::as_str).unwrap_or_default();
    let int_or_string = is_true(fields, "x-kubernetes-int-or-string");
    let preserves = is_true(fields, "x-kubernetes-preserve-unknown-fields");
    let at = join(path, "type");
    match kind {
        "" if int_or_string || preserves || level == Level::Root => {}
        "" if level == Level::Item => {
            errors.push(FieldError::required(
                at.as_str(),
                "must not be empty for specified array items",
            ));
        }
        "" => errors.push(FieldError::required(
            at.as_str(),
            "must not be empty for specified object fields",
        )),
        _ if int_or_string => errors.push(FieldError::invalid(
            at.as_str(),
            &kind.into(),
            "must be empty if x-kubernetes-int-or-string is true",
        )),
        "array" if !fields.contains_key("items") => {
            errors.push(FieldError::required(join(path, "items"), "must be specified"));
        }
        "array" | "object" | "string" | "integer" | "number" | "boolean" => {}
        _ => {
            let kinds = ["array", "boolean", "integer", "number", "object", "string"].map(str::to_owned);
            errors.push(FieldError::not_supported(at.as_str(), &kind.into(), &kinds));
        }
    }
    if preserves && !matches!(kind, "" | "object") {
        errors.push(FieldError::invalid(
            at,
            &kind.into(),
            "must be object if x-kubernetes-preserve-unknown-fields is true",
        ));
    }
    if fields.contains_key("properties")
        && fields
            .get("additionalProperties")
            .is_some_and(|other| other != false)
    {
        let why = "additionalProperties and properties are mutual exclusive";
        errors.push(FieldError::forbidden(join(path, "additionalProperties"), why));
    }
    if level == Level::Root && fields.contains_key("additionalProperties") {
        let why = "must not be used at the root";
        errors.push(FieldError::forbidden(join(path, "additionalProperties"), why));
    }
}

/// List and map types, and the keys of lists.
fn keys(fields: &Map<String, Value>, path: &str, errors: &mut Vec<FieldError>) {
    let text = |key: &str| fields.get(key).and_then(Value::as_str);
    if let Some(map) = text("x-kubernetes-map-type").filter(|map| !["atomic", "granular"].contains(map)) {
        let known = ["atomic", "granular"].map(str::to_owned);
        errors.push(FieldError::not_supported(
            join(path, "x-kubernetes-map-type"),
            &map.into(),
            &known,
        ));
    }
    let Some(list) = text("x-kubernetes-list-type") else {
        return;
    };
    let at = join(path, "x-kubernetes-list-type");
    if !["atomic", "map", "set"].contains(&list) {
        let known = ["atomic", "map", "set"].map(str::to_owned);
        errors.push(FieldError::not_supported(at, &list.into(), &known));
        return;
    }
    if text("type") != Some("array") {
        let found = fields.get("type").cloned().unwrap_or_else(|| "".into());
        let why = "must be array if x-kubernetes-list-type is specified";
        errors.push(FieldError::invalid(join(path, "type"), &found, why));
    }
    if list != "map" {
        return;
    }
    let names = fields.get("x-kubernetes-list-map-keys").and_then(Value::as_array);
    let Some(names) = names.filter(|names| !names.is_empty()) else {
        let why = "must not be empty if x-kubernetes-list-type is map";
        errors.push(FieldError::required(
            join(path, "x-kubernetes-list-map-keys"),
            why,
        ));
        return;
    };
    let items = fields.get("items").unwrap_or(&Value::Null);
    let required = items.get("required").and_then(Value::as_array);
    for (index, name) in names.iter().enumerate() {
        let name_text = name.as_str().unwrap_or_default();
        match items
            .get("properties")
            .and_then(|properties| properties.get(name_text))
        {
            None => errors.push(FieldError::invalid(
                join(path, &format!("x-kubernetes-list-map-keys[{index}]")),
                name,
                "entries must all be names of item properties",
            )),
            Some(property) => {
                if property.get("default").is_none()
                    && !required.is_some_and(|required| required.contains(name))
                {
                    let why = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a \
                               required property";
                    let at = join(path, &format!("items.properties[{name_text}].default"));
                    errors.push(FieldError::required(at, why));
                }
            }
        }
    }
}

fn rules(schema: &Value, path: &str, errors: &mut Vec<FieldError>) {
    for (index, problem) in Rules::new(schema).iter().flat_map(Rules::errors) {
        let at = join(path, &format!("x-kubernetes-validations[{index}].rule"));
        let rule = schema
            .pointer(&format!("/x-kubernetes-validations/{index}/rule"))
            .unwrap_or(&Value::Null);
        errors.push(FieldError::invalid(at, rule, &problem));
    }
}

fn below(fields: &Map<String, Value>, path: &str, level: Level, errors: &mut Vec<FieldError>) {
    let inside = |inner: Level| {
        if level == Level::Branch {
            Level::Branch
        } else {
            inner
        }
    };
    for (name, property) in fields
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        // Metadata of the whole object is known; a schema may only restrict the name.
        if level == Level::Root && ["apiVersion", "kind", "metadata"].contains(&name.as_str()) {
            continue;
        }
        node(
            property,
            &join(path, &format!("properties[{name}]")),
            inside(Level::Field),
            errors,
        );
    }
    if let Some(items) = fields.get("items") {
        if items.is_array() {
            errors.push(FieldError::forbidden(
                join(path, "items"),
                "items must be a schema object and not an array",
            ));
        } else {
            node(items, &join(path, "items"), inside(Level::Item), errors);
        }
    }
    if let Some(additional) = fields
        .get("additionalProperties")
        .filter(|additional| !additional.is_boolean())
    {
        node(
            additional,
            &join(path, "additionalProperties"),
            inside(Level::Field),
            errors,
        );
    }
    for key in ["allOf", "anyOf", "oneOf"] {
        for (index, branch) in fields
            .get(key)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .enumerate()
        {
            node(
                branch,
                &join(path, &format!("{key}[{index}]")),
                Level::Branch,
                errors,
            );
        }
    }
    if let Some(not) = fields.get("not") {
        node(not, &join(path, "not"), Level::Branch, errors);
    }
}
