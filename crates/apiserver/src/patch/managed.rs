//! `metadata.managedFields`: who owns which field.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::{
    fieldpath::FieldSet,
    typed::{self, Comparison},
};
use crate::resource::ResourceType;

/// The most entries of updates; older ones are put together (`DefaultMaxUpdateManagers`).
const MOST_UPDATERS: usize = 10;
/// The entry that older ones are put into.
const ANCIENT: &str = "ancient-changes";

/// Fields that nobody owns: the server sets them, or they name the object.
const UNOWNED: [&[&str]; 12] = [
    &["apiVersion"],
    &["kind"],
    &["metadata"],
    &["metadata", "name"],
    &["metadata", "namespace"],
    &["metadata", "creationTimestamp"],
    &["metadata", "selfLink"],
    &["metadata", "uid"],
    &["metadata", "clusterName"],
    &["metadata", "generation"],
    &["metadata", "managedFields"],
    &["metadata", "resourceVersion"],
];

/// How a manager writes. Ordered as entries are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Operation {
    /// Server-side apply.
    Apply,
    /// Everything else.
    Update,
}

impl Operation {
    fn name(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

/// Who makes a change, as `metadata.managedFields` records it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manager<'a> {
    /// The field manager.
    pub(crate) name: &'a str,
    /// `status` or `scale`; empty for the object itself.
    pub(crate) subresource: &'a str,
    /// The time of the change.
    pub(crate) now: Timestamp,
}

/// What tells two entries apart. An applier has one entry, whichever version it applies.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Id {
    pub(super) manager: String,
    pub(super) operation: Operation,
    /// Empty for appliers.
    api_version: String,
    pub(super) subresource: String,
}

impl Id {
    pub(super) fn of(operation: Operation, resource: &ResourceType, manager: Manager<'_>) -> Self {
        Self {
            manager: if manager.name.is_empty() {
                "unknown"
            } else {
                manager.name
            }
            .to_owned(),
            operation,
            api_version: match operation {
                Operation::Apply => String::new(),
                Operation::Update => resource.api_version(),
            },
            subresource: manager.subresource.to_owned(),
        }
    }

    /// As conflicts show it.
    pub(super) fn display(&self) -> String {
        let mut text = format!("{:?}", self.manager);
        if !self.subresource.is_empty() {
            text.push_str(&format!(" with subresource {:?}", self.subresource));
        }
        if self.operation == Operation::Update {
            text.push_str(&format!(" using {}", self.api_version));
        }
        text
    }
}

/// What one manager owns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Owned {
    pub(super) fields: FieldSet,
    pub(super) api_version: String,
    /// RFC 3339 to the second; nothing where an apply changed nothing.
    pub(super) time: Option<String>,
}

/// All owners of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Managers(pub(super) BTreeMap<Id, Owned>);

impl Managers {
    /// The owners that an object names; nothing where one entry cannot be read.
    pub(super) fn decode(object: &Value) -> Option<Self> {
        let entries = object
            .pointer("/metadata/managedFields")
            .and_then(Value::as_array);
        let mut managers = BTreeMap::new();
        for entry in entries.into_iter().flatten() {
            let text = |field: &str| {
                entry
                    .get(field)
                    .and_then(Value::as_str)
                    .unwrap_or_default()
                    .to_owned()
            };
            let operation = match text("operation").as_str() {
                "Apply" => Operation::Apply,
                "Update" => Operation::Update,
                _ => return None,
            };
            let empty = json!({});
            let fields = FieldSet::decode(entry.get("fieldsV1").unwrap_or(&empty))?;
            let id = Id {
                manager: text("manager"),
                operation,
                api_version: if operation == Operation::Apply {
                    String::new()
                } else {
                    text("apiVersion")
                },
                subresource: text("subresource"),
            };
            let time = entry.get("time").and_then(Value::as_str).map(str::to_owned);
            managers.insert(
                id,
                Owned {
                    fields,
                    api_version: text("apiVersion"),
                    time,
                },
            );
        }
        Some(Self(managers))
    }

    /// Writes the owners into an object, in the order of kube-apiserver.
    pub(super) fn encode(&self, object: &mut Value) {
        let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else {
            return;
        };
        let mut owners: Vec<_> = self.0.iter().collect();
        owners.sort_by_key(|(id, owned)| {
            (
                id.operation,
                owned.time.clone(),
                id.manager.clone(),
                owned.api_version.clone(),
                id.subresource.clone(),
            )
        });
        if owners.is_empty() {
            metadata.shift_remove("managedFields");
            return;
        }
        let entries = owners.into_iter().map(|(id, owned)| {
            let mut entry = Map::new();
            entry.insert("manager".to_owned(), id.manager.as_str().into());
            entry.insert("operation".to_owned(), id.operation.name().into());
            entry.insert("apiVersion".to_owned(), owned.api_version.as_str().into());
            if let Some(time) = &owned.time {
                entry.insert("time".to_owned(), time.as_str().into());
            }
            entry.insert("fieldsType".to_owned(), "FieldsV1".into());
            entry.insert("fieldsV1".to_owned(), owned.fields.encode());
            if !id.subresource.is_empty() {
                entry.insert("subresource".to_owned(), id.subresource.as_str().into());
            }
            Value::Object(entry)
        });
        metadata.insert("managedFields".to_owned(), Value::Array(entries.collect()));
    }

