//! Defaults and rules of pod specs (`pkg/apis/core/v1/defaults.go`, `pkg/apis/core/validation`).

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::{
    defaults::{each, set},
    names,
};
use crate::schema::FieldError;

const CONTAINERS: [&str; 2] = ["initContainers", "containers"];

/// Fills in the defaults of a pod spec.
pub(super) fn apply_defaults(spec: &mut Map<String, Value>) {
    for list in CONTAINERS {
        for container in each(spec, list).filter_map(Value::as_object_mut) {
            container_defaults(container);
        }
    }
    for volume in each(spec, "volumes").filter_map(Value::as_object_mut) {
        volume_defaults(volume);
    }
    set(spec, "restartPolicy", "Always");
    set(spec, "terminationGracePeriodSeconds", 30);
    set(spec, "dnsPolicy", "ClusterFirst");
    // The older field of the same meaning is kept equal.
    if let Some(account) = spec.get("serviceAccountName").cloned() {
        spec.insert("serviceAccount".to_owned(), account);
    } else if let Some(account) = spec.get("serviceAccount").cloned() {
        spec.insert("serviceAccountName".to_owned(), account);
    }
    set(spec, "securityContext", json!({}));
    set(spec, "schedulerName", "default-scheduler");
}

/// What a pod asks for where it only says its limits. Templates are left as they are (`SetDefaults_Pod`).
pub(super) fn default_requests(spec: &mut Map<String, Value>) {
    for list in CONTAINERS {
        for container in each(spec, list) {
            let resources = container.get_mut("resources").and_then(Value::as_object_mut);
            if let Some(resources) = resources
                && let Some(Value::Object(limits)) = resources.get("limits").cloned()
                && let Some(requests) = resources
                    .entry("requests")
                    .or_insert_with(|| json!({}))
                    .as_object_mut()
            {
                for (name, limit) in limits {
                    requests.entry(name).or_insert(limit);
                }
            }
        }
    }
}

fn volume_defaults(volume: &mut Map<String, Value>) {
    // A volume without a source is an empty directory.
    if volume.len() == 1 && volume.contains_key("name") {
        volume.insert("emptyDir".to_owned(), json!({}));
    }
    for source in ["configMap", "secret", "downwardAPI", "projected"] {
        let Some(source) = volume.get_mut(source).and_then(Value::as_object_mut) else {
            continue;
        };
        set(source, "defaultMode", 0o644);
        for projected in each(source, "sources") {
            if let Some(token) = projected
                .get_mut("serviceAccountToken")
                .and_then(Value::as_object_mut)
            {
                set(token, "expirationSeconds", 3_600);
            }
        }
    }
    if let Some(host) = volume.get_mut("hostPath").and_then(Value::as_object_mut) {
        set(host, "type", "");
    }
}

fn container_defaults(container: &mut Map<String, Value>) {
    let image = container.get("image").and_then(Value::as_str).unwrap_or_default();
    let name = image.rsplit('/').next().unwrap_or_default();
    let latest = !image.contains('@') && (!name.contains(':') || name.ends_with(":latest"));
    set(
        container,
        "imagePullPolicy",
        if latest { "Always" } else { "IfNotPresent" },
    );
    set(container, "resources", json!({}));
    set(container, "terminationMessagePath", "/dev/termination-log");
    set(container, "terminationMessagePolicy", "File");
    for port in each(container, "ports").filter_map(Value::as_object_mut) {
        set(port, "protocol", "TCP");
    }
    for variable in each(container, "env") {
        if let Some(field) = variable
            .pointer_mut("/valueFrom/fieldRef")
            .and_then(Value::as_object_mut)
        {
            set(field, "apiVersion", "v1");
        }
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let Some(probe) = container.get_mut(probe).and_then(Value::as_object_mut) else {
            continue;
        };
        set(probe, "timeoutSeconds", 1);
        set(probe, "periodSeconds", 10);
        set(probe, "successThreshold", 1);
        set(probe, "failureThreshold", 3);
        http_defaults(probe);
        if let Some(grpc) = probe.get_mut("grpc").and_then(Value::as_object_mut) {
            set(grpc, "service", "");
        }
    }
    for hook in ["postStart", "preStop"] {
        let hook = container
            .get_mut("lifecycle")
            .and_then(|lifecycle| lifecycle.get_mut(hook)?.as_object_mut());
        if let Some(hook) = hook {
            http_defaults(hook);
        }
    }
}

