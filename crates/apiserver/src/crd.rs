//! CustomResourceDefinitions: from a stored definition to the resources it makes the server serve.
//!
//! A definition is checked and its names accepted while it is stored, so that the resource is served by the
//! time the answer arrives. The defaults, conditions and messages are those of apiextensions-apiserver.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use jiff::Timestamp;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::{
    error::Cause,
    registry::Registry,
    resource::{Column, ColumnSource, ResourceType, ScalePaths},
    schema::{FieldError, Schema},
    server::{meta, time_text},
};

/// The qualified name of the resource that holds definitions.
pub(crate) const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";

/// The finalizer that holds a definition until its objects are gone.
pub(crate) const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Checks a definition and fills in what the server says about it.
///
/// # Errors
/// What is wrong with it, field by field.
pub(crate) fn prepare(
    definition: &mut Value,
    current: Option<&Value>,
    registry: &Registry,
    now: Timestamp,
) -> Result<(), Vec<Cause>> {
    default_names(definition);
    let causes = check(definition, current);
    if !causes.is_empty() {
        return Err(causes);
    }
    let conflict = name_conflict(definition, registry);
    establish(definition, conflict, now);
    Ok(())
}

/// Serves what an established definition defines; anything else is served no longer.
pub(crate) fn serve(registry: &Registry, definition: &Value) {
    let established = condition(definition, "Established") == Some("True");
    let resources = if established {
        resources(definition)
    } else {
        Vec::new()
    };
    registry.set_custom(meta::name(definition), resources);
}

