//! An object seen through its schema: which fields it has, what differs, how two are merged.
//!
//! This is the walk that server-side apply is built on (`sigs.k8s.io/structured-merge-diff`, package `typed`).
//! Atomic lists and maps are one field; items of keyed lists and of sets, and entries of maps, are fields of their own.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::fieldpath::{FieldSet, Step};
use crate::schema::{Cursor, ListType, Type, same};

/// What is known about a value.
#[derive(Clone, Copy, Debug)]
pub(super) enum Known<'a> {
    /// A node of the schema.
    Node(Cursor<'a>),
    /// Below a field that keeps unknown fields: maps are merged, lists are atomic.
    Deduced,
    /// Any JSON, as one field.
    Opaque,
}

/// How a value is walked.
#[derive(Clone, Copy, Debug)]
enum Shape<'a> {
    Leaf,
    Map,
    List(&'a ListType),
}

impl<'a> Known<'a> {
    fn at(cursor: Cursor<'a>) -> Self {
        if cursor.is_opaque() {
            return if cursor.keeps_unknown() {
                Self::Deduced
            } else {
                Self::Opaque
            };
        }
        let node = cursor.node();
        // A node that only promises to keep unknown fields says no more about them.
        if node.preserve_unknown && node.properties.is_empty() && node.additional.is_none() {
            return Self::Deduced;
        }
        Self::Node(cursor)
    }

    fn shape(self, value: &Value) -> Shape<'a> {
        match (self, value) {
            (Self::Node(cursor), Value::Object(_)) if !cursor.node().atomic_map => Shape::Map,
            (Self::Deduced, Value::Object(_)) => Shape::Map,
            (Self::Node(cursor), Value::Array(_)) if cursor.node().list != ListType::Atomic => {
                Shape::List(&cursor.node().list)
            }
            _ => Shape::Leaf,
        }
    }

    fn field(self, name: &str) -> Self {
        match self {
            Self::Node(cursor) => match cursor.field(name) {
                Some(field) => Self::at(field),
                None if cursor.keeps_unknown() => Self::Deduced,
                None => Self::Opaque,
            },
            other => other,
        }
    }

    /// Whether the schema names this field, as opposed to an entry of a map.
    fn declares(self, name: &str) -> bool {
        matches!(self, Self::Node(cursor) if cursor.property(name).is_some())
    }

    fn items(self) -> Self {
        match self {
            Self::Node(cursor) => cursor.items().map_or(Self::Opaque, Self::at),
            other => other,
        }
    }

    /// The step to an item of a list.
    fn step(self, list: &ListType, item: &Value) -> Result<Step, String> {
        let ListType::Map(names) = list else {
            return match item {
                Value::Object(_) => {
                    Err("associative list without keys has an element that's a map type".to_owned())
                }
                Value::Array(_) => Err("not supported: associative list with lists as elements".to_owned()),
                Value::Null => {
                    Err("associative list without keys has an element that's an explicit null".to_owned())
                }
                value => Ok(Step::Value(value.clone())),
            };
        };
        if !item.is_object() {
            return Err("associative list with keys may not have non-map elements".to_owned());
        }
        let default = |name: &str| match self.items() {
            Known::Node(cursor) => cursor.property(name)?.node().default.clone(),
            _ => None,
        };
        let keys: BTreeMap<String, Value> = names
            .iter()
            .filter_map(|name| Some((name.clone(), item.get(name).cloned().or_else(|| default(name))?)))
            .collect();
        if keys.is_empty() {
            return Err(format!(
                "associative list with keys has an element that omits all key fields [{}] (and doesn't have default \
                 values for any key fields)",
                names
                    .iter()
                    .map(|name| format!("{name:?}"))
                    .collect::<Vec<_>>()
                    .join(" ")
            ));
        }
        Ok(Step::Key(keys.into_iter().collect()))
    }

    /// The items of a list by their steps, in order. Items without a usable step are left out.
    fn indexed<'v>(self, list: &ListType, items: &'v [Value]) -> Vec<(Step, &'v Value)> {
        items
            .iter()
            .filter_map(|item| Some((self.step(list, item).ok()?, item)))
            .collect()
    }
}

