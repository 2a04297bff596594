//! Taking over what another program wrote by plain updates.
//!
//! Server-side apply removes what a manager applied before and no longer wants. What a predecessor wrote without
//! apply is nobody's to remove; so its entries in `managedFields` are made ours once, before our first apply, as
//! client-go's `csaupgrade` does.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{FieldsV1, ManagedFieldsEntry};
use kube::{
    Api,
    api::{Patch, PatchParams},
    core::DynamicObject,
};
use serde_json::{Map, Value, json};

use crate::apply::Applier;

pub(crate) const APPLY: &str = "Apply";
const UPDATE: &str = "Update";

/// Makes the fields of the predecessors ours, where there are any and none is ours yet, and returns the object as
/// it is then. `subresource` is `None` or, say, `Some("status")`.
///
/// # Errors
/// 409 where the object has changed since it was read, and whatever the API server says.
pub(crate) async fn take_over(
    api: &Api<DynamicObject>,
    live: &DynamicObject,
    applier: &Applier,
    subresource: Option<&str>,
) -> Result<Option<DynamicObject>, kube::Error> {
    let entries = live.metadata.managed_fields.as_deref().unwrap_or_default();
    let Some(entries) = taken_over(entries, applier.manager, applier.predecessors, subresource) else {
        return Ok(None);
    };
    let meta = &live.metadata;
    let name = meta.name.as_deref().unwrap_or_default();
    tracing::info!(name, "taking over what another field manager wrote");
    write(api, live, applier, entries).await.map(Some)
}

/// Makes the fields of the spec ours that others wrote into an object of ours, and tells whether there were any.
///
/// # Errors
/// As [`take_over`].
pub(crate) async fn take_spec(
    api: &Api<DynamicObject>,
    live: &DynamicObject,
    applier: &Applier,
) -> Result<bool, kube::Error> {
    let entries = live.metadata.managed_fields.as_deref().unwrap_or_default();
    let Some(entries) = with_all_of_the_spec(entries, applier.manager) else {
        return Ok(false);
    };
    let name = live.metadata.name.as_deref().unwrap_or_default();
    tracing::info!(
        name,
        "taking over the spec, which others have made one that is refused"
    );
    write(api, live, applier, entries).await.map(|_| true)
}

/// Replaces the entries of what was read.
pub(crate) async fn write(
    api: &Api<DynamicObject>,
    live: &DynamicObject,
    applier: &Applier,
    entries: Vec<ManagedFieldsEntry>,
) -> Result<DynamicObject, kube::Error> {
    let meta = &live.metadata;
    let name = meta.name.as_deref().unwrap_or_default();
    // Entries are part of the object itself, those of its status, too. The version makes it a change of just what
    // was read.
    let change = json!({ "metadata": {
        "uid": meta.uid,
        "resourceVersion": meta.resource_version,
        "managedFields": entries,
    }});
    let params = PatchParams {
        field_manager: Some(applier.manager.to_owned()),
        ..PatchParams::default()
    };
    api.patch(name, &params, &Patch::Merge(change)).await
}

const SPEC: &str = "f:spec";

/// The entries with what others have of the spec moved to ours. Nothing where they have none of it, or we have not
/// applied the object.
fn with_all_of_the_spec(entries: &[ManagedFieldsEntry], manager: &str) -> Option<Vec<ManagedFieldsEntry>> {
    let is_whole = |entry: &ManagedFieldsEntry| entry.subresource.as_deref().unwrap_or_default().is_empty();
    let is_ours = |entry: &ManagedFieldsEntry| {
        is_whole(entry) && is(entry, APPLY) && entry.manager.as_deref() == Some(manager)
    };
    let mut taken = Map::new();
    let mut after: Vec<ManagedFieldsEntry> = entries.to_vec();
    for entry in after
        .iter_mut()
        .filter(|entry| is_whole(entry) && !is_ours(entry))
    {
        let mut fields = fields_of(entry);
        if let Some(spec) = fields.shift_remove(SPEC) {
            unite(&mut taken, Map::from_iter([(SPEC.to_owned(), spec)]));
            entry.fields_v1 = Some(FieldsV1(Value::Object(fields)));
        }
    }
    if taken.is_empty() {
        return None;
    }
    let ours = after.iter_mut().find(|entry| is_ours(entry))?;
    let mut fields = fields_of(ours);
    unite(&mut fields, taken);
    ours.fields_v1 = Some(FieldsV1(Value::Object(fields)));
    after.retain(|entry| !fields_of(entry).is_empty());
    Some(after)
}

/// The entries with those of the predecessors put together as one of ours. Nothing where that changes nothing.
fn taken_over(
    entries: &[ManagedFieldsEntry],
    manager: &str,
    predecessors: &[&str],
    subresource: Option<&str>,
) -> Option<Vec<ManagedFieldsEntry>> {
    let is_here = |entry: &ManagedFieldsEntry| {
        let name = entry.subresource.as_deref().filter(|name| !name.is_empty());
        name == subresource
    };
    let is_ours = |entry: &&ManagedFieldsEntry| {
        is_here(entry) && is(entry, APPLY) && entry.manager.as_deref() == Some(manager)
    };
    if entries.iter().any(|entry| is_ours(&entry)) {
        return None;
    }
    let (theirs, mut rest): (Vec<_>, Vec<_>) = entries.iter().cloned().partition(|entry| {
        let by = entry.manager.as_deref().unwrap_or_default();
        is_here(entry) && is(entry, UPDATE) && predecessors.contains(&by)
    });
    let mut theirs = theirs.into_iter();
    let mut ours = theirs.next()?;
    let mut fields = fields_of(&ours);
    for other in theirs {
        unite(&mut fields, fields_of(&other));
        // The newest says which version of the API the next apply starts from.
        if other.time > ours.time {
            ours = other;
        }
    }
    rest.push(ManagedFieldsEntry {
        manager: Some(manager.to_owned()),
        operation: Some(APPLY.to_owned()),
        fields_v1: Some(FieldsV1(Value::Object(fields))),
        ..ours
    });
    Some(rest)
}