/// Holds a definition back until its objects are gone.
pub(crate) fn mark_deleted(definition: &mut Value, now: Timestamp) {
    if meta::is_deleting(definition) {
        return;
    }
    let mut finalizers: Vec<_> = meta::finalizers(definition)
        .into_iter()
        .map(str::to_owned)
        .map(Into::into)
        .collect();
    if !meta::finalizers(definition).contains(&CLEANUP) {
        finalizers.push(CLEANUP.into());
    }
    meta::set_finalizers(definition, &finalizers);
    let message = "CustomResource deletion is in progress";
    set_condition(
        definition,
        "Terminating",
        "True",
        "InstanceDeletionInProgress",
        message,
        now,
    );
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn versions(definition: &Value) -> impl Iterator<Item = &Value> {
    definition
        .pointer("/spec/versions")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

fn default_names(definition: &mut Value) {
    let kind = text(definition, "/spec/names/kind").to_owned();
    if let Some(names) = definition
        .pointer_mut("/spec/names")
        .and_then(Value::as_object_mut)
    {
        let empty = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().is_empty();
        if empty(names.get("singular")) {
            names.insert("singular".to_owned(), kind.to_ascii_lowercase().into());
        }
        if empty(names.get("listKind")) {
            names.insert("listKind".to_owned(), format!("{kind}List").into());
        }
    }
    let spec = meta::child_mut(definition, "spec");
    spec.entry("conversion")
        .or_insert_with(|| json!({ "strategy": "None" }));
}

fn cause(reason: &str, field: &str, message: impl Into<String>) -> Cause {
    Cause {
        reason: format!("FieldValue{reason}"),
        message: message.into(),
        field: field.to_owned(),
    }
}

fn check(definition: &Value, current: Option<&Value>) -> Vec<Cause> {
    let mut causes = Vec::new();
    for field in ["group", "scope", "names/plural", "names/kind"] {
        if text(definition, &format!("/spec/{field}")).is_empty() {
            let field = format!("spec.{}", field.replace('/', "."));
            causes.push(cause("Required", &field, "Required value"));
        }
    }
    let expected = format!(
        "{}.{}",
        text(definition, "/spec/names/plural"),
        text(definition, "/spec/group")
    );
    let name = meta::name(definition);
    if name != expected {
        let message = format!("Invalid value: \"{name}\": must be spec.names.plural+\".\"+spec.group");
        causes.push(cause("Invalid", "metadata.name", message));
    }
    let scope = text(definition, "/spec/scope");
    if !matches!(scope, "" | "Namespaced" | "Cluster") {
        let message =
            format!("Unsupported value: \"{scope}\": supported values: \"Cluster\", \"Namespaced\"");
        causes.push(cause("NotSupported", "spec.scope", message));
    }
    if text(definition, "/spec/conversion/strategy") != "None" {
        let message = "Forbidden: conversion webhooks are not served here: use strategy None";
        causes.push(cause("Forbidden", "spec.conversion.strategy", message));
    }
    if definition.pointer("/spec/preserveUnknownFields") == Some(&Value::Bool(true)) {
        let message = "Invalid value: true: must be false in order to use defaults in the schema";
        causes.push(cause("Invalid", "spec.preserveUnknownFields", message));
    }
    let stored = versions(definition)
        .filter(|version| version.get("storage") == Some(&Value::Bool(true)))
        .count();
    if stored != 1 {
        let shown = definition.pointer("/spec/versions").cloned().unwrap_or_default();
        let message =
            format!("Invalid value: {shown}: must have exactly one version marked as storage version");
        causes.push(cause("Invalid", "spec.versions", message));
    }
    for (index, version) in versions(definition).enumerate() {
        // A definition of one version is read as the older form, whose schema stands elsewhere.
        let schema_field = match versions(definition).count() {
            1 => "spec.validation.openAPIV3Schema".to_owned(),
            _ => format!("spec.versions[{index}].schema.openAPIV3Schema"),
        };
        causes.extend(check_version(index, version, &schema_field));
    }
    if let Some(current) = current {
        for (pointer, field) in [
            ("/spec/group", "spec.group"),
            ("/spec/scope", "spec.scope"),
            ("/spec/names/plural", "spec.names.plural"),
        ] {
            let (before, after) = (text(current, pointer), text(definition, pointer));
            if before != after {
                let message = format!("Invalid value: \"{after}\": field is immutable");
                causes.push(cause("Invalid", field, message));
            }
        }
    }
    causes
}

/// How many parsed schemas are kept; there are as many as versions of definitions, which are few.
const KEPT: usize = 64;

/// The schema, parsed once in a process for each text of it: a definition is checked, then served, and checked
/// again with each change of its status. Large ones, such as that of a pod, take their time.
fn parsed(schema: &Value) -> Result<Schema, Vec<FieldError>> {
    static PARSED: Mutex<BTreeMap<[u8; 32], Schema>> = Mutex::new(BTreeMap::new());
    let digest: [u8; 32] = Sha256::digest(schema.to_string()).into();
    let known = || PARSED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(schema) = known().get(&digest) {
        return Ok(schema.clone());
    }
    let schema = Schema::from_crd(schema)?;
    let mut known = known();
    if known.len() >= KEPT {
        known.clear();
    }
    known.insert(digest, schema.clone());
    Ok(schema)
}

fn check_version(index: usize, version: &Value, schema_field: &str) -> Vec<Cause> {
    let field = format!("spec.versions[{index}]");
    let mut causes = Vec::new();
    if text(version, "/name").is_empty() {
        causes.push(cause("Required", &format!("{field}.name"), "Required value"));
    }
    match version.pointer("/schema/openAPIV3Schema") {
        None => causes.push(cause(
            "Required",
            schema_field,
            "Required value: schemas are required",
        )),
        Some(schema) => {
            if let Err(errors) = parsed(schema) {
                causes.extend(
                    errors
                        .into_iter()
                        .map(|error| Cause::from(error.under(schema_field))),
                );
            }
        }
    }
    causes
}

/// Another definition, or a built-in kind, that has one of the names.
fn name_conflict(definition: &Value, registry: &Registry) -> Option<String> {
    let own = meta::name(definition);
    let (group, kind) = (
        text(definition, "/spec/group"),
        text(definition, "/spec/names/kind"),
    );
    let plural = text(definition, "/spec/names/plural");
    let mut others = registry.all();
    others.retain(|other| other.group == group && other.qualified_name() != own);
    let taken = others
        .iter()
        .find(|other| other.kind == kind || other.plural == plural)?;
    Some(if taken.kind == kind {
        format!("\"{kind}\" is already in use")
    } else {
        format!("\"{plural}\" is already in use")
    })
}

fn establish(definition: &mut Value, conflict: Option<String>, now: Timestamp) {
    match conflict {
        Some(why) => {
            set_condition(definition, "NamesAccepted", "False", "KindConflict", &why, now);
            if condition(definition, "Established").is_none() {
                let why = "not all names are accepted";
                set_condition(definition, "Established", "False", "NotAccepted", why, now);
            }
        }
        None => {
            let names = definition.pointer("/spec/names").cloned().unwrap_or_default();
            meta::child_mut(definition, "status").insert("acceptedNames".to_owned(), names);
            set_condition(
                definition,
                "NamesAccepted",
                "True",
                "NoConflicts",
                "no conflicts found",
                now,
            );
            let why = "the initial names have been accepted";
            set_condition(
                definition,
                "Established",
                "True",
                "InitialNamesAccepted",
                why,
                now,
            );
        }
    }
    let storage = versions(definition)
        .find(|version| version.get("storage") == Some(&Value::Bool(true)))
        .map(|version| text(version, "/name").to_owned());
    let stored = meta::child_mut(definition, "status")
        .entry("storedVersions")
        .or_insert_with(|| json!([]));
    if let (Some(storage), Some(stored)) = (storage, stored.as_array_mut())
        && !stored.contains(&json!(storage))
    {
        stored.push(storage.into());
    }
}

fn condition<'a>(definition: &'a Value, kind: &str) -> Option<&'a str> {
    let conditions = definition.pointer("/status/conditions")?.as_array()?;
    conditions
        .iter()
        .find(|one| text(one, "/type") == kind)
        .map(|one| text(one, "/status"))
}

