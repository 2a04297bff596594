//! What objects of built-in kinds must be, in kube-apiserver's words (`pkg/apis/*/validation`), as far as
//! controllers and people run into it. Metadata is checked for every kind elsewhere.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Map, Value};

use super::{jobs, names, pods, service};
use crate::{resource::ResourceType, schema::FieldError};

/// The most bytes that a ConfigMap or a Secret may hold.
const LARGEST_DATA: usize = 1024 * 1024;

/// Validates the fields of built-in kinds. `old` is the stored object of an update, `subresource` is empty or `status`.
pub(crate) fn validate(
    resource: &ResourceType,
    new: &Value,
    old: Option<&Value>,
    subresource: &str,
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    // A status comes from a controller, which keeps its own rules; what is not the status stays as it was.
    if subresource == "status" {
        return errors;
    }
    match (resource.group.as_str(), resource.kind.as_str()) {
        ("", "Pod") => {
            pods::validate(&new["spec"], "spec", &mut errors);
            if let Some(old) = old {
                pod_update(new, old, &mut errors);
            }
        }
        ("", "Service") => service::validate(new, old, &mut errors),
        ("", "Secret") => secret(new, old, &mut errors),
        ("", "ConfigMap") => config_map(new, old, &mut errors),
        ("apps", "Deployment" | "ReplicaSet") => workload(&resource.kind, new, old, &mut errors),
        ("batch", "Job") => jobs::validate(new, old, &mut errors),
        ("discovery.k8s.io", "EndpointSlice") => {
            let kinds = ["FQDN", "IPv4", "IPv6"];
            if new["addressType"].is_null() {
                errors.push(FieldError::required("addressType", ""));
            }
            names::one_of("addressType", &new["addressType"], &kinds, &mut errors);
        }
        ("coordination.k8s.io", "Lease") => {
            let seconds = &new["spec"]["leaseDurationSeconds"];
            if seconds.as_i64().is_some_and(|seconds| seconds <= 0) {
                errors.push(FieldError::invalid(
                    "spec.leaseDurationSeconds",
                    seconds,
                    "must be greater than 0",
                ));
            }
        }
        _ => {}
    }
    errors
}

fn workload(kind: &str, new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let spec = &new["spec"];
    for field in [
        "replicas",
        "minReadySeconds",
        "revisionHistoryLimit",
        "progressDeadlineSeconds",
    ] {
        names::not_negative(&format!("spec.{field}"), &spec[field], errors);
    }
    let selector = &spec["selector"];
    let labels = selector["matchLabels"].as_object();
    let expressions = selector["matchExpressions"]
        .as_array()
        .is_some_and(|list| !list.is_empty());
    if selector.is_null() {
        errors.push(FieldError::required("spec.selector", ""));
    } else if labels.is_none_or(Map::is_empty) && !expressions {
        let why = format!(
            "empty selector is invalid for {}",
            if kind == "Deployment" { "deployment" } else { kind }
        );
        errors.push(FieldError::invalid("spec.selector", selector, &why));
    }
    let template = &spec["template"];
    let template_labels = &template["metadata"]["labels"];
    let differs = |(name, value): (&String, &Value)| template_labels.get(name) != Some(value);
    // No selector at all selects nothing.
    if selector.is_null() || labels.is_some_and(|labels| labels.iter().any(differs)) {
        let why = "`selector` does not match template `labels`";
        errors.push(FieldError::invalid(
            "spec.template.metadata.labels",
            template_labels,
            why,
        ));
    }
    pods::validate(&template["spec"], "spec.template.spec", errors);
    names::one_of(
        "spec.template.spec.restartPolicy",
        &template["spec"]["restartPolicy"],
        &["Always"],
        errors,
    );
    if kind == "Deployment" {
        strategy(&spec["strategy"], errors);
    }
    if old.is_some_and(|old| old["spec"]["selector"] != *selector) {
        errors.push(FieldError::invalid(
            "spec.selector",
            selector,
            "field is immutable",
        ));
    }
}

fn strategy(strategy: &Value, errors: &mut Vec<FieldError>) {
    names::one_of(
        "spec.strategy.type",
        &strategy["type"],
        &["Recreate", "RollingUpdate"],
        errors,
    );
    if strategy["type"] == "Recreate" && !strategy["rollingUpdate"].is_null() {
        let why = "may not be specified when strategy `type` is 'Recreate'";
        errors.push(FieldError::forbidden("spec.strategy.rollingUpdate", why));
    }
    let zero =
        |field: &str| matches!(&strategy["rollingUpdate"][field], value if *value == 0 || *value == "0%");
    if zero("maxUnavailable") && zero("maxSurge") {
        let shown = &strategy["rollingUpdate"]["maxUnavailable"];
        let why = "may not be 0 when `maxSurge` is 0";
        errors.push(FieldError::invalid(
            "spec.strategy.rollingUpdate.maxUnavailable",
            shown,
            why,
        ));
    }
}

