//! Strategic merge patch: a merge patch that knows the lists of built-in kinds
//! (`k8s.io/apimachinery/pkg/util/strategicpatch`).

use http::StatusCode;
use serde_json::{Map, Value};

use crate::{error::ApiError, resource::ResourceType, schema::Cursor};

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";
const ORDER: &str = "$setElementOrder/";

/// A strategic merge patch; for built-in kinds only.
///
/// # Errors
/// Where the patch is no object, a directive is unknown, or an item of a merged list has no merge key.
pub(crate) fn strategic_patch(
    resource: &ResourceType,
    object: &Value,
    patch: &Value,
) -> Result<Value, ApiError> {
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
    match patch
        .get(DIRECTIVE)
        .map(|value| value.as_str().unwrap_or_default())
    {
        None | Some("merge") => Ok(Directive::Merge),
        Some("replace") => Ok(Directive::Replace),
        Some("delete") => Ok(Directive::Delete),
        Some(other) => Err(broken(format!(
            "unknown patch type: {other} in map: {}",
            go_text(&Value::Object(patch.clone()))
        ))),
    }
}

/// A patch without its directives.
fn content(patch: &Map<String, Value>) -> Map<String, Value> {
    let fields = patch.iter().filter(|(name, _)| !is_directive(name));
    fields
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

/// A value without directives and nulls; nothing where it is a directive itself.
fn plain(value: &Value) -> Option<Value> {
    match value {
        Value::Object(fields) if fields.contains_key(DIRECTIVE) => None,
        Value::Object(fields) => {
            let fields = fields
                .iter()
                .filter(|(name, value)| !is_directive(name) && !value.is_null());
            Some(Value::Object(
                fields
                    .filter_map(|(name, value)| Some((name.clone(), plain(value)?)))
                    .collect(),
            ))
        }
        Value::Array(items) => Some(items.iter().filter_map(plain).collect()),
        value => Some(value.clone()),
    }
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
            (Some(Value::Array(before)), Value::Array(changes)) => {
                let before = before.clone();
                let merged = merge_list(field, name, before.clone(), changes)?;
                let merges = field.is_some_and(|field| field.node().patch.merge);
                let order = order
                    .and_then(Value::as_array)
                    .map_or(changes.as_slice(), Vec::as_slice);
                let merged = if merges {
                    ordered(field, &merged, order, &before)
                } else {
                    merged
                };
                base.insert(name.clone(), Value::Array(merged));
            }
            // What is new has nothing to be merged with.
            (_, value) => match plain(value) {
                Some(value) => drop(base.insert(name.clone(), value)),
                None => drop(base.shift_remove(name)),
            },
        }
    }
    // An order without items only moves what is there.
    for (name, order) in directives(patch, ORDER).filter(|(name, _)| !patch.contains_key(*name)) {
        let field = schema.and_then(|schema| schema.field(name));
        if let Some(Value::Array(items)) = base.get_mut(name) {
            let order = order.as_array().map_or(&[][..], Vec::as_slice);
            *items = ordered(field, items, order, items);
        }
    }
    Ok(base)
}

fn directives<'a>(
    patch: &'a Map<String, Value>,
    prefix: &'a str,
) -> impl Iterator<Item = (&'a str, &'a Value)> {
    patch
        .iter()
        .filter_map(move |(name, value)| Some((name.strip_prefix(prefix)?, value)))
}

/// `$retainKeys` names every field that may stay; the patch may not set others.
fn retain_keys(base: &mut Map<String, Value>, patch: &Map<String, Value>) -> Result<(), ApiError> {
    let Some(kept) = patch.get(RETAIN_KEYS).and_then(Value::as_array) else {
        return Ok(());
    };
    let is_kept = |name: &str| kept.iter().any(|kept| kept == name);
    let set = patch
        .iter()
        .filter(|(name, value)| !is_directive(name) && !value.is_null());
    if set.into_iter().any(|(name, _)| !is_kept(name)) {
        let why = "the list of retainKeys must contain all the fields that are present in the patch";
        return Err(broken(why));
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
            return Err(broken(format!(
                "an item of {name} must be an object, found {value}"
            )));
        };
        objects.push((directive(object)?, object));
    }
    if objects
        .iter()
        .any(|(directive, _)| *directive == Directive::Replace)
    {
        let items = objects
            .iter()
            .filter(|(directive, _)| *directive == Directive::Merge);
        return Ok(items
            .map(|(_, object)| Value::Object((*object).clone()))
            .collect());
    }
    let mut merged = base;
    for (directive, object) in objects {
        let Some(id) = object.get(key) else {
            let shown = go_text(&Value::Object(content(object)));
            return Err(broken(format!(
                "map: {shown} does not contain declared merge key: {key}"
            )));
        };
        let place = merged.iter().position(|item| item.get(key) == Some(id));
        if directive == Directive::Delete {
            merged.retain(|item| item.get(key) != Some(id));
            continue;
        }
        match place.and_then(|place| merged[place].as_object().cloned().map(|before| (place, before))) {
            Some((place, before)) => {
                merged[place] = Value::Object(merge_object(field.items(), before, object)?)
            }
            None => merged.extend(plain(&Value::Object(object.clone()))),
        }
    }
    Ok(merged)
}

/// The items of a merged list: those that `order` names in its order, the others as they were in `before`. Between the
/// two, an item of the latter comes first where it was before the other in `before`.
fn ordered(field: Option<Cursor<'_>>, items: &[Value], order: &[Value], before: &[Value]) -> Vec<Value> {
    let key = field.and_then(|field| field.node().merge_key.as_deref());
    let place = |list: &[Value], item: &Value| {
        list.iter().position(|other| match key {
            Some(key) => other.get(key).is_some() && other.get(key) == item.get(key),
            None => other == item,
        })
    };
    let (mut named, mut others): (Vec<&Value>, Vec<&Value>) =
        items.iter().partition(|item| place(order, item).is_some());
    named.sort_by_key(|item| place(order, item));
    others.sort_by_key(|item| place(before, item));
    let mut named = named.into_iter().peekable();
    let mut merged = Vec::new();
    for other in others {
        let comes_first = |next: &Value| match (place(before, other), place(before, next)) {
            (Some(other), Some(next)) => other < next,
            _ => false,
        };
        while let Some(next) = named.next_if(|next| !comes_first(next)) {
            merged.push(next.clone());
        }
        merged.push(other.clone());
    }
    merged.extend(named.cloned());
    merged
}

/// A patch that breaks the rules of its language. kube-apiserver takes the blame itself.
fn broken(why: impl Into<String>) -> ApiError {
    ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "", why)
}

/// A value as Go prints it.
fn go_text(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(go_text).collect::<Vec<_>>().join(" ")),
        Value::Object(fields) => {
            let mut fields: Vec<String> = fields
                .iter()
                .map(|(name, value)| format!("{name}:{}", go_text(value)))
                .collect();
            fields.sort();
            format!("map[{}]", fields.join(" "))
        }
        value => value.to_string(),
    }
}