pub(crate) fn is(entry: &ManagedFieldsEntry, operation: &str) -> bool {
    entry.operation.as_deref() == Some(operation)
}

pub(crate) fn fields_of(entry: &ManagedFieldsEntry) -> Map<String, Value> {
    match &entry.fields_v1 {
        Some(FieldsV1(Value::Object(fields))) => fields.clone(),
        _ => Map::new(),
    }
}

/// Field sets are objects in objects down to empty ones.
fn unite(fields: &mut Map<String, Value>, others: Map<String, Value>) {
    for (name, other) in others {
        match (fields.get_mut(&name), other) {
            (Some(Value::Object(fields)), Value::Object(others)) => unite(fields, others),
            (Some(_), _) => {}
            (None, other) => drop(fields.insert(name, other)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(of: Value) -> Vec<ManagedFieldsEntry> {
        serde_json::from_value(of).unwrap()
    }

    #[test]
    fn entries_of_all_predecessors_become_one_of_ours() {
        let before = entries(json!([
            {"manager": "manager", "operation": "Update", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z",
             "fieldsV1": {"f:data": {".": {}, "f:a": {}}}},
            {"manager": "old", "operation": "Update", "apiVersion": "v2", "time": "2026-01-02T00:00:00Z",
             "fieldsV1": {"f:data": {"f:b": {}}, "f:metadata": {"f:labels": {}}}},
            {"manager": "manager", "operation": "Update", "subresource": "status", "fieldsV1": {"f:status": {}}},
            {"manager": "kubectl", "operation": "Update", "fieldsV1": {"f:data": {"f:c": {}}}},
        ]));
        let after = taken_over(&before, "us", &["manager", "old"], None).unwrap();
        assert_eq!(
            after,
            entries(json!([
                {"manager": "manager", "operation": "Update", "subresource": "status", "fieldsV1": {"f:status": {}}},
                {"manager": "kubectl", "operation": "Update", "fieldsV1": {"f:data": {"f:c": {}}}},
                {"manager": "us", "operation": "Apply", "apiVersion": "v2", "time": "2026-01-02T00:00:00Z",
                 "fieldsV1": {"f:data": {".": {}, "f:a": {}, "f:b": {}}, "f:metadata": {"f:labels": {}}}},
            ]))
        );
        let status = taken_over(&before, "us", &["manager"], Some("status")).unwrap();
        let ours = status.last().unwrap();
        assert_eq!(
            (ours.manager.as_deref(), ours.subresource.as_deref()),
            (Some("us"), Some("status"))
        );
    }

    #[test]
    fn what_others_have_of_the_spec_becomes_ours_and_nothing_else_of_theirs() {
        let before = entries(json!([
            {"manager": "us", "operation": "Apply", "fieldsV1": {"f:spec": {"f:a": {}}}},
            {"manager": "kubectl", "operation": "Update",
             "fieldsV1": {"f:metadata": {"f:labels": {}}, "f:spec": {"f:b": {}}}},
            {"manager": "edit", "operation": "Update", "fieldsV1": {"f:spec": {"f:c": {}}}},
            {"manager": "hpa", "operation": "Update", "subresource": "scale", "fieldsV1": {"f:spec": {"f:d": {}}}},
        ]));
        let after = with_all_of_the_spec(&before, "us").unwrap();
        assert_eq!(
            after,
            entries(json!([
                {"manager": "us", "operation": "Apply",
                 "fieldsV1": {"f:spec": {"f:a": {}, "f:b": {}, "f:c": {}}}},
                {"manager": "kubectl", "operation": "Update", "fieldsV1": {"f:metadata": {"f:labels": {}}}},
                {"manager": "hpa", "operation": "Update", "subresource": "scale", "fieldsV1": {"f:spec": {"f:d": {}}}},
            ]))
        );
        assert_eq!(with_all_of_the_spec(&after, "us"), None);
        assert_eq!(with_all_of_the_spec(&before, "somebody"), None);
    }

    #[test]
    fn nothing_is_taken_over_twice_nor_from_anybody_else() {
        let update = json!({"manager": "manager", "operation": "Update", "fieldsV1": {"f:data": {}}});
        let ours = json!({"manager": "us", "operation": "Apply", "fieldsV1": {"f:data": {}}});
        let of_apply = json!({"manager": "manager", "operation": "Apply", "fieldsV1": {"f:data": {}}});
        for before in [json!([update, ours]), json!([of_apply]), json!([])] {
            assert_eq!(taken_over(&entries(before), "us", &["manager"], None), None);
        }
        assert_eq!(taken_over(&entries(json!([update])), "us", &[], None), None);
    }
}