/// Of a stored pod only images, deadlines and tolerations may change; and a scheduler names the node.
fn pod_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let comparable = |pod: &Value| {
        let mut spec = pod["spec"].clone();
        for list in ["containers", "initContainers"] {
            for container in spec
                .get_mut(list)
                .and_then(Value::as_array_mut)
                .into_iter()
                .flatten()
            {
                if let Some(container) = container.as_object_mut() {
                    container.shift_remove("image");
                }
            }
        }
        if let Some(spec) = spec.as_object_mut() {
            let named = old["spec"]["nodeName"]
                .as_str()
                .is_some_and(|node| !node.is_empty());
            for field in [
                "activeDeadlineSeconds",
                "tolerations",
                "terminationGracePeriodSeconds",
                "schedulingGates",
            ] {
                spec.shift_remove(field);
            }
            if !named {
                spec.shift_remove("nodeName");
            }
        }
        spec
    };
    if comparable(new) != comparable(old) {
        errors.push(FieldError::forbidden(
            "spec",
            "pod updates may not change fields other than \
             `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,\
             `spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` \
             (allow it to be set to 1 if it was previously negative)",
        ));
    }
}

/// Keys of a ConfigMap or a Secret are file names.
fn data_keys(data: &Value, field: &str, errors: &mut Vec<FieldError>) {
    for key in data.as_object().into_iter().flat_map(Map::keys) {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        if key.is_empty() || key.len() > 253 || !key.bytes().all(fits) {
            let why = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  \
                       or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";
            errors.push(FieldError::invalid(
                format!("{field}[{key}]"),
                &key.as_str().into(),
                why,
            ));
        } else if key == "." || key.starts_with("..") {
            let why = match key.as_str() {
                "." => "must not be '.'",
                ".." => "must not be '..'",
                _ => "must not start with '..'",
            };
            errors.push(FieldError::invalid(
                format!("{field}[{key}]"),
                &key.as_str().into(),
                why,
            ));
        }
    }
}

fn data_size(object: &Value) -> usize {
    let decoded = |text: &str| text.len() / 4 * 3;
    let values = |field: &str| {
        object[field]
            .as_object()
            .into_iter()
            .flat_map(Map::values)
            .filter_map(Value::as_str)
    };
    values("data").map(str::len).sum::<usize>() + values("binaryData").map(decoded).sum::<usize>()
}

fn config_map(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    for field in ["data", "binaryData"] {
        data_keys(&new[field], field, errors);
    }
    if data_size(new) > LARGEST_DATA {
        errors.push(FieldError::too_long("", LARGEST_DATA as u64));
    }
    immutable(new, old, &["data", "binaryData"], errors);
}

fn secret(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    data_keys(&new["data"], "data", errors);
    for (key, value) in new["data"].as_object().into_iter().flatten() {
        if value.as_str().is_none_or(|text| STANDARD.decode(text).is_err()) {
            let why = "must be base64: encode it, or use stringData for plain text";
            errors.push(FieldError::invalid(
                format!("data[{key}]"),
                &"<omitted>".into(),
                why,
            ));
        }
    }
    if data_size(new) / 4 * 3 > LARGEST_DATA {
        errors.push(FieldError::too_long("data", LARGEST_DATA as u64));
    }
    if old.is_some_and(|old| old["type"] != new["type"]) {
        errors.push(FieldError::invalid("type", &new["type"], "field is immutable"));
    }
    immutable(new, old, &["data"], errors);
}

/// What says that it is immutable stays so, with what it holds.
fn immutable(new: &Value, old: Option<&Value>, fields: &[&str], errors: &mut Vec<FieldError>) {
    let Some(old) = old.filter(|old| old["immutable"] == true) else {
        return;
    };
    let why = "field is immutable when `immutable` is set";
    if new["immutable"] != true {
        errors.push(FieldError::forbidden("immutable", why));
    }
    for field in fields.iter().filter(|field| new[*field] != old[*field]) {
        errors.push(FieldError::forbidden(*field, why));
    }
}
