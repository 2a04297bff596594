//! Merging lists: item by item where they have a key, as a whole where they have none.
//!
//! Every step takes time in proportion to the items: a patch may be as long as the API server lets it be.

use std::collections::{HashMap, HashSet, hash_map::Entry};

use serde_json::{Map, Value};

use super::{
    directives::{Action, action_of},
    error::{MergeError, Path, shown},
    object::{merge_object, merge_value},
    schema::{Field, List},
};

/// The items after the patch.
pub(super) fn merge(
    field: Option<&'static Field>,
    path: &Path<'_>,
    base: Vec<Value>,
    patch: &[Value],
) -> Result<Vec<Value>, MergeError> {
    match field {
        Some(Field::List(list)) => list.merge(path, base, patch),
        Some(Field::Set) => unite(path, base, patch),
        Some(Field::Object(_)) | None => replace(path, patch),
    }
}

/// A list of scalars that holds each one once: what is new comes last.
fn unite(path: &Path<'_>, base: Vec<Value>, patch: &[Value]) -> Result<Vec<Value>, MergeError> {
    let mut known: HashSet<Value> = base.iter().cloned().collect();
    let mut merged = base;
    for (index, item) in patch.iter().enumerate() {
        if !is_scalar(item) {
            let path = path.item(index);
            return Err(path.error(format!("found {}", shown(item)), "write a single value"));
        }
        if known.insert(item.clone()) {
            merged.push(item.clone());
        }
    }
    Ok(merged)
}

/// A list without keys takes the place of the base's.
fn replace(path: &Path<'_>, patch: &[Value]) -> Result<Vec<Value>, MergeError> {
    let mut items = Vec::with_capacity(patch.len());
    for (index, item) in patch.iter().enumerate() {
        let path = path.item(index);
        if let Value::Object(fields) = item {
            match action_of(fields, &path)? {
                Action::Merge => {}
                // Says what happens anyway.
                Action::Replace => {
                    check_alone(&path, fields)?;
                    continue;
                }
                Action::Delete => {
                    return Err(path.error(
                        "deletes one item of a list that is only replaced as a whole",
                        "write the items that are wanted, without $patch",
                    ));
                }
            }
        }
        match merge_value(None, &path, None, item)? {
            Some(item) => items.push(item),
            None => return Err(path.error("found null", "leave the item out")),
        }
    }
    Ok(items)
}

/// Takes scalars out of a list, if there is one.
pub(super) fn delete(path: &Path<'_>, base: Option<&mut Value>, gone: &[Value]) -> Result<(), MergeError> {
    if let Some(value) = gone.iter().find(|value| !is_scalar(value)) {
        let problem = format!("$deleteFromPrimitiveList has {}", shown(value));
        return Err(path.error(problem, "write single values"));
    }
    match base {
        None | Some(Value::Null) => Ok(()),
        Some(Value::Array(items)) if items.iter().all(is_scalar) => {
            let gone: HashSet<&Value> = gone.iter().collect();
            items.retain(|item| !gone.contains(item));
            Ok(())
        }
        Some(other) => Err(path.error(
            format!("is no list of single values to delete from, but {}", shown(other)),
            "delete an item of a list by its key and $patch: delete in the list",
        )),
    }
}

/// An item with `$patch: replace` is about the whole list, not about itself.
fn check_alone(path: &Path<'_>, item: &Map<String, Value>) -> Result<(), MergeError> {
    match item.keys().find(|name| *name != "$patch") {
        Some(other) => Err(path.error(
            format!("has {other} beside $patch: replace, which replaces the whole list"),
            "write {$patch: replace} as an item of its own, and the items that are wanted beside it",
        )),
        None => Ok(()),
    }
}

pub(super) fn is_scalar(value: &Value) -> bool {
    !matches!(value, Value::Null | Value::Object(_) | Value::Array(_))
}

/// What identifies an item: its key, and what tells it apart from others of that key.
pub(super) type Identity = (Value, Option<Value>);

