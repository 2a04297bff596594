//! The rules of metadata, and the few in which built-in kinds differ from each other.

use serde_json::Value;

use super::{meta, names};
use crate::{error::Cause, resource::ResourceType};

/// Whether objects of the resource count their changes in `metadata.generation`.
pub(crate) fn has_generation(resource: &ResourceType) -> bool {
    if !resource.builtin {
        return true;
    }
    match resource.group.as_str() {
        "" => matches!(resource.plural.as_str(), "pods" | "replicationcontrollers"),
        "apps" => resource.plural != "controllerrevisions",
        "autoscaling"
        | "batch"
        | "discovery.k8s.io"
        | "networking.k8s.io"
        | "policy"
        | "apiextensions.k8s.io" => true,
        _ => false,
    }
}

/// Whether a change is one that the generation counts.
pub(crate) fn changes_generation(resource: &ResourceType, current: &Value, object: &Value) -> bool {
    let (Some(before), Some(after)) = (current.as_object(), object.as_object()) else {
        return false;
    };
    let counts = |field: &str| field != "metadata" && !(field == "status" && resource.status);
    let keys = before.keys().chain(after.keys()).filter(|field| counts(field));
    if keys
        .into_iter()
        .any(|field| before.get(field) != after.get(field))
    {
        return true;
    }
    // A Deployment's annotations reach its ReplicaSets, so that they count as well.
    resource.group == "apps"
        && resource.plural == "deployments"
        && meta::get(current, "annotations") != meta::get(object, "annotations")
}

/// Whether a PUT without a resource version replaces whatever is stored. Custom resources never allow it.
pub(crate) fn allows_unconditional_update(resource: &ResourceType) -> bool {
    resource.builtin
        && !matches!(
            (resource.group.as_str(), resource.plural.as_str()),
            ("coordination.k8s.io", "leases") | ("apiextensions.k8s.io", "customresourcedefinitions")
        )
}

/// Whether a deletion answers with the deleted object instead of a `Status`.
pub(crate) fn returns_deleted_object(resource: &ResourceType) -> bool {
    resource.group.is_empty()
        && matches!(
            resource.plural.as_str(),
            "pods"
                | "services"
                | "serviceaccounts"
                | "persistentvolumes"
                | "persistentvolumeclaims"
                | "podtemplates"
        )
}

/// Whether dependents stay where a deletion does not say what becomes of them. Jobs are older than the garbage
/// collector, and clients of that time clean up themselves.
pub(crate) fn orphans_by_default(resource: &ResourceType) -> bool {
    resource.builtin && resource.group == "batch" && resource.plural == "jobs"
}

/// Whether the resource holds pods, whose deletion waits for their node.
pub(crate) fn is_pod(resource: &ResourceType) -> bool {
    resource.group.is_empty() && resource.plural == "pods"
}

/// Whether the resource holds Services.
pub(crate) fn is_service(resource: &ResourceType) -> bool {
    resource.group.is_empty() && resource.plural == "services"
}

/// Whether the resource holds namespaces.
pub(crate) fn is_namespace(resource: &ResourceType) -> bool {
    resource.group.is_empty() && resource.plural == "namespaces"
}

/// Whether the resource holds CustomResourceDefinitions.
pub(crate) fn is_definition(resource: &ResourceType) -> bool {
    resource.group == "apiextensions.k8s.io" && resource.plural == "customresourcedefinitions"
}

fn cause(reason: &str, field: impl Into<String>, message: String) -> Cause {
    Cause {
        reason: format!("FieldValue{reason}"),
        message,
        field: field.into(),
    }
}

fn invalid(field: impl Into<String>, value: &str, why: &str) -> Cause {
    cause("Invalid", field, format!("Invalid value: \"{value}\": {why}"))
}

/// What is wrong with the metadata of an object by itself.
pub(crate) fn metadata_causes(resource: &ResourceType, object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let rule = names::rule(&resource.group, &resource.plural);
    let name = meta::name(object);
    if name.is_empty() {
        let message = "Required value: name or generateName is required".to_owned();
        causes.push(cause("Required", "metadata.name", message));
    } else {
        let problems = rule.problems(name, false);
        causes.extend(problems.iter().map(|why| invalid("metadata.name", name, why)));
    }
    let prefix = meta::text(object, "generateName");
    if !prefix.is_empty() {
        let problems = rule.problems(prefix, true);
        causes.extend(
            problems
                .iter()
                .map(|why| invalid("metadata.generateName", prefix, why)),
        );
    }
    for (key, value) in meta::labels(object).into_iter().flatten() {
        causes.extend(
            names::qualified_name(key)
                .iter()
                .map(|why| invalid("metadata.labels", key, why)),
        );
        let value = value.as_str().unwrap_or_default();
        causes.extend(
            names::label_value(value)
                .iter()
                .map(|why| invalid("metadata.labels", value, why)),
        );
    }
    for key in meta::get(object, "annotations")
        .and_then(Value::as_object)
        .into_iter()
        .flat_map(|map| map.keys())
    {
        let problems = names::qualified_name(&key.to_ascii_lowercase());
        causes.extend(
            problems
                .iter()
                .map(|why| invalid("metadata.annotations", key, why)),
        );
    }
    for (index, name) in meta::finalizers(object).into_iter().enumerate() {
        causes.extend(finalizer_cause(index, name));
    }
    for owner in meta::owners(object) {
        for (name, value, why) in [
            ("apiVersion", &owner.version, "version must not be empty"),
            ("kind", &owner.kind, "must not be empty"),
            ("name", &owner.name, "must not be empty"),
            ("uid", &owner.uid, "must not be empty"),
        ] {
            if value.is_empty() {
                causes.push(invalid(format!("metadata.ownerReferences.{name}"), "", why));
            }
        }
    }
    causes
}

fn finalizer_cause(index: usize, name: &str) -> Option<Cause> {
    let field = format!("metadata.finalizers[{index}]");
    if let Some(why) = names::qualified_name(name).first() {
        return Some(invalid(field, name, why));
    }
    let standard = matches!(name, "foregroundDeletion" | "orphan" | "kubernetes");
    let why = "name is neither a standard finalizer name nor is it fully qualified";
    (!standard && !name.contains('/')).then(|| invalid(field, name, why))
}

/// What an update of the metadata may not change.
pub(crate) fn immutable_causes(current: &Value, object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    for field in ["uid", "deletionTimestamp"] {
        let (before, after) = (meta::get(current, field), meta::get(object, field));
        if before != after {
            let shown = after.cloned().unwrap_or_default();
            let message = format!("Invalid value: {shown}: field is immutable");
            causes.push(cause("Invalid", format!("metadata.{field}"), message));
        }
    }
    if meta::is_deleting(current) {
        let before = meta::finalizers(current);
        let added: Vec<String> = meta::finalizers(object)
            .into_iter()
            .filter(|name| !before.contains(name))
            .map(|name| format!("\"{name}\""))
            .collect();
        if !added.is_empty() {
            let message = format!(
                "Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                added.join(", ")
            );
            causes.push(cause("Forbidden", "metadata.finalizers", message));
        }
    }
    causes
}