fn http_defaults(handler: &mut Map<String, Value>) {
    if let Some(get) = handler.get_mut("httpGet").and_then(Value::as_object_mut) {
        set(get, "path", "/");
        set(get, "scheme", "HTTP");
    }
}

/// What is wrong with a pod spec at `path`.
pub(super) fn validate(spec: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let volumes = validate_volumes(spec, path, errors);
    if spec["containers"].as_array().is_none_or(Vec::is_empty) {
        errors.push(FieldError::required(format!("{path}.containers"), ""));
    }
    let mut seen = BTreeSet::new();
    for list in ["containers", "initContainers"] {
        for (index, container) in spec[list].as_array().into_iter().flatten().enumerate() {
            let at = format!("{path}.{list}[{index}]");
            validate_container(container, &at, &volumes, errors);
            if let Some(name) = container["name"].as_str().filter(|name| !seen.insert(*name)) {
                errors.push(FieldError::duplicate(format!("{at}.name"), &name.into()));
            }
        }
    }
    names::one_of(
        &format!("{path}.restartPolicy"),
        &spec["restartPolicy"],
        &["Always", "OnFailure", "Never"],
        errors,
    );
    names::one_of(
        &format!("{path}.dnsPolicy"),
        &spec["dnsPolicy"],
        &["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"],
        errors,
    );
    names::not_negative(
        &format!("{path}.terminationGracePeriodSeconds"),
        &spec["terminationGracePeriodSeconds"],
        errors,
    );
}

/// The names of the volumes.
fn validate_volumes<'a>(spec: &'a Value, path: &str, errors: &mut Vec<FieldError>) -> BTreeSet<&'a str> {
    let mut names = BTreeSet::new();
    for (index, volume) in spec["volumes"].as_array().into_iter().flatten().enumerate() {
        let at = format!("{path}.volumes[{index}]");
        let errors_of_name = names::required_label(&format!("{at}.name"), &volume["name"]);
        let unusable = !errors_of_name.is_empty();
        errors.extend(errors_of_name);
        if let Some(name) = volume["name"].as_str().filter(|_| !unusable)
            && !names.insert(name)
        {
            errors.push(FieldError::duplicate(format!("{at}.name"), &name.into()));
        }
        let sources: Vec<&String> = volume
            .as_object()
            .into_iter()
            .flat_map(Map::keys)
            .filter(|key| *key != "name")
            .collect();
        for source in sources.iter().skip(1) {
            let why = "may not specify more than 1 volume type";
            errors.push(FieldError::forbidden(format!("{at}.{source}"), why));
        }
        if volume["secret"].is_object() && volume["secret"]["secretName"].as_str().is_none_or(str::is_empty) {
            errors.push(FieldError::required(format!("{at}.secret.secretName"), ""));
        }
        if volume["configMap"].is_object() && volume["configMap"]["name"].as_str().is_none_or(str::is_empty) {
            errors.push(FieldError::required(format!("{at}.configMap.name"), ""));
        }
    }
    names
}

fn validate_container(container: &Value, at: &str, volumes: &BTreeSet<&str>, errors: &mut Vec<FieldError>) {
    errors.extend(names::required_label(&format!("{at}.name"), &container["name"]));
    match container["image"].as_str().unwrap_or_default() {
        "" => errors.push(FieldError::required(format!("{at}.image"), "")),
        image if image.trim() != image => errors.push(FieldError::invalid(
            format!("{at}.image"),
            &container["image"],
            "must not have leading or trailing whitespace",
        )),
        _ => {}
    }
    names::one_of(
        &format!("{at}.imagePullPolicy"),
        &container["imagePullPolicy"],
        &["Always", "IfNotPresent", "Never"],
        errors,
    );
    validate_ports(container, at, errors);
    validate_env(container, at, errors);
    for (index, mount) in container["volumeMounts"]
        .as_array()
        .into_iter()
        .flatten()
        .enumerate()
    {
        let at = format!("{at}.volumeMounts[{index}]");
        match mount["name"].as_str().unwrap_or_default() {
            "" => errors.push(FieldError::required(format!("{at}.name"), "")),
            name if !volumes.contains(name) => {
                errors.push(FieldError::not_found(format!("{at}.name"), &mount["name"]));
            }
            _ => {}
        }
        if mount["mountPath"].as_str().is_none_or(str::is_empty) {
            errors.push(FieldError::required(format!("{at}.mountPath"), ""));
        }
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        validate_probe(&container[probe], &format!("{at}.{probe}"), errors);
    }
}

