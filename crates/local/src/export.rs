//! What a data folder holds, as manifests: for another folder, a cluster, or to save what a damaged store still has.

use std::path::Path;

use kaos_apiserver::{OpenError, Salvaged, salvage};
use serde_json::{Map, Value};

use crate::{
    data_dir::{running, store_path},
    defaults::CONTROL_NAMESPACE,
    instance::FIELD_MANAGER,
};

/// What instances and clusters write themselves: none of it is a wish of anybody.
const OBSERVED: &[&str] = &["Endpoints", "EndpointSlice", "Event", "Lease", "Node"];

/// Namespaces that every instance has.
const NAMESPACES: &[&str] = &["default", "kube-system", CONTROL_NAMESPACE];

/// How often the store of a running instance is read before it counts as damaged: a write may fall into a reading.
const READINGS: usize = 5;

/// The manifests of a data folder.
#[derive(Clone, Debug)]
pub struct Exported {
    /// What was made by hand, in the order to apply it in: without what controllers made of it, without status.
    pub objects: Vec<Value>,
    /// What is wrong with the store. Where anything is, some objects may be missing, and some may be there that were
    /// deleted.
    pub damage: Option<String>,
}

/// Reads the objects of a data folder, whether an instance runs there or not. Changes nothing.
///
/// # Errors
/// Where the store cannot be read as a file: there is none, for example.
pub fn export(data_dir: &Path) -> Result<Exported, OpenError> {
    let store = store_path(data_dir);
    let mut read = salvage(&store)?;
    for _ in 1..READINGS {
        if read.damage.is_none() || running(data_dir).is_none() {
            break;
        }
        read = salvage(&store)?;
    }
    let Salvaged { objects, damage } = read;
    let mut objects: Vec<Value> = objects.into_iter().filter(is_asked_for).map(cleaned).collect();
    objects.sort_by_key(|object| rank(object["kind"].as_str().unwrap_or_default()));
    Ok(Exported { objects, damage })
}

/// What others refer to comes first.
fn rank(kind: &str) -> usize {
    let first = ["Namespace", "CustomResourceDefinition", "Secret", "ConfigMap"];
    first
        .iter()
        .position(|first| *first == kind)
        .unwrap_or(first.len())
}

/// Whether somebody made an object, as opposed to a controller or the instance itself.
fn is_asked_for(object: &Value) -> bool {
    let (kind, metadata) = (object["kind"].as_str().unwrap_or_default(), &object["metadata"]);
    let entries = |field: &str| metadata[field].as_array().into_iter().flatten();
    let of_the_instance = entries("managedFields").any(|entry| entry["manager"] == FIELD_MANAGER);
    let owned = entries("ownerReferences").next().is_some();
    let everywhere = kind == "Namespace" && NAMESPACES.iter().any(|name| metadata["name"] == *name);
    let going = !metadata["deletionTimestamp"].is_null();
    !(OBSERVED.contains(&kind) || of_the_instance || owned || everywhere || going)
}

/// An object without what the server filled in about it.
fn cleaned(mut object: Value) -> Value {
    let metadata = object["metadata"].take();
    let mut kept = Map::new();
    for field in ["name", "namespace", "labels", "annotations"] {
        if let Some(value) = metadata.get(field) {
            kept.insert(field.to_owned(), value.clone());
        }
    }
    let namespace = object["kind"] == "Namespace";
    for (map, key) in [
        ("annotations", "kubectl.kubernetes.io/last-applied-configuration"),
        ("annotations", "deployment.kubernetes.io/revision"),
        ("labels", "kubernetes.io/metadata.name"),
    ] {
        if let Some(entries) = kept.get_mut(map).and_then(Value::as_object_mut) {
            entries.shift_remove(key);
            if entries.is_empty() {
                kept.shift_remove(map);
            }
        }
    }
    let mut result = Map::new();
    for (field, value) in object.as_object_mut().map(std::mem::take).into_iter().flatten() {
        match field.as_str() {
            "metadata" => result.insert(field, std::mem::take(&mut kept).into()),
            "status" => None,
            // Its finalizers are the server's.
            "spec" if namespace => None,
            _ => result.insert(field, value),
        };
    }
    // An address is the server's, unless there shall be none.
    if result.get("kind").is_some_and(|kind| kind == "Service")
        && let Some(spec) = result.get_mut("spec").and_then(Value::as_object_mut)
        && spec.get("clusterIP").is_some_and(|address| address != "None")
    {
        spec.shift_remove("clusterIP");
        spec.shift_remove("clusterIPs");
    }
    result.into()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_was_asked_for_is_kept_as_it_was_asked_for() {
        let object =
            |kind: &str, metadata: Value| json!({"apiVersion": "v1", "kind": kind, "metadata": metadata});
        assert!(is_asked_for(&object("ConfigMap", json!({"name": "a"}))));
        assert!(is_asked_for(&object("Namespace", json!({"name": "team"}))));
        for (kind, metadata) in [
            ("Namespace", json!({"name": "default"})),
            ("Lease", json!({"name": "a"})),
            (
                "ConfigMap",
                json!({"name": "a", "ownerReferences": [{"kind": "Agent"}]}),
            ),
            (
                "ConfigMap",
                json!({"name": "a", "deletionTimestamp": "2026-01-01T00:00:00Z"}),
            ),
            (
                "CustomResourceDefinition",
                json!({"name": "a", "managedFields": [{"manager": "kaos-local"}]}),
            ),
        ] {
            assert!(
                !is_asked_for(&object(kind, metadata.clone())),
                "{kind} {metadata}"
            );
        }
        let service = json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {
                "name": "a", "namespace": "b", "uid": "c", "resourceVersion": "7", "labels": {"x": "y"},
                "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"}, "managedFields": [],
            },
            "spec": {"clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1"], "ports": [{"port": 80}]},
            "status": {"loadBalancer": {}},
        });
        let expected = json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "a", "namespace": "b", "labels": {"x": "y"}},
            "spec": {"ports": [{"port": 80}]},
        });
        assert_eq!(cleaned(service), expected);
    }
}