    /// Takes the fields that changed from everybody but `writer`, and those that are gone from all others.
    pub(super) fn take(&mut self, writer: &Id, changes: &Comparison) {
        let changed = changes.modified.union(&changes.added).union(&changes.removed);
        for (_, owned) in self.0.iter_mut().filter(|(id, _)| *id != writer) {
            owned.fields = owned.fields.difference(&changed);
        }
        self.0
            .retain(|id, owned| id == writer || !owned.fields.is_empty());
    }

    /// Puts the oldest updates together until there are few enough.
    fn cap(&mut self) {
        let mut updaters: Vec<Id> = self
            .0
            .keys()
            .filter(|id| id.operation == Operation::Update)
            .cloned()
            .collect();
        let mut left = updaters.len();
        updaters.sort_by_key(|id| (self.0.get(id).and_then(|owned| owned.time.clone()), id.clone()));
        let mut first_of_version: BTreeMap<String, Id> = BTreeMap::new();
        for id in updaters {
            if left <= MOST_UPDATERS {
                return;
            }
            let version = id.api_version.clone();
            let Some(first) = first_of_version.get(&version) else {
                first_of_version.insert(version, id);
                continue;
            };
            let bucket = Id {
                manager: ANCIENT.to_owned(),
                operation: Operation::Update,
                api_version: version,
                subresource: String::new(),
            };
            if !self.0.contains_key(&bucket)
                && let Some(owned) = self.0.remove(first)
            {
                self.0.insert(bucket.clone(), owned);
            }
            if let (Some(owned), Some(old)) = (self.0.remove(&id), self.0.get_mut(&bucket)) {
                old.fields = old.fields.union(&owned.fields);
                old.time = owned.time;
                left -= 1;
            }
        }
    }
}

/// What nobody owns.
pub(super) fn strip(fields: &FieldSet) -> FieldSet {
    fields.difference(&FieldSet::of_fields(&UNOWNED))
}

/// The fields that a call cannot change, whatever it sends: the status where it has a subresource of its own, and on
/// that subresource everything else.
pub(super) fn beyond_reach(resource: &ResourceType, subresource: &str) -> FieldSet {
    let paths: &[&[&str]] = match (subresource, resource.builtin) {
        ("status", true) => &[&["spec"]],
        ("status", false) => &[&["apiVersion"], &["kind"], &["metadata"], &["spec"]],
        _ if resource.status => &[&["status"]],
        _ => &[],
    };
    FieldSet::of_fields(paths)
}

/// Times of entries are kept to the second.
pub(super) fn seconds(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second())
        .unwrap_or(time)
        .to_string()
}

/// Takes the managed fields out of an object: they are no fields themselves.
pub(super) fn without_owners(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.shift_remove("managedFields");
    }
    object
}

/// Whether the caller asks to forget all owners: with a list of one empty entry, or with an empty list. The latter is
/// no list at all in a custom resource.
fn is_reset(resource: &ResourceType, object: &Value) -> bool {
    match object
        .pointer("/metadata/managedFields")
        .and_then(Value::as_array)
        .map(Vec::as_slice)
    {
        Some([]) => resource.builtin,
        Some([entry]) => entry.as_object().is_some_and(Map::is_empty),
        _ => false,
    }
}

/// Records in `new` which fields a create, update or patch changed. Call it after defaulting, and after what the
/// caller may not change was put back. Where nothing changed, the owners stay as they were.
pub(crate) fn track_update(
    resource: &ResourceType,
    live: Option<&Value>,
    new: &mut Value,
    manager: Manager<'_>,
) {
    let whole = manager.subresource.is_empty();
    let mut managers = if whole && is_reset(resource, new) {
        Managers::default()
    } else {
        // Owners may be edited on the object itself; not on a subresource.
        let sent = Managers::decode(new).filter(|sent| whole && !sent.0.is_empty());
        sent.or_else(|| live.and_then(Managers::decode))
            .unwrap_or_default()
    };
    *new = without_owners(new);
    // Where owners were forgotten, they are only noted again from the next apply on.
    if live.is_none() || !managers.0.is_empty() {
        update(resource, live, new, &mut managers, manager);
        managers.cap();
    }
    managers.encode(new);
}

/// Gives the writer what changed.
pub(super) fn update(
    resource: &ResourceType,
    live: Option<&Value>,
    new: &Value,
    managers: &mut Managers,
    manager: Manager<'_>,
) {
    let old = live.map_or_else(|| resource.schema.zero(), without_owners);
    let changes = typed::compare(typed::root(resource.schema.root()), &old, new)
        .without(&beyond_reach(resource, manager.subresource));
    let writer = Id::of(Operation::Update, resource, manager);
    // An entry of the writer itself loses what is gone and gains what changed; the others only lose.
    managers.take(&writer, &changes);
    if let Some(own) = managers.0.get_mut(&writer) {
        own.fields = own.fields.difference(&changes.removed);
    }
    let changed = strip(&changes.modified.union(&changes.added));
    if !changed.is_empty() {
        let own = managers.0.entry(writer).or_default();
        own.fields = own.fields.union(&changed);
        own.api_version = resource.api_version();
        own.time = Some(seconds(manager.now));
    }
    managers.0.retain(|_, owned| !owned.fields.is_empty());
}