fn validate_env(container: &Value, at: &str, errors: &mut Vec<FieldError>) {
    for (index, variable) in container["env"].as_array().into_iter().flatten().enumerate() {
        let at = format!("{at}.env[{index}]");
        if variable["name"].as_str().is_none_or(str::is_empty) {
            errors.push(FieldError::required(format!("{at}.name"), ""));
        }
        let source = &variable["valueFrom"];
        if source.is_null() {
            continue;
        }
        let at = format!("{at}.valueFrom");
        let sources = source.as_object().map_or(0, Map::len);
        if sources != 1 {
            let why = if sources == 0 {
                "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
            } else {
                "may not have more than one field specified at a time"
            };
            errors.push(FieldError::invalid(at, &"".into(), why));
        } else if !variable["value"].as_str().unwrap_or_default().is_empty() {
            errors.push(FieldError::invalid(
                at,
                &"".into(),
                "may not be specified when `value` is not empty",
            ));
        } else {
            for reference in ["configMapKeyRef", "secretKeyRef"] {
                if source[reference].is_object()
                    && source[reference]["key"].as_str().is_none_or(str::is_empty)
                {
                    errors.push(FieldError::required(format!("{at}.{reference}.key"), ""));
                }
            }
        }
    }
}

fn validate_ports(container: &Value, at: &str, errors: &mut Vec<FieldError>) {
    let ports = container["ports"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    for (index, port) in ports.iter().enumerate() {
        let at = format!("{at}.ports[{index}]");
        if let Some(name) = port["name"].as_str().filter(|name| !name.is_empty()) {
            names::port_name(&format!("{at}.name"), name, errors);
            if ports[..index].iter().any(|earlier| earlier["name"] == name) {
                errors.push(FieldError::duplicate(format!("{at}.name"), &port["name"]));
            }
        }
        if port["containerPort"].is_null() || port["containerPort"] == 0 {
            errors.push(FieldError::required(format!("{at}.containerPort"), ""));
        } else {
            errors.extend(names::port_errors(
                &format!("{at}.containerPort"),
                &port["containerPort"],
            ));
        }
        names::protocol(&format!("{at}.protocol"), &port["protocol"], errors);
    }
}

fn validate_probe(probe: &Value, at: &str, errors: &mut Vec<FieldError>) {
    if probe.is_null() {
        return;
    }
    let handlers: Vec<&str> = ["exec", "grpc", "httpGet", "tcpSocket"]
        .into_iter()
        .filter(|handler| !probe[handler].is_null())
        .collect();
    if handlers.is_empty() {
        errors.push(FieldError::required(at, "must specify a handler type"));
    }
    for handler in handlers.iter().skip(1) {
        let why = "may not specify more than 1 handler type";
        errors.push(FieldError::forbidden(format!("{at}.{handler}"), why));
    }
    for handler in ["httpGet", "tcpSocket"] {
        let (field, port) = (format!("{at}.{handler}.port"), &probe[handler]["port"]);
        match port {
            Value::String(name) => names::port_name(&field, name, errors),
            port if probe[handler].is_object() => errors.extend(names::port_errors(&field, port)),
            _ => {}
        }
    }
    for field in [
        "initialDelaySeconds",
        "timeoutSeconds",
        "periodSeconds",
        "successThreshold",
        "failureThreshold",
    ] {
        names::not_negative(&format!("{at}.{field}"), &probe[field], errors);
    }
    if !at.ends_with("readinessProbe") && probe["successThreshold"].as_i64().is_some_and(|times| times != 1) {
        errors.push(FieldError::invalid(
            format!("{at}.successThreshold"),
            &probe["successThreshold"],
            "must be 1",
        ));
    }
}
