//! Strategic merge patch: a merge patch that knows the lists of built-in kinds
//! (`k8s.io/apimachinery/pkg/util/strategicpatch`).

use serde_json::{Map, Value};

use super::misfit;
use crate::{error::ApiError, resource::ResourceType, schema::Cursor};

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";
const ORDER: &str = "$setElementOrder/";

/// A strategic merge patch; for built-in kinds only.
///
/// # Errors
/// Where the patch is no object, a directive is unknown, or an item of a merged list has no merge key.
pub(crate) fn strategic_patch(resource: &ResourceType, object: &Value, patch: &Value) -> Result<Value, ApiError> {
    let patch = super::object_of(patch)?;
    let base = object.as_object().cloned().unwrap_or_default();
    merge_object(Some(resource.schema.root()), base, patch).map(Value::Object)
}

/// What a `$patch` directive asks for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Directive {
    Merge,
    Replace,
    Delete,
}

fn directive(patch: &Map<String, Value>) -> Result<Directive, ApiError> {
    match patch.get(DIRECTIVE).map(|value| value.as_str().unwrap_or_default()) {
        None | Some("merge") => Ok(Directive::Merge),
        Some("replace") => Ok(Directive::Replace),
        Some("delete") => Ok(Directive::Delete),
        Some(other) => Err(misfit(format!("unknown patch type found: {other}"))),
    }
}

/// A patch without its directives.
fn content(patch: &Map<String, Value>) -> Map<String, Value> {
    let fields = patch.iter().filter(|(name, _)| !is_directive(name));
    fields.map(|(name, value)| (name.clone(), value.clone())).collect()
}

fn is_directive(name: &str) -> bool {
    name == DIRECTIVE || name == RETAIN_KEYS || name.starts_with(DELETE_FROM) || name.starts_with(ORDER)
}

fn merge_object(
    schema: Option<Cursor<'_>>,
    mut base: Map<String, Value>,
    patch: &Map<String, Value>,
) -> Result<Map<String, Value>, ApiError> {
    match directive(patch)? {
        Directive::Merge => {}
        Directive::Replace => return Ok(content(patch)),
        Directive::Delete => return Ok(Map::new()),
    }
    retain_keys(&mut base, patch)?;
    for (name, gone) in directives(patch, DELETE_FROM) {
        let gone = gone.as_array().map(Vec::as_slice).unwrap_or_default();
        if let Some(items) = base.get_mut(name).and_then(Value::as_array_mut) {
            items.retain(|item| !gone.contains(item));
        }
    }
    for (name, value) in patch.iter().filter(|(name, _)| !is_directive(name)) {
        let field = schema.and_then(|schema| schema.field(name));
        let order = patch.get(&format!("{ORDER}{name}"));
        match (base.get(name), value) {
            (_, Value::Null) => {
                base.shift_remove(name);
            }
            (Some(Value::Object(before)), Value::Object(changes)) => {
                let merged = merge_object(field, before.clone(), changes)?;
                base.insert(name.clone(), Value::Object(merged));
            }
            // An object that is new has nothing to be merged with; its own directives and nulls still go.
            (_, Value::Object(changes)) => {
                let merged = merge_object(field, Map::new(), changes)?;
                base.insert(name.clone(), Value::Object(merged));
            }
            (before, Value::Array(changes)) => {
                let before = before.and_then(Value::as_array).cloned().unwrap_or_default();
                let merged = merge_list(field, name, before, changes)?;
                base.insert(name.clone(), Value::Array(ordered(field, merged, order)));
            }
            (_, value) => {
                base.insert(name.clone(), value.clone());
            }
        }
    }
    // An order without items only moves what is there.
    for (name, order) in directives(patch, ORDER).filter(|(name, _)| !patch.contains_key(*name)) {
        let field = schema.and_then(|schema| schema.field(name));
        if let Some(Value::Array(items)) = base.get_mut(name) {
            *items = ordered(field, std::mem::take(items), Some(order));
        }
    }
    Ok(base)
}

