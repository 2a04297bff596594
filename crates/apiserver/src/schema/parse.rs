//! From OpenAPI documents to nodes.
//!
//! The document was checked before: by [`super::structural`] where it comes from a user, by the generator where it is
//! our own. What is not understood here is left out.

use std::sync::Arc;

use regex::Regex;
use serde_json::{Map, Value};

use super::{
    node::{Arena, Checks, ListType, Node, NodeId, PatchStrategy, Type},
    rules::Rules,
};

const REFERENCE: &str = "#/components/schemas/";

/// Adds the named schemas of a document to an arena, and all that they refer to.
pub(super) fn definitions(arena: &mut Arena, schemas: &Map<String, Value>) {
    for name in schemas.keys() {
        let id = arena.push(Node::default());
        arena.definitions.insert(name.clone(), id);
    }
    let mut copies = Vec::new();
    for (name, schema) in schemas {
        let mut node = parse(arena, schema, &mut copies);
        node.definition = Some(Arc::from(name.as_str()));
        if let Some(id) = arena.definitions.get(name) {
            arena.nodes[*id] = node;
        }
    }
    // A reference that carries merge settings of its own is a copy of what it refers to. Copies are made last, when
    // everything there is to copy has been read.
    for Copy { at, of, settings } in copies {
        let mut node = arena.nodes[of].clone();
        node.patch = settings.patch;
        node.merge_key = settings.merge_key;
        node.atomic_map |= settings.atomic_map;
        arena.nodes[at] = node;
    }
}

/// Adds one schema without references.
pub(super) fn schema(arena: &mut Arena, schema: &Value) -> NodeId {
    add(arena, schema, &mut Vec::new())
}

struct Copy {
    at: NodeId,
    of: NodeId,
    settings: Node,
}

fn add(arena: &mut Arena, schema: &Value, copies: &mut Vec<Copy>) -> NodeId {
    let reference = schema
        .get("$ref")
        .and_then(Value::as_str)
        .and_then(|path| path.strip_prefix(REFERENCE));
    if let Some(of) = reference.and_then(|name| arena.definitions.get(name)).copied() {
        let settings = parse(arena, schema, copies);
        if settings.patch == PatchStrategy::default() && !settings.atomic_map {
            return of;
        }
        let at = arena.push(Node::default());
        copies.push(Copy { at, of, settings });
        return at;
    }
    let node = parse(arena, schema, copies);
    arena.push(node)
}

fn parse(arena: &mut Arena, schema: &Value, copies: &mut Vec<Copy>) -> Node {
    let text = |key: &str| schema.get(key).and_then(Value::as_str).map(str::to_owned);
    let flag = |key: &str| schema.get(key) == Some(&Value::Bool(true));
    let mut node = Node {
        description: text("description"),
        title: text("title"),
        kind: text("type").as_deref().and_then(Type::from_name),
        format: text("format"),
        nullable: flag("nullable"),
        int_or_string: flag("x-kubernetes-int-or-string"),
        preserve_unknown: flag("x-kubernetes-preserve-unknown-fields"),
        embedded_resource: flag("x-kubernetes-embedded-resource"),
        additional_any: flag("additionalProperties"),
        required: texts(schema.get("required")),
        default: schema.get("default").cloned(),
        list: list_type(schema),
        atomic_map: text("x-kubernetes-map-type").as_deref() == Some("atomic"),
        patch: patch_strategy(schema),
        merge_key: text("x-kubernetes-patch-merge-key"),
        kinds: schema.get("x-kubernetes-group-version-kind").cloned(),
        checks: checks(arena, schema, copies),
        rules: Rules::new(schema).map(Arc::new),
        ..Node::default()
    };
    for (name, property) in schema
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        if property.get("$ref").is_some() && property.get("default").is_some_and(Value::is_object) {
            node.by_value.push(name.clone());
        }
        let id = add(arena, property, copies);
        node.properties.insert(name.clone(), id);
    }
    node.items = schema
        .get("items")
        .filter(|items| items.is_object())
        .map(|items| add(arena, items, copies));
    node.additional = schema
        .get("additionalProperties")
        .filter(|additional| additional.is_object())
        .map(|additional| add(arena, additional, copies));
    node
}

fn texts(list: Option<&Value>) -> Vec<String> {
    list.and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect()
}

fn list_type(schema: &Value) -> ListType {
    match schema.get("x-kubernetes-list-type").and_then(Value::as_str) {
        Some("set") => ListType::Set,
        Some("map") => ListType::Map(texts(schema.get("x-kubernetes-list-map-keys"))),
        Some(_) => ListType::Atomic,
        // Lists of built-in kinds that say nothing else are merged by server-side apply as they are by strategic
        // merge patch.
        None if patch_strategy(schema).merge => {
            match schema.get("x-kubernetes-patch-merge-key").and_then(Value::as_str) {
                Some(key) => ListType::Map(vec![key.to_owned()]),
                None => ListType::Set,
            }
        }
        None => ListType::Atomic,
    }
}

fn patch_strategy(schema: &Value) -> PatchStrategy {
    let strategy = schema
        .get("x-kubernetes-patch-strategy")
        .and_then(Value::as_str)
        .unwrap_or_default();
    PatchStrategy {
        merge: strategy.split(',').any(|word| word == "merge"),
        retain_keys: strategy.split(',').any(|word| word == "retainKeys"),
    }
}

fn checks(arena: &mut Arena, schema: &Value, copies: &mut Vec<Copy>) -> Option<Box<Checks>> {
    const KEYS: [&str; 18] = [
        "enum",
        "maximum",
        "exclusiveMaximum",
        "minimum",
        "exclusiveMinimum",
        "multipleOf",
        "maxLength",
        "minLength",
        "pattern",
        "maxItems",
        "minItems",
        "uniqueItems",
        "maxProperties",
        "minProperties",
        "allOf",
        "anyOf",
        "oneOf",
        "not",
    ];
    let fields = schema.as_object()?;
    if !KEYS.iter().any(|key| fields.contains_key(*key)) {
        return None;
    }
    let number = |key: &str| schema.get(key).and_then(Value::as_f64);
    let count = |key: &str| schema.get(key).and_then(Value::as_u64);
    let flag = |key: &str| schema.get(key) == Some(&Value::Bool(true));
    let mut branches = |key: &str| -> Vec<NodeId> {
        let list = schema.get(key).and_then(Value::as_array);
        list.into_iter()
            .flatten()
            .map(|branch| add(arena, branch, copies))
            .collect()
    };
    let (all_of, any_of, one_of) = (branches("allOf"), branches("anyOf"), branches("oneOf"));
    Some(Box::new(Checks {
        allowed: schema.get("enum").and_then(Value::as_array).cloned(),
        maximum: number("maximum"),
        exclusive_maximum: flag("exclusiveMaximum"),
        minimum: number("minimum"),
        exclusive_minimum: flag("exclusiveMinimum"),
        multiple_of: number("multipleOf"),
        max_length: count("maxLength"),
        min_length: count("minLength"),
        pattern: schema
            .get("pattern")
            .and_then(Value::as_str)
            .and_then(|pattern| Regex::new(pattern).ok()),
        max_items: count("maxItems"),
        min_items: count("minItems"),
        unique_items: flag("uniqueItems"),
        max_properties: count("maxProperties"),
        min_properties: count("minProperties"),
        all_of,
        any_of,
        one_of,
        not: schema
            .get("not")
            .filter(|not| not.is_object())
            .map(|not| add(arena, not, copies)),
    }))
}
