//! The directives of a patch: keys that begin with `$`.

use serde_json::{Map, Value};

use super::error::{MergeError, Path, shown};

const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";
const ORDER: &str = "$setElementOrder/";

/// What `$patch` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Merge,
    Replace,
    Delete,
}

/// What the directives of one object of the patch ask for.
#[derive(Debug)]
pub(super) struct Directives<'a> {
    pub(super) action: Action,
    /// The fields that may stay.
    pub(super) retain: Option<&'a [Value]>,
    /// Lists, and the scalars to take out of each.
    pub(super) delete_from: Vec<(&'a str, &'a [Value])>,
    /// Lists, and the order of their items.
    pub(super) order: Vec<(&'a str, &'a [Value])>,
}

pub(super) fn is_directive(name: &str) -> bool {
    name.starts_with('$')
}

impl<'a> Directives<'a> {
    pub(super) fn of(patch: &'a Map<String, Value>, path: &Path<'_>) -> Result<Self, MergeError> {
        let mut directives = Self {
            action: Action::Merge,
            retain: None,
            delete_from: Vec::new(),
            order: Vec::new(),
        };
        for (name, value) in patch.iter().filter(|(name, _)| is_directive(name)) {
            let path = path.field(name);
            if name == PATCH {
                directives.action = action(value, &path)?;
            } else if name == RETAIN_KEYS {
                let names = list(value, &path)?;
                if let Some(other) = names.iter().find(|name| !name.is_string()) {
                    return Err(path.error(format!("has {}", shown(other)), "write names of fields"));
                }
                directives.retain = Some(names);
            } else if let Some(field) = name.strip_prefix(DELETE_FROM) {
                directives.delete_from.push((field, list(value, &path)?));
            } else if let Some(field) = name.strip_prefix(ORDER) {
                directives.order.push((field, list(value, &path)?));
            } else {
                return Err(path.error(
                    "is no directive",
                    format!("write {PATCH}, {RETAIN_KEYS}, {DELETE_FROM}<field> or {ORDER}<field>"),
                ));
            }
        }
        Ok(directives)
    }
}

/// The action of an item of a list, before anything else of it is looked at.
pub(super) fn action_of(patch: &Map<String, Value>, path: &Path<'_>) -> Result<Action, MergeError> {
    patch
        .get(PATCH)
        .map_or(Ok(Action::Merge), |value| action(value, &path.field(PATCH)))
}

fn action(value: &Value, path: &Path<'_>) -> Result<Action, MergeError> {
    match value.as_str() {
        Some("merge") => Ok(Action::Merge),
        Some("replace") => Ok(Action::Replace),
        Some("delete") => Ok(Action::Delete),
        _ => Err(path.error(
            format!("found {}", shown(value)),
            "write merge, replace or delete",
        )),
    }
}

fn list<'a>(value: &'a Value, path: &Path<'_>) -> Result<&'a [Value], MergeError> {
    value
        .as_array()
        .map(Vec::as_slice)
        .ok_or_else(|| path.error(format!("found {}", shown(value)), "write a list"))
}
