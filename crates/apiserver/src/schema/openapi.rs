//! Nodes as OpenAPI v3 documents, for kubectl and other clients.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::node::{Checks, Cursor, ListType, NodeId};

/// Where named schemas stand in a document.
const REFERENCE: &str = "#/components/schemas/";

/// A schema with its named parts as references.
pub(super) fn schema(cursor: Cursor<'_>) -> Value {
    let node = cursor.node();
    let mut out = Map::new();
    let mut set = |key: &str, value: Value| {
        out.insert(key.to_owned(), value);
    };
    for (key, text) in [
        ("title", &node.title),
        ("description", &node.description),
        ("format", &node.format),
    ] {
        if let Some(text) = text {
            set(key, text.as_str().into());
        }
    }
    if let Some(kind) = node.kind {
        set("type", kind.name().into());
    }
    for (key, flag) in [
        ("nullable", node.nullable),
        ("x-kubernetes-int-or-string", node.int_or_string),
        ("x-kubernetes-preserve-unknown-fields", node.preserve_unknown),
        ("x-kubernetes-embedded-resource", node.embedded_resource),
    ] {
        if flag {
            set(key, true.into());
        }
    }
    if let Some(default) = &node.default {
        set("default", default.clone());
    }
    if !node.required.is_empty() {
        set("required", node.required.clone().into());
    }
    if !node.properties.is_empty() {
        let properties = node
            .properties
            .iter()
            .map(|(name, id)| (name.clone(), reference(cursor, *id)));
        set("properties", Value::Object(properties.collect()));
    }
    if let Some(items) = node.items {
        set("items", reference(cursor, items));
    }
    if let Some(additional) = node.additional {
        set("additionalProperties", reference(cursor, additional));
    } else if node.additional_any {
        set("additionalProperties", true.into());
    }
    match &node.list {
        ListType::Atomic => {}
        ListType::Set => set("x-kubernetes-list-type", "set".into()),
        ListType::Map(keys) => {
            set("x-kubernetes-list-type", "map".into());
            set("x-kubernetes-list-map-keys", keys.clone().into());
        }
    }
    if node.atomic_map {
        set("x-kubernetes-map-type", "atomic".into());
    }
    let words = [
        ("merge", node.patch.merge),
        ("retainKeys", node.patch.retain_keys),
    ];
    let words: Vec<&str> = words
        .iter()
        .filter(|(_, on)| *on)
        .map(|(word, _)| *word)
        .collect();
    if !words.is_empty() {
        set("x-kubernetes-patch-strategy", words.join(",").into());
    }
    if let Some(key) = &node.merge_key {
        set("x-kubernetes-patch-merge-key", key.as_str().into());
    }
    if let Some(kinds) = &node.kinds {
        set("x-kubernetes-group-version-kind", kinds.clone());
    }
    if let Some(rules) = &node.rules {
        set("x-kubernetes-validations", rules.source().clone());
    }
    if let Some(value_checks) = &node.checks {
        checks(cursor, value_checks, &mut set);
    }
    Value::Object(out)
}

fn checks(cursor: Cursor<'_>, checks: &Checks, set: &mut impl FnMut(&str, Value)) {
    let numbers = [
        ("maximum", checks.maximum),
        ("minimum", checks.minimum),
        ("multipleOf", checks.multiple_of),
    ];
    for (key, number) in numbers {
        if let Some(number) = number {
            set(key, whole(number));
        }
    }
    for (key, count) in [
        ("maxLength", checks.max_length),
        ("minLength", checks.min_length),
        ("maxItems", checks.max_items),
        ("minItems", checks.min_items),
        ("maxProperties", checks.max_properties),
        ("minProperties", checks.min_properties),
    ] {
        if let Some(count) = count {
            set(key, count.into());
        }
    }
    for (key, flag) in [
        ("exclusiveMaximum", checks.exclusive_maximum),
        ("exclusiveMinimum", checks.exclusive_minimum),
        ("uniqueItems", checks.unique_items),
    ] {
        if flag {
            set(key, true.into());
        }
    }
    if let Some(pattern) = &checks.pattern {
        set("pattern", pattern.as_str().into());
    }
    if let Some(allowed) = &checks.allowed {
        set("enum", allowed.clone().into());
    }
    for (key, branches) in [
        ("allOf", &checks.all_of),
        ("anyOf", &checks.any_of),
        ("oneOf", &checks.one_of),
    ] {
        if !branches.is_empty() {
            set(
                key,
                branches
                    .iter()
                    .map(|id| reference(cursor, *id))
                    .collect::<Vec<_>>()
                    .into(),
            );
        }
    }
    if let Some(not) = checks.not {
        set("not", reference(cursor, not));
    }
}

/// A number without a fraction where it has none, as it was most likely written.
fn whole(number: f64) -> Value {
    // Integers up to 2^53 are exact in both forms.
    if number.fract() == 0.0 && number.abs() < 9_007_199_254_740_992.0 {
        Value::from(number as i64)
    } else {
        number.into()
    }
}

fn reference(cursor: Cursor<'_>, id: NodeId) -> Value {
    let below = cursor.at(id);
    let node = below.node();
    let Some(name) = &node.definition else {
        return schema(below);
    };
    let reference = json!({ "$ref": format!("{REFERENCE}{name}") });
    // A reference that differs from what it refers to says so beside it.
    if node.patch.retain_keys || node.patch.merge {
        let mut out = json!({ "allOf": [reference] });
        out["x-kubernetes-patch-strategy"] = if node.patch.merge {
            "merge,retainKeys"
        } else {
            "retainKeys"
        }
        .into();
        if let Some(key) = &node.merge_key {
            out["x-kubernetes-patch-merge-key"] = key.as_str().into();
        }
        return out;
    }
    reference
}

/// Every named schema that this one refers to, itself included where it has a name.
pub(super) fn definitions(cursor: Cursor<'_>) -> BTreeMap<String, Value> {
    let mut found = BTreeMap::new();
    let mut seen = BTreeSet::new();
    let mut open = vec![cursor];
    while let Some(cursor) = open.pop() {
        if !seen.insert(cursor.id()) {
            continue;
        }
        let node = cursor.node();
        if let Some(name) = &node.definition {
            found.entry(name.to_string()).or_insert_with(|| schema(cursor));
        }
        let branches = node.checks.iter().flat_map(|checks| {
            let lists = [&checks.all_of, &checks.any_of, &checks.one_of];
            lists.into_iter().flatten().chain(checks.not.as_ref())
        });
        let below = node
            .properties
            .values()
            .chain(&node.items)
            .chain(&node.additional)
            .chain(branches);
        open.extend(below.map(|id| cursor.at(*id)));
    }
    found
}