fn directives<'a>(patch: &'a Map<String, Value>, prefix: &'a str) -> impl Iterator<Item = (&'a str, &'a Value)> {
    patch.iter().filter_map(move |(name, value)| Some((name.strip_prefix(prefix)?, value)))
}

/// `$retainKeys` names every field that may stay; the patch may not set others.
fn retain_keys(base: &mut Map<String, Value>, patch: &Map<String, Value>) -> Result<(), ApiError> {
    let Some(kept) = patch.get(RETAIN_KEYS).and_then(Value::as_array) else { return Ok(()) };
    let is_kept = |name: &str| kept.iter().any(|kept| kept == name);
    let set = patch.iter().filter(|(name, value)| !is_directive(name) && !value.is_null());
    if set.into_iter().any(|(name, _)| !is_kept(name)) {
        let why = "the list of retainKeys must contain all the fields that are present in the patch";
        return Err(misfit(why));
    }
    base.retain(|name, _| is_kept(name));
    Ok(())
}

fn merge_list(
    field: Option<Cursor<'_>>,
    name: &str,
    base: Vec<Value>,
    patch: &[Value],
) -> Result<Vec<Value>, ApiError> {
    let Some(field) = field.filter(|field| field.node().patch.merge) else {
        return Ok(patch.to_vec());
    };
    let Some(key) = &field.node().merge_key else {
        // Scalars: new ones go to the end.
        let mut merged = base;
        for value in patch {
            if !merged.contains(value) {
                merged.push(value.clone());
            }
        }
        return Ok(merged);
    };
    let mut objects = Vec::new();
    for value in patch {
        let Some(object) = value.as_object() else {
            return Err(misfit(format!("an item of {name} must be an object, found {value}")));
        };
        objects.push((directive(object)?, object));
    }
    if objects.iter().any(|(directive, _)| *directive == Directive::Replace) {
        let items = objects.iter().filter(|(directive, _)| *directive == Directive::Merge);
        return Ok(items.map(|(_, object)| Value::Object((*object).clone())).collect());
    }
    let mut merged = base;
    for (directive, object) in objects {
        let Some(id) = object.get(key) else {
            let shown = Value::Object(content(object));
            return Err(misfit(format!("map: {shown} does not contain declared merge key: {key}")));
        };
        let place = merged.iter().position(|item| item.get(key) == Some(id));
        if directive == Directive::Delete {
            merged.retain(|item| item.get(key) != Some(id));
            continue;
        }
        let before = place.and_then(|place| merged[place].as_object().cloned()).unwrap_or_default();
        let item = Value::Object(merge_object(field.items(), before, object)?);
        match place {
            Some(place) => merged[place] = item,
            None => merged.push(item),
        }
    }
    Ok(merged)
}

/// The items in the order that the patch asks for. Items it does not name keep their place behind the item that was
/// before them.
fn ordered(field: Option<Cursor<'_>>, items: Vec<Value>, order: Option<&Value>) -> Vec<Value> {
    let Some(order) = order.and_then(Value::as_array) else { return items };
    let key = field.and_then(|field| field.node().merge_key.as_deref());
    let id = |item: &Value| match key {
        Some(key) => item.get(key).cloned(),
        None => Some(item.clone()),
    };
    let rank = |item: &Value| id(item).and_then(|own| order.iter().position(|named| id(named).as_ref() == Some(&own)));
    let mut sorted: Vec<Value> = items.iter().filter(|item| rank(item).is_some()).cloned().collect();
    sorted.sort_by_key(|item| rank(item));
    for (index, item) in items.iter().enumerate().filter(|(_, item)| rank(item).is_none()) {
        let before = index.checked_sub(1).map(|before| &items[before]);
        let place = before.and_then(|before| sorted.iter().position(|other| id(other) == id(before)));
        sorted.insert(place.map_or(0, |place| place + 1), item.clone());
    }
    sorted
}