/// What is known about a whole object.
pub(super) fn root(cursor: Cursor<'_>) -> Known<'_> {
    Known::at(cursor)
}

/// Every field that a value has.
pub(super) fn field_set(known: Known<'_>, value: &Value) -> FieldSet {
    let mut set = FieldSet::default();
    collect(known, value, &mut Vec::new(), &mut set);
    set
}

fn collect(known: Known<'_>, value: &Value, path: &mut Vec<Step>, set: &mut FieldSet) {
    match (known.shape(value), value) {
        (Shape::Map, Value::Object(fields)) => {
            for (name, value) in fields {
                path.push(Step::Field(name.clone()));
                collect(known.field(name), value, path, set);
                if value.is_null() || value.as_object().is_some_and(Map::is_empty) || !known.declares(name) {
                    set.insert(path);
                }
                path.pop();
            }
        }
        (Shape::List(list), Value::Array(items)) => {
            let items_by_step = known.indexed(list, items);
            for (at, (step, item)) in items_by_step.iter().enumerate() {
                let twice = items_by_step
                    .iter()
                    .enumerate()
                    .any(|(other, (found, _))| other != at && found == step);
                path.push(step.clone());
                if !twice {
                    collect(known.items(), item, path, set);
                }
                set.insert(path);
                path.pop();
            }
        }
        _ => set.insert(path),
    }
}

/// What differs between two objects.
#[derive(Clone, Debug, Default)]
pub(super) struct Comparison {
    pub(super) removed: FieldSet,
    pub(super) modified: FieldSet,
    pub(super) added: FieldSet,
}

impl Comparison {
    /// The same, without some fields and all that is below them.
    pub(super) fn without(&self, fields: &FieldSet) -> Self {
        Self {
            removed: self.removed.without(fields),
            modified: self.modified.without(fields),
            added: self.added.without(fields),
        }
    }
}

/// Compares an object with what it became.
pub(super) fn compare(known: Known<'_>, old: &Value, new: &Value) -> Comparison {
    let mut comparison = Comparison::default();
    differ(known, Some(old), Some(new), &mut Vec::new(), &mut comparison);
    comparison
}

fn is_hollow(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => true,
        Some(Value::Object(fields)) => fields.is_empty(),
        Some(Value::Array(items)) => items.is_empty(),
        Some(_) => false,
    }
}

/// The shape in which two values are walked together.
fn common_shape<'a>(known: Known<'a>, old: Option<&Value>, new: Option<&Value>) -> Shape<'a> {
    // Two empty containers, or one and nothing, are told apart as they are.
    if is_hollow(old) && is_hollow(new) {
        return Shape::Leaf;
    }
    let shape = |value: Option<&Value>| {
        value
            .filter(|value| !value.is_null())
            .map(|value| known.shape(value))
    };
    match (shape(old), shape(new)) {
        (Some(one), None) | (None, Some(one)) => one,
        (Some(Shape::Map), Some(Shape::Map)) => Shape::Map,
        (Some(Shape::List(list)), Some(Shape::List(_))) => Shape::List(list),
        _ => Shape::Leaf,
    }
}

fn differ(
    known: Known<'_>,
    old: Option<&Value>,
    new: Option<&Value>,
    path: &mut Vec<Step>,
    found: &mut Comparison,
) {
    match common_shape(known, old, new) {
        Shape::Map => {
            let (old, new) = (old.and_then(Value::as_object), new.and_then(Value::as_object));
            let names = old.into_iter().flatten().map(|(name, _)| name);
            let added = new.into_iter().flatten().map(|(name, _)| name);
            let added = added.filter(|name| !old.is_some_and(|old| old.contains_key(*name)));
            for name in names.chain(added) {
                path.push(Step::Field(name.clone()));
                let (old, new) = (
                    old.and_then(|old| old.get(name)),
                    new.and_then(|new| new.get(name)),
                );
                differ(known.field(name), old, new, path, found);
                path.pop();
            }
        }
        Shape::List(list) => differ_items(known, list, old, new, path, found),
        Shape::Leaf => {
            match (old, new) {
                (None, _) => found.added.insert(path),
                (_, None) => found.removed.insert(path),
                (Some(old), Some(new)) if !same(old, new) => found.modified.insert(path),
                _ => {}
            }
            return;
        }
    }
    if old.is_none() {
        found.added.insert(path);
    } else if new.is_none() {
        found.removed.insert(path);
    }
}