impl List {
    fn merge(&self, path: &Path<'_>, base: Vec<Value>, patch: &[Value]) -> Result<Vec<Value>, MergeError> {
        let mut merged = base;
        let mut changes: Vec<(usize, &Map<String, Value>, Identity)> = Vec::with_capacity(patch.len());
        let mut deletions = HashSet::new();
        for (index, item) in patch.iter().enumerate() {
            let path = path.item(index);
            let Value::Object(fields) = item else {
                return Err(path.error(format!("found {}", shown(item)), "write an object"));
            };
            let action = action_of(fields, &path)?;
            if action == Action::Replace {
                check_alone(&path, fields)?;
                merged.clear();
                continue;
            }
            let Some(identity) = self.identity(item) else {
                return Err(path.error(
                    format!("has no {}, found {}", self.key, shown(item)),
                    format!("give it the {} of the item it is about", self.key),
                ));
            };
            if action == Action::Delete {
                deletions.extend(self.named(item));
            } else {
                changes.push((index, fields, identity));
            }
        }
        merged.retain(|item| {
            self.identity(item).is_none_or(|(key, also)| {
                !deletions.contains(&(key.clone(), None)) && !deletions.contains(&(key, also))
            })
        });

        let mut places = Places::of(merged.iter().map(|item| self.identity(item)));
        let mut seen = Places::default();
        for (index, _, identity) in &changes {
            if !seen.add(identity.clone(), *index) {
                let item = patch.get(*index).map(shown).unwrap_or_default();
                return Err(path.item(*index).error(
                    format!("names an item a second time, found {item}"),
                    "write the item once",
                ));
            }
        }
        for (index, change, identity) in changes {
            let several = seen.has_several(&identity.0) || places.has_several(&identity.0);
            let place = places.find(&identity, several);
            let before = place.and_then(|place| merged.get_mut(place)).map(Value::take);
            let before = match before {
                Some(Value::Object(before)) => before,
                _ => Map::new(),
            };
            let item = merge_object(self.item, &path.item(index), before, change)?;
            let item = Value::Object(item.unwrap_or_default());
            match place.and_then(|place| merged.get_mut(place)) {
                Some(slot) => *slot = item,
                None => {
                    places.add(identity, merged.len());
                    merged.push(item);
                }
            }
        }
        Ok(merged)
    }

    /// What identifies an item; nothing where it has no key by which it could be found.
    pub(super) fn identity(&self, item: &Value) -> Option<Identity> {
        let (key, given) = self.named(item)?;
        let default = self.also.and_then(|(_, default)| default).map(Value::from);
        Some((key, given.or(default)))
    }

    /// As [`List::identity`], with what tells items apart only where it is given.
    pub(super) fn named(&self, item: &Value) -> Option<Identity> {
        let key = item
            .get(self.key)
            .filter(|key| key.is_string() || key.is_number())?;
        let also = self.also.and_then(|(also, _)| item.get(also));
        Some((key.clone(), also.filter(|value| !value.is_null()).cloned()))
    }
}

/// Where the items of a list are.
#[derive(Default)]
struct Places {
    /// The first item of each key, and whether there are others that differ from it.
    of_keys: HashMap<Value, (usize, Option<Value>, bool)>,
    of_items: HashMap<Identity, usize>,
}

impl Places {
    fn of(items: impl Iterator<Item = Option<Identity>>) -> Self {
        let mut places = Self::default();
        for (place, identity) in items.enumerate() {
            if let Some(identity) = identity {
                places.add(identity, place);
            }
        }
        places
    }

    /// Takes in an item, and says whether it is the first of its identity.
    fn add(&mut self, identity: Identity, place: usize) -> bool {
        let (key, also) = identity.clone();
        match self.of_keys.entry(key) {
            Entry::Vacant(vacant) => drop(vacant.insert((place, also, false))),
            Entry::Occupied(mut first) => {
                let (_, first, several) = first.get_mut();
                *several |= *first != also;
            }
        }
        match self.of_items.entry(identity) {
            Entry::Vacant(vacant) => {
                vacant.insert(place);
                true
            }
            Entry::Occupied(_) => false,
        }
    }

    fn has_several(&self, key: &Value) -> bool {
        self.of_keys.get(key).is_some_and(|(_, _, several)| *several)
    }

    /// The item of a key; where there are several, the one that is told apart as this one is.
    fn find(&self, identity: &Identity, several: bool) -> Option<usize> {
        if several {
            self.of_items.get(identity).copied()
        } else {
            self.of_keys.get(&identity.0).map(|(place, _, _)| *place)
        }
    }
}
