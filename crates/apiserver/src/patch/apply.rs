//! Server-side apply: a manager says all that it wants, and what it no longer says goes.
//!
//! The steps are those of structured-merge-diff (package `merge`): merge, prune what this manager applied before and
//! nobody owns now, then compare with the live object to find conflicts and new owners.

use http::StatusCode;
use serde_json::{Map, Value};

use super::{
    fieldpath::{FieldSet, Step, display},
    managed::{self, Id, Manager, Managers, Operation, Owned},
    typed::{self, Known},
};
use crate::{
    error::{ApiError, Cause},
    resource::ResourceType,
    schema::same,
};

/// Owns the fields of an object that was made without managed fields.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";
/// The manager of `kubectl apply --server-side`, which may take over what `kubectl apply` wrote before.
const KUBECTL: &str = "kubectl";
/// Where `kubectl apply` keeps what it applied.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// A field that somebody else owns and that the apply would change.
type Conflict = (Id, Vec<Step>);

/// Applies a configuration to the stored object, or makes a new one. Returns the object with its managed fields; the
/// stored object itself where the apply changes neither a value nor an owner. Defaults are the caller's business.
///
/// # Errors
/// Where others own what the configuration changes and `force` is not given, or where the configuration does not fit
/// the schema.
pub(crate) fn apply(
    resource: &ResourceType,
    live: Option<&Value>,
    applied: &Value,
    manager: Manager<'_>,
    force: bool,
) -> Result<Value, ApiError> {
    if applied.pointer("/metadata/managedFields").is_some() {
        return Err(ApiError::bad_request("metadata.managedFields must be nil"));
    }
    let known = typed::root(resource.schema.root());
    check(resource, known, applied)?;
    let stored = live;
    let live = stored.map_or_else(|| resource.schema.zero(), managed::without_owners);
    let mut managers = stored.and_then(Managers::decode).unwrap_or_default();
    if stored.is_some() && managers.0.is_empty() {
        let before = Manager {
            name: BEFORE_FIRST_APPLY,
            ..manager
        };
        managed::update(resource, None, &live, &mut managers, before);
    }

    let applier = Id::of(Operation::Apply, resource, manager);
    let last = managers.0.get(&applier).cloned();
    let unreachable = managed::beyond_reach(resource, manager.subresource);
    let own = Owned {
        fields: typed::field_set(known, applied).without(&unreachable),
        api_version: resource.api_version(),
        time: last.as_ref().and_then(|last| last.time.clone()),
    };
    managers.0.insert(applier.clone(), own);
    let mut object = typed::merge(known, &live, applied);
    if let Some(last) = last.filter(|last| !last.fields.is_empty()) {
        object = prune(known, &object, &last.fields, &managers);
    }

    let changes = typed::compare(known, &live, &object).without(&unreachable);
    if !force {
        let conflicts = conflicts(&managers, &applier, &changes.modified.union(&changes.added));
        let conflicts = beyond_last_applied(resource, &live, manager, conflicts);
        if !conflicts.is_empty() {
            return Err(refused(&conflicts));
        }
    }
    managers.take(&applier, &changes);
    if let Some(own) = managers.0.get_mut(&applier) {
        own.fields = managed::strip(&own.fields);
        if !same(&live, &object) {
            own.time = Some(managed::seconds(manager.now));
        }
    }
    managers.0.retain(|_, owned| !owned.fields.is_empty());
    if manager.name == KUBECTL {
        note_last_applied(&mut object, applied);
    }
    managers.encode(&mut object);
    match stored {
        // Field order is all that could differ.
        Some(stored) if same(stored, &object) => Ok(stored.clone()),
        _ => Ok(object),
    }
}

/// A configuration must fit the schema before it can be owned field by field.
fn check(resource: &ResourceType, known: Known<'_>, applied: &Value) -> Result<(), ApiError> {
    let mut errors = Vec::new();
    typed::check(known, applied, &mut Vec::new(), &mut errors);
    let why = match errors.as_slice() {
        [] => return Ok(()),
        [one] => one.clone(),
        many => format!("errors:\n  {}", many.join("\n  ")),
    };
    let text = |field: &str| applied["metadata"][field].as_str().unwrap_or_default();
    let message = format!(
        "failed to create typed patch object ({}/{}; {}, Kind={}): {why}",
        text("namespace"),
        text("name"),
        resource.api_version(),
        resource.kind
    );
    Err(ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "", message))
}