/// Sets a condition. The time of the last transition stays where the status stays.
fn set_condition(
    definition: &mut Value,
    kind: &str,
    status: &str,
    reason: &str,
    message: &str,
    now: Timestamp,
) {
    let conditions = meta::child_mut(definition, "status")
        .entry("conditions")
        .or_insert_with(|| json!([]));
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    let Some(conditions) = conditions.as_array_mut() else {
        return;
    };
    let place = conditions.iter().position(|one| text(one, "/type") == kind);
    let since = place
        .map(|at| &conditions[at])
        .filter(|one| text(one, "/status") == status)
        .map_or_else(
            || time_text(now),
            |one| text(one, "/lastTransitionTime").to_owned(),
        );
    let condition = json!({
        "type": kind,
        "status": status,
        "lastTransitionTime": since,
        "reason": reason,
        "message": message,
    });
    match place {
        Some(at) => conditions[at] = condition,
        None => conditions.push(condition),
    }
}

/// The resources of a definition: one for each served version.
fn resources(definition: &Value) -> Vec<ResourceType> {
    let names = definition.pointer("/spec/names").cloned().unwrap_or_default();
    let list = |field: &str| {
        meta::strings(names.get(field))
            .into_iter()
            .map(str::to_owned)
            .collect()
    };
    versions(definition)
        .filter(|version| version.get("served") == Some(&Value::Bool(true)))
        .filter_map(|version| {
            // A stored definition was checked; one that no longer passes is not served, and says so.
            let schema = parsed(version.pointer("/schema/openAPIV3Schema")?)
                .inspect_err(|errors| {
                    tracing::error!(
                        definition = meta::name(definition),
                        ?errors,
                        "the stored schema is not accepted"
                    );
                })
                .ok()?;
            Some(ResourceType {
                group: text(definition, "/spec/group").to_owned(),
                version: text(version, "/name").to_owned(),
                kind: text(&names, "/kind").to_owned(),
                list_kind: text(&names, "/listKind").to_owned(),
                plural: text(&names, "/plural").to_owned(),
                singular: text(&names, "/singular").to_owned(),
                short_names: list("shortNames"),
                categories: list("categories"),
                namespaced: text(definition, "/spec/scope") == "Namespaced",
                status: version.pointer("/subresources/status").is_some(),
                scale: version.pointer("/subresources/scale").map(scale_paths),
                schema: Arc::new(schema),
                columns: columns(version),
                builtin: false,
            })
        })
        .collect()
}

