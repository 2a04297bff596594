//! Merging objects, field by field.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::{
    directives::{Action, Directives, is_directive},
    error::{MergeError, Path, shown},
    list,
    order::Order,
    schema::{Field, Object, PLAIN},
};

pub(super) fn merge_root(schema: &Object, base: &Value, patch: &Value) -> Result<Value, MergeError> {
    let path = Path::Root;
    let Value::Object(changes) = patch else {
        return Err(path.error(format!("found {}", shown(patch)), "write an object"));
    };
    let Value::Object(base) = base else {
        return Err(path.error(
            format!("has nothing to be merged with but {}", shown(base)),
            "it must be an object",
        ));
    };
    let merged = merge_object(schema, &path, base.clone(), changes)?;
    Ok(Value::Object(merged.unwrap_or_default()))
}

/// The value of a field after the patch; nothing where the patch removes it.
pub(super) fn merge_value(
    field: Option<&'static Field>,
    path: &Path<'_>,
    base: Option<Value>,
    patch: &Value,
) -> Result<Option<Value>, MergeError> {
    let base = base.filter(|base| !base.is_null());
    let expected = match field {
        Some(Field::Object(_)) => Some("an object"),
        Some(Field::List(_) | Field::Set) => Some("a list"),
        None => base.as_ref().map(shape),
    };
    if let Some(expected) = expected
        && !patch.is_null()
        && shape(patch) != expected
    {
        return Err(path.error(
            format!("found {}", shown(patch)),
            format!("write {expected}, or null to remove it"),
        ));
    }
    match patch {
        Value::Null => Ok(None),
        Value::Object(changes) => {
            let schema = match field {
                Some(Field::Object(schema)) => schema,
                _ => &PLAIN,
            };
            let base = match base {
                Some(Value::Object(base)) => base,
                _ => Map::new(),
            };
            Ok(merge_object(schema, path, base, changes)?.map(Value::Object))
        }
        Value::Array(changes) => {
            let base = match base {
                Some(Value::Array(base)) => base,
                _ => Vec::new(),
            };
            list::merge(field, path, base, changes).map(|items| Some(Value::Array(items)))
        }
        scalar => Ok(Some(scalar.clone())),
    }
}

/// What of JSON can be replaced by one another: a port is a number or a name, a quantity either.
fn shape(value: &Value) -> &'static str {
    match value {
        Value::Object(_) => "an object",
        Value::Array(_) => "a list",
        _ => "a single value",
    }
}

/// The object after the patch; nothing where the patch removes it.
pub(super) fn merge_object(
    schema: &Object,
    path: &Path<'_>,
    mut base: Map<String, Value>,
    patch: &Map<String, Value>,
) -> Result<Option<Map<String, Value>>, MergeError> {
    let directives = Directives::of(patch, path)?;
    match directives.action {
        Action::Merge => {}
        Action::Replace => base.clear(),
        Action::Delete => return Ok(None),
    }
    if let Some(kept) = directives.retain {
        retain(path, &mut base, patch, kept)?;
    }
    clear_others(schema, path, &mut base, patch)?;
    for (name, gone) in &directives.delete_from {
        list::delete(&path.field(name), base.get_mut(*name), gone)?;
    }
    let orders: Vec<Order<'_>> = directives
        .order
        .iter()
        .map(|(name, wanted)| Order::of(name, wanted, &base))
        .collect();
    for (name, change) in patch.iter().filter(|(name, _)| !is_directive(name)) {
        let before = base.get_mut(name).map(Value::take);
        match merge_value(schema.field(name), &path.field(name), before, change)? {
            Some(merged) => base.insert(name.clone(), merged),
            None => base.shift_remove(name),
        };
    }
    for order in orders {
        order.apply(schema, path, &mut base, patch)?;
    }
    Ok(Some(base))
}

/// `$retainKeys` names every field that may stay; the patch may not set others.
fn retain(
    path: &Path<'_>,
    base: &mut Map<String, Value>,
    patch: &Map<String, Value>,
    kept: &[Value],
) -> Result<(), MergeError> {
    let kept: HashSet<&str> = kept.iter().filter_map(Value::as_str).collect();
    let is_kept = |name: &str| kept.contains(name);
    let unnamed = patch
        .iter()
        .find(|(name, value)| !is_directive(name) && !value.is_null() && !is_kept(name));
    if let Some((name, _)) = unnamed {
        return Err(path.field("$retainKeys").error(
            format!("does not name {name}, which the patch sets"),
            format!("add {name} to it"),
        ));
    }
    base.retain(|name, _| is_kept(name));
    Ok(())
}

/// Removes what cannot stand beside what the patch sets.
fn clear_others(
    schema: &Object,
    path: &Path<'_>,
    base: &mut Map<String, Value>,
    patch: &Map<String, Value>,
) -> Result<(), MergeError> {
    let removes = |value: &Value| value.is_null() || value.get("$patch").is_some_and(|it| it == "delete");
    let mut set = patch
        .iter()
        .filter(|(name, value)| !is_directive(name) && schema.one_of.has(name) && !removes(value))
        .map(|(name, _)| name);
    let Some(member) = set.next() else {
        return Ok(());
    };
    if let Some(other) = set.next() {
        return Err(path.error(format!("sets both {member} and {other}"), "keep one of them"));
    }
    base.retain(|name, _| name == member || !schema.one_of.has(name));
    Ok(())
}
