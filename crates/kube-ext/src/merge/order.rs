//! `$setElementOrder`: the order that a patch wants the items of a merged list to have.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::{
    error::{MergeError, Path, shown},
    list::{Identity, is_scalar},
    schema::{Field, Object},
};

/// The order that the patch wants a list to have, and what the list was before.
pub(super) struct Order<'a> {
    name: &'a str,
    wanted: &'a [Value],
    before: Vec<Value>,
}

impl<'a> Order<'a> {
    pub(super) fn of(name: &'a str, wanted: &'a [Value], base: &Map<String, Value>) -> Self {
        let before = base.get(name).and_then(Value::as_array).cloned();
        Self {
            name,
            wanted,
            before: before.unwrap_or_default(),
        }
    }

    /// Sorts the list of the merged object.
    pub(super) fn apply(
        self,
        schema: &Object,
        path: &Path<'_>,
        merged: &mut Map<String, Value>,
        patch: &Map<String, Value>,
    ) -> Result<(), MergeError> {
        let path = path.field(self.name);
        let names = match schema.field(self.name) {
            Some(field @ (Field::List(_) | Field::Set)) => Names(field),
            Some(Field::Object(_)) | None => {
                return Err(path.error(
                    "is no list whose items have keys, which is all that $setElementOrder can order",
                    "write its items in the order that is wanted",
                ));
            }
        };
        names.check(&path, self.wanted, patch.get(self.name).and_then(Value::as_array))?;
        if let Some(Value::Array(items)) = merged.get_mut(self.name) {
            names.sort(items, self.wanted, &self.before);
        }
        Ok(())
    }
}

/// How items of a list are named.
#[derive(Clone, Copy)]
struct Names(&'static Field);

impl Names {
    /// Every item that the patch sets must be named, in the order the patch has them.
    fn check(self, path: &Path<'_>, order: &[Value], patch: Option<&Vec<Value>>) -> Result<(), MergeError> {
        if let Some(item) = order.iter().find(|item| self.named(item).is_none()) {
            let problem = format!("$setElementOrder has {}", shown(item));
            return Err(match self.0 {
                Field::List(list) => path.error(problem, format!("write the {} of each item", list.key)),
                Field::Object(_) | Field::Set => path.error(problem, "write single values"),
            });
        }
        let mut rest = order.iter();
        for item in patch.into_iter().flatten() {
            let is_directive = item.get("$patch").is_some_and(|action| action != "merge");
            if !is_directive && !rest.any(|name| self.is(name, item)) {
                return Err(path.error(
                    format!(
                        "$setElementOrder does not name {} where the list has it",
                        shown(item)
                    ),
                    "name every item of the list in the same order",
                ));
            }
        }
        Ok(())
    }

    /// Puts the items that `order` names in its order. The others stay in order, too, each before the first of
    /// those that it was before in `before`.
    fn sort(self, items: &mut Vec<Value>, order: &[Value], before: &[Value]) {
        let wanted = Index::of(order.iter().map(|name| self.named(name)));
        let places = Index::of(before.iter().map(|item| self.identity(item)));
        let all = items.drain(..).map(|item| {
            let identity = self.identity(&item);
            let (rank, place) = (wanted.find(&identity), places.find(&identity));
            (rank, place, item)
        });
        let (mut named, others): (Vec<_>, Vec<_>) = all.partition(|(rank, _, _)| rank.is_some());
        named.sort_by_key(|(rank, _, _)| *rank);
        let mut named = named.into_iter().peekable();
        for (_, place, other) in others {
            let is_after = |next: Option<usize>| next.zip(place).is_some_and(|(next, place)| next > place);
            while let Some((_, _, next)) = named.next_if(|(_, next, _)| !is_after(*next)) {
                items.push(next);
            }
            items.push(other);
        }
        items.extend(named.map(|(_, _, item)| item));
    }

    fn is(self, name: &Value, item: &Value) -> bool {
        match (self.named(name), self.identity(item)) {
            (Some((key, None)), Some((other, _))) => key == other,
            (named, identity) => named == identity,
        }
    }

    fn identity(self, item: &Value) -> Option<Identity> {
        match self.0 {
            Field::List(list) => list.identity(item),
            Field::Object(_) | Field::Set => is_scalar(item).then(|| (item.clone(), None)),
        }
    }

    fn named(self, item: &Value) -> Option<Identity> {
        match self.0 {
            Field::List(list) => list.named(item),
            Field::Object(_) | Field::Set => self.identity(item),
        }
    }
}

/// Positions by identity.
struct Index(HashMap<Identity, usize>);

impl Index {
    fn of(identities: impl Iterator<Item = Option<Identity>>) -> Self {
        let mut index = HashMap::new();
        for (place, identity) in identities.enumerate() {
            if let Some(identity) = identity {
                index.entry(identity).or_insert(place);
            }
        }
        Self(index)
    }

    /// The position of an item, or of what names it by its key alone.
    fn find(&self, identity: &Option<Identity>) -> Option<usize> {
        let (key, also) = identity.as_ref()?;
        let by_key = self.0.get(&(key.clone(), None)).copied();
        let by_both = self.0.get(&(key.clone(), also.clone())).copied();
        by_key.into_iter().chain(by_both).min()
    }
}