fn refused(conflicts: &[Conflict]) -> ApiError {
    let causes = conflicts.iter().map(|(id, path)| Cause {
        reason: "FieldManagerConflict".to_owned(),
        message: format!("conflict with {}", id.display()),
        field: display(path),
    });
    let message = match conflicts {
        [(id, path)] => format!(
            "Apply failed with 1 conflict: conflict with {}: {}",
            id.display(),
            display(path)
        ),
        many => {
            let mut lines = Vec::new();
            for (at, (id, path)) in many.iter().enumerate() {
                if at == 0 || many[at - 1].0 != *id {
                    lines.push(format!("conflicts with {}:", id.display()));
                }
                lines.push(format!("- {}", display(path)));
            }
            format!("Apply failed with {} conflicts: {}", many.len(), lines.join("\n"))
        }
    };
    ApiError::apply_conflict(message, causes.collect())
}

/// Removes what the manager applied last time, does not apply now, and nobody owns.
fn prune(known: Known<'_>, merged: &Value, last: &FieldSet, managers: &Managers) -> Value {
    let named = |set: &FieldSet| typed::with_named_parents(known, set);
    let without = |set: &FieldSet| typed::remove(known, merged, set).unwrap_or_default();
    let everything = named(&typed::field_set(known, merged));
    let pruned = without(&named(last));
    // What somebody owns comes back.
    let owned = managers
        .0
        .values()
        .fold(FieldSet::default(), |all, owned| all.union(&owned.fields));
    let kept = named(&typed::field_set(known, &pruned)).union(&named(&owned));
    let pruned = without(&everything.difference(&kept));
    // What went with a container but was never applied by this manager comes back as well.
    let kept = named(&typed::field_set(known, &pruned));
    without(&everything.difference(&kept).intersection(&named(last)))
}

fn conflicts(managers: &Managers, applier: &Id, changed: &FieldSet) -> Vec<Conflict> {
    let others = managers.0.iter().filter(|(id, _)| *id != applier);
    others
        .flat_map(|(id, owned)| {
            let both = owned.fields.intersection(changed);
            both.paths()
                .into_iter()
                .map(|path| (id.clone(), path))
                .collect::<Vec<_>>()
        })
        .collect()
}

/// Keeps the annotation of `kubectl apply` true where there is one, so that going back to it loses nothing.
fn note_last_applied(object: &mut Value, applied: &Value) {
    let note = object
        .pointer_mut("/metadata/annotations")
        .and_then(|annotations| annotations.get_mut(LAST_APPLIED));
    let Some(note) = note.filter(|note| note.as_str().is_some_and(|text| !text.is_empty())) else {
        return;
    };
    let mut applied = applied.clone();
    if let Some(metadata) = applied.get_mut("metadata").and_then(Value::as_object_mut)
        && let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut)
    {
        annotations.shift_remove(LAST_APPLIED);
        if annotations.is_empty() {
            metadata.shift_remove("annotations");
        }
    }
    *note = format!("{}\n", sorted(&applied)).into();
}

/// The same value with its fields in the order of their names, as Go writes maps.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_by_key(|(name, _)| *name);
            let fields = fields
                .into_iter()
                .map(|(name, value)| (name.clone(), sorted(value)));
            Value::Object(fields.collect::<Map<_, _>>())
        }
        Value::Array(items) => items.iter().map(sorted).collect(),
        value => value.clone(),
    }
}

/// `kubectl apply --server-side` takes over from `kubectl apply` without a conflict: what the annotation of the latter
/// says, and the live object still has, is its own.
fn beyond_last_applied(
    resource: &ResourceType,
    live: &Value,
    manager: Manager<'_>,
    conflicts: Vec<Conflict>,
) -> Vec<Conflict> {
    let known = typed::root(resource.schema.root());
    let annotation = live
        .get("metadata")
        .and_then(|metadata| metadata.get("annotations")?.get(LAST_APPLIED)?.as_str());
    let last = annotation.and_then(|text| serde_json::from_str::<Value>(text).ok());
    let Some(last) = last.filter(|last| {
        manager.name == KUBECTL
            && last
                .get("apiVersion")
                .is_some_and(|version| *version == resource.api_version())
    }) else {
        return conflicts;
    };
    let changes = typed::compare(known, &last, live);
    let moved = changes.modified.union(&changes.added).union(&changes.removed);
    let own = typed::field_set(known, &last).difference(&moved);
    let allowed = own.paths();
    conflicts
        .into_iter()
        .filter(|(_, path)| !allowed.contains(path))
        .collect()
}