fn differ_items(
    known: Known<'_>,
    list: &ListType,
    old: Option<&Value>,
    new: Option<&Value>,
    path: &mut Vec<Step>,
    found: &mut Comparison,
) {
    let group = |value: Option<&Value>| {
        let mut groups: BTreeMap<Step, Vec<Value>> = BTreeMap::new();
        for (step, item) in known.indexed(list, value.and_then(Value::as_array).map_or(&[], Vec::as_slice)) {
            groups.entry(step).or_default().push(item.clone());
        }
        groups
    };
    let (old, new) = (group(old), group(new));
    let steps = old
        .keys()
        .chain(new.keys().filter(|step| !old.contains_key(*step)));
    for step in steps {
        let before = old.get(step).map_or(&[][..], Vec::as_slice);
        let after = new.get(step).map_or(&[][..], Vec::as_slice);
        path.push(step.clone());
        // Items with the same key cannot be told apart: together they are one field.
        match (before, after) {
            ([], [_]) | ([_], []) | ([_], [_]) => {
                differ(known.items(), before.first(), after.first(), path, found);
            }
            ([_, _, ..], [_, _, ..]) => {
                if before.len() != after.len() || before.iter().zip(after).any(|(a, b)| !same(a, b)) {
                    found.modified.insert(path);
                }
            }
            ([_, _, ..], _) => {
                if let Some(after) = after.first() {
                    differ(known.items(), None, Some(after), path, found);
                }
                found.removed.insert(path);
            }
            _ => {
                if let Some(before) = before.first() {
                    differ(known.items(), Some(before), None, path, found);
                }
                found.added.insert(path);
            }
        }
        path.pop();
    }
}

/// The live object with an applied configuration merged into it.
pub(super) fn merge(known: Known<'_>, live: &Value, applied: &Value) -> Value {
    merge_values(known, Some(live), Some(applied)).unwrap_or_default()
}

fn merge_values(known: Known<'_>, live: Option<&Value>, applied: Option<&Value>) -> Option<Value> {
    match common_shape(known, live, applied) {
        Shape::Leaf => applied.or(live).cloned(),
        Shape::Map => {
            let mut merged = Map::new();
            let (live, applied) = (
                live.and_then(Value::as_object),
                applied.and_then(Value::as_object),
            );
            for (name, value) in live.into_iter().flatten() {
                if let Some(value) = merge_values(
                    known.field(name),
                    Some(value),
                    applied.and_then(|map| map.get(name)),
                ) {
                    merged.insert(name.clone(), value);
                }
            }
            let new = applied
                .into_iter()
                .flatten()
                .filter(|(name, _)| !live.is_some_and(|live| live.contains_key(*name)));
            for (name, value) in new {
                if let Some(value) = merge_values(known.field(name), None, Some(value)) {
                    merged.insert(name.clone(), value);
                }
            }
            Some(Value::Object(merged)).filter(|merged| !is_hollow(Some(merged)))
        }
        Shape::List(list) => {
            let items =
                |value: Option<&'_ Value>| value.and_then(Value::as_array).cloned().unwrap_or_default();
            let merged = merge_items(known, list, &items(live), &items(applied));
            Some(Value::Array(merged)).filter(|merged| !is_hollow(Some(merged)))
        }
    }
}

/// Items keep the order of the configuration; items that only the live list has stay where they were between them.
fn merge_items(known: Known<'_>, list: &ListType, live: &[Value], applied: &[Value]) -> Vec<Value> {
    let (live, applied) = (known.indexed(list, live), known.indexed(list, applied));
    let in_live = |step: &Step| {
        live.iter()
            .find(|(found, _)| found == step)
            .map(|(_, item)| *item)
    };
    let in_applied = |step: &Step| applied.iter().any(|(found, _)| found == step);
    let mut shared = applied
        .iter()
        .map(|(step, _)| step)
        .filter(|step| in_live(step).is_some());
    let mut next_shared = shared.next();
    let mut taken: Vec<&Step> = Vec::new();
    let mut merged = Vec::new();
    let (mut left, mut right) = (0, 0);
    while left < live.len() || right < applied.len() {
        if let Some((step, item)) = live.get(left) {
            if let Some((other, wanted)) = applied.get(right) {
                if step == other {
                    taken.push(step);
                    merged.extend(merge_values(known.items(), Some(item), Some(wanted)));
                    (left, right) = (left + 1, right + 1);
                    next_shared = shared.next();
                    continue;
                }
                if in_applied(step) && next_shared.is_some_and(|next| next != step) {
                    // Shared, but not the one whose turn it is.
                    left += 1;
                    continue;
                }
            }
            if !in_applied(step) {
                merged.push((*item).clone());
                left += 1;
                continue;
            }
            if taken.contains(&step) {
                left += 1;
            }
        }
        if let Some((step, wanted)) = applied.get(right) {
            taken.push(step);
            merged.extend(merge_values(known.items(), in_live(step), Some(wanted)));
            right += 1;
            if next_shared == Some(step) {
                next_shared = shared.next();
            }
        }
    }
    merged
}

