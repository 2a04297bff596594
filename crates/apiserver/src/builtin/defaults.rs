//! Defaults of built-in kinds, as kube-apiserver fills them in (`pkg/apis/*/v1/defaults.go`).

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Map, Value, json};

use super::{jobs, pods, service};
use crate::resource::ResourceType;

/// Sets `name` where it is absent.
pub(super) fn set(object: &mut Map<String, Value>, name: &str, value: impl Into<Value>) {
    object.entry(name).or_insert_with(|| value.into());
}

/// The object at `name`, made where it is absent; nothing where there is something else.
pub(super) fn object<'a>(value: &'a mut Value, name: &str) -> Option<&'a mut Map<String, Value>> {
    value
        .as_object_mut()?
        .entry(name)
        .or_insert_with(|| json!({}))
        .as_object_mut()
}

/// The object at `name`, where there is one.
pub(super) fn present<'a>(value: &'a mut Value, name: &str) -> Option<&'a mut Map<String, Value>> {
    value.get_mut(name)?.as_object_mut()
}

/// The items of the list at `name`.
pub(super) fn each<'a>(
    object: &'a mut Map<String, Value>,
    name: &str,
) -> impl Iterator<Item = &'a mut Value> {
    object
        .get_mut(name)
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
}

/// What decoding an object fills in: the defaults of its fields, and folds such as a Secret's `stringData`. Doing it
/// again changes nothing. Custom resources are left alone: their defaults are in their schemas.
///
/// For create and update, before [`crate::patch::track_update`]; after [`crate::patch::apply`].
pub(crate) fn apply_defaults(resource: &ResourceType, value: &mut Value) {
    if resource.builtin {
        resource.schema.fill(value);
    }
    match (resource.group.as_str(), resource.kind.as_str()) {
        ("", "Namespace") => namespace(value),
        ("", "Pod") => {
            if let Some(spec) = present(value, "spec") {
                pods::apply_defaults(spec);
                pods::default_requests(spec);
            }
        }
        ("", "Secret") => secret(value),
        ("", "Service") => service::apply_defaults(value),
        ("", "PersistentVolumeClaim") => {
            if let Some(spec) = present(value, "spec") {
                set(spec, "volumeMode", "Filesystem");
            }
        }
        ("apps", "Deployment") => deployment(value),
        ("apps", "ReplicaSet") => replica_set(value),
        ("batch", "Job") => jobs::apply_defaults(value),
        ("discovery.k8s.io", "EndpointSlice") => {
            for port in value
                .as_object_mut()
                .into_iter()
                .flat_map(|slice| each(slice, "ports"))
            {
                if let Some(port) = port.as_object_mut() {
                    set(port, "name", "");
                    set(port, "protocol", "TCP");
                }
            }
        }
        _ => {}
    }
}

fn namespace(value: &mut Value) {
    let name = value["metadata"]["name"].clone();
    let Some(metadata) = object(value, "metadata").filter(|_| name.is_string()) else {
        return;
    };
    let labels = metadata.entry("labels").or_insert_with(|| json!({}));
    if let Some(labels) = labels.as_object_mut() {
        labels.insert("kubernetes.io/metadata.name".to_owned(), name);
    }
}

fn secret(value: &mut Value) {
    let Some(secret) = value.as_object_mut() else {
        return;
    };
    if let Some(Value::Object(texts)) = secret.shift_remove("stringData") {
        let data = secret.entry("data").or_insert_with(|| json!({}));
        if let Some(data) = data.as_object_mut() {
            for (name, text) in texts {
                data.insert(name, STANDARD.encode(text.as_str().unwrap_or_default()).into());
            }
        }
    }
    set(secret, "type", "Opaque");
}

fn deployment(value: &mut Value) {
    let Some(spec) = present(value, "spec") else {
        return;
    };
    set(spec, "replicas", 1);
    let strategy = spec.entry("strategy").or_insert_with(|| json!({}));
    if let Some(strategy) = strategy.as_object_mut() {
        set(strategy, "type", "RollingUpdate");
        if strategy["type"] == "RollingUpdate"
            && let Some(rolling) = strategy
                .entry("rollingUpdate")
                .or_insert_with(|| json!({}))
                .as_object_mut()
        {
            set(rolling, "maxUnavailable", "25%");
            set(rolling, "maxSurge", "25%");
        }
    }
    set(spec, "revisionHistoryLimit", 10);
    set(spec, "progressDeadlineSeconds", 600);
    template(spec);
}

fn replica_set(value: &mut Value) {
    let Some(spec) = present(value, "spec") else {
        return;
    };
    set(spec, "replicas", 1);
    // A ReplicaSet without a selector selects the pods it makes.
    let labels = spec
        .get("template")
        .and_then(|template| template.pointer("/metadata/labels"))
        .cloned();
    if let Some(labels) = labels.filter(|_| !spec.contains_key("selector")) {
        spec.insert("selector".to_owned(), json!({ "matchLabels": labels }));
    }
    template(spec);
}

fn template(spec: &mut Map<String, Value>) {
    if let Some(pod) = spec
        .get_mut("template")
        .and_then(|template| present(template, "spec"))
    {
        pods::apply_defaults(pod);
    }
}