fn scale_paths(scale: &Value) -> ScalePaths {
    ScalePaths {
        spec_replicas: text(scale, "/specReplicasPath").to_owned(),
        status_replicas: text(scale, "/statusReplicasPath").to_owned(),
        label_selector: scale
            .get("labelSelectorPath")
            .and_then(Value::as_str)
            .map(str::to_owned),
    }
}

/// The columns of a version; its age where it names none.
fn columns(version: &Value) -> Vec<Column> {
    let listed = version
        .get("additionalPrinterColumns")
        .and_then(Value::as_array)
        .filter(|list| !list.is_empty());
    let age = json!([{ "name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp" }]);
    let columns = listed
        .or_else(|| age.as_array())
        .map(Vec::as_slice)
        .unwrap_or_default();
    columns
        .iter()
        .map(|column| Column {
            name: text(column, "/name").to_owned(),
            kind: text(column, "/type").to_owned(),
            format: text(column, "/format").to_owned(),
            priority: column
                .get("priority")
                .and_then(Value::as_i64)
                .and_then(|priority| i32::try_from(priority).ok())
                .unwrap_or_default(),
            source: ColumnSource::JsonPath(text(column, "/jsonPath").to_owned()),
        })
        .collect()
}

/// The qualified name of the resource that a definition defines.
pub(crate) fn defined_resource(definition: &Value) -> String {
    format!(
        "{}.{}",
        text(definition, "/spec/names/plural"),
        text(definition, "/spec/group")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn widgets() -> Value {
        json!({
            "metadata": {"name": "widgets.example.test"},
            "spec": {
                "group": "example.test", "scope": "Namespaced",
                "names": {"kind": "Widget", "plural": "widgets"},
                "versions": [{
                    "name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object"}},
                    "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"}},
                }],
            },
        })
    }

    #[test]
    fn a_definition_is_established_and_served() {
        let registry = Registry::new(Vec::new());
        let mut definition = widgets();
        prepare(&mut definition, None, &registry, Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(condition(&definition, "Established"), Some("True"));
        assert_eq!(definition["status"]["acceptedNames"]["listKind"], "WidgetList");
        assert_eq!(definition["status"]["storedVersions"], json!(["v1"]));
        serve(&registry, &definition);
        let resource = registry.lookup("example.test", "v1", "widgets").unwrap();
        assert!(resource.status && resource.namespaced);
        assert_eq!(resource.scale.as_ref().unwrap().spec_replicas, ".spec.n");
        assert_eq!(resource.columns[0].name, "Age");

        // The same again moves no time.
        let before = definition.clone();
        prepare(&mut definition, Some(&before), &registry, Timestamp::MAX).unwrap();
        assert_eq!(definition, before);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let registry = Registry::new(Vec::new());
        let mut definition = widgets();
        definition["metadata"]["name"] = "x".into();
        definition["spec"]["scope"] = "Galaxy".into();
        definition["spec"]["versions"][0]["storage"] = false.into();
        let causes = prepare(&mut definition, None, &registry, Timestamp::UNIX_EPOCH).unwrap_err();
        let fields: Vec<&str> = causes.iter().map(|cause| cause.field.as_str()).collect();
        assert_eq!(fields, ["metadata.name", "spec.scope", "spec.versions"]);
    }

    #[test]
    fn a_kind_is_defined_once_in_a_group() {
        let registry = Registry::new(Vec::new());
        let mut first = widgets();
        prepare(&mut first, None, &registry, Timestamp::UNIX_EPOCH).unwrap();
        serve(&registry, &first);
        let mut second = widgets();
        second["metadata"]["name"] = "others.example.test".into();
        second["spec"]["names"]["plural"] = "others".into();
        prepare(&mut second, None, &registry, Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(condition(&second, "NamesAccepted"), Some("False"));
        serve(&registry, &second);
        assert!(registry.lookup("example.test", "v1", "others").is_none());
    }
}