/// A value without the fields of a set; nothing where nothing is left of it.
pub(super) fn remove(known: Known<'_>, value: &Value, set: &FieldSet) -> Option<Value> {
    let left = match (known.shape(value), value) {
        (Shape::Map, Value::Object(fields)) => {
            let mut left = Map::new();
            for (name, value) in fields {
                let step = Step::Field(name.clone());
                if set.members.contains(&step) {
                    continue;
                }
                let value = match set.children.get(&step) {
                    // An entry of which nothing is left is null, as in kube-apiserver.
                    Some(below) => remove(known.field(name), value, below).unwrap_or_default(),
                    None => value.clone(),
                };
                left.insert(name.clone(), value);
            }
            Value::Object(left)
        }
        (Shape::List(list), Value::Array(items)) => {
            let mut left = Vec::new();
            for item in items {
                let Ok(step) = known.step(list, item) else {
                    continue;
                };
                if set.members.contains(&step) {
                    continue;
                }
                left.push(match set.children.get(&step) {
                    Some(below) => remove(known.items(), item, below).unwrap_or_default(),
                    None => item.clone(),
                });
            }
            Value::Array(left)
        }
        // Atomic containers go with the field that holds them.
        _ => return Some(value.clone()).filter(|value| !value.is_object() && !value.is_array()),
    };
    Some(left).filter(|left| !is_hollow(Some(left)))
}

/// The set with the fields that the schema names and that lead to its members: `spec` where it has `spec.replicas`.
pub(super) fn with_named_parents(known: Known<'_>, set: &FieldSet) -> FieldSet {
    let mut whole = FieldSet {
        members: set.members.clone(),
        children: BTreeMap::new(),
    };
    for (step, child) in &set.children {
        let below = match step {
            Step::Field(name) => {
                if known.declares(name) {
                    whole.members.insert(step.clone());
                }
                known.field(name)
            }
            _ => known.items(),
        };
        whole
            .children
            .insert(step.clone(), with_named_parents(below, child));
    }
    whole
}

/// What makes a configuration unfit to be applied, as kube-apiserver words it.
pub(super) fn check(known: Known<'_>, value: &Value, path: &mut Vec<Step>, errors: &mut Vec<String>) {
    let Known::Node(cursor) = known else { return };
    if let Some(expected) = mismatch(cursor, value) {
        errors.push(format!("{}: {expected}", super::fieldpath::display(path)));
        return;
    }
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                path.push(Step::Field(name.clone()));
                if cursor.field(name).is_none() && !cursor.keeps_unknown() {
                    errors.push(format!(
                        "{}: field not declared in schema",
                        super::fieldpath::display(path)
                    ));
                } else {
                    check(known.field(name), value, path, errors);
                }
                path.pop();
            }
        }
        Value::Array(items) => {
            let list = &cursor.node().list;
            let mut seen = Vec::new();
            for (index, item) in items.iter().enumerate() {
                let at = super::fieldpath::display(path);
                let step = match list {
                    ListType::Atomic => Step::Index(index as u64),
                    list => match known.step(list, item) {
                        Ok(step) => step,
                        Err(why) => {
                            errors.push(format!("{at}: element {index}: {why}"));
                            return;
                        }
                    },
                };
                if seen.contains(&step) {
                    errors.push(format!("{at}: duplicate entries for key {step}"));
                }
                seen.push(step.clone());
                path.push(step);
                check(known.items(), item, path, errors);
                path.pop();
            }
        }
        _ => {}
    }
}

/// What a value was expected to be, where it is something else.
fn mismatch(cursor: Cursor<'_>, value: &Value) -> Option<String> {
    let node = cursor.node();
    if value.is_null() || node.int_or_string {
        return None;
    }
    let go_type = match value {
        Value::Null => "nil",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    };
    let (fits, message) = match node.kind? {
        Type::Object => (value.is_object(), format!("expected map, got &{{{value}}}")),
        Type::Array => (value.is_array(), format!("expected list, got &{{{value}}}")),
        Type::Integer | Type::Number => (
            value.is_number(),
            format!("expected numeric (int or float), got {go_type}"),
        ),
        Type::Boolean => (value.is_boolean(), format!("expected boolean, got &{{{value}}}")),
        // Texts with a format are any scalar to server-side apply.
        Type::String if node.format.is_some() => (true, String::new()),
        Type::String => (
            value.is_string(),
            format!("expected string, got &value.valueUnstructured{{Value:{value}}}"),
        ),
    };
    (!fits).then_some(message)
}
