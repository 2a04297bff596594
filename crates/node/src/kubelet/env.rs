//! A container's environment, as the kubelet makes it: `envFrom`, then `env` in order, with `$(VAR)`
//! expanded from what stands before it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, EnvVarSource, Pod};
use kube::ResourceExt as _;

use super::{HOST_IP, POD_IP, resources, sources::Sources};

/// A reference that cannot be resolved: the message of `CreateContainerConfigError`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct ConfigError(pub(crate) String);

fn error<T>(message: impl Into<String>) -> Result<T, ConfigError> {
    Err(ConfigError(message.into()))
}

/// The variables that the pod gives a container, each name once.
pub(crate) fn variables(
    container: &Container,
    pod: &Pod,
    sources: &Sources,
) -> Result<BTreeMap<String, String>, ConfigError> {
    let mut variables = BTreeMap::new();
    for from in container.env_from.iter().flatten() {
        let prefix = from.prefix.as_deref().unwrap_or_default();
        if let Some(source) = &from.config_map_ref {
            match sources.config_maps.get(&source.name) {
                Some(object) => variables.extend(
                    object
                        .data
                        .iter()
                        .flatten()
                        .map(|(key, value)| (format!("{prefix}{key}"), value.clone())),
                ),
                None if source.optional == Some(true) => {}
                None => return error(format!("configmap {:?} not found", source.name)),
            }
        }
        if let Some(source) = &from.secret_ref {
            match sources.secrets.get(&source.name) {
                Some(object) => {
                    for (key, value) in object.data.iter().flatten() {
                        variables.insert(format!("{prefix}{key}"), text(&source.name, key, &value.0)?);
                    }
                }
                None if source.optional == Some(true) => {}
                None => return error(format!("secret {:?} not found", source.name)),
            }
        }
    }
    for variable in container.env.iter().flatten() {
        let value = match (&variable.value, &variable.value_from) {
            (None, Some(source)) => resolve(&variable.name, source, container, pod, sources)?,
            (value, _) => Some(expand(value.as_deref().unwrap_or_default(), &variables)),
        };
        if let Some(value) = value {
            variables.insert(variable.name.clone(), value);
        }
    }
    Ok(variables)
}

/// The value of a `valueFrom`; `None` where an optional reference leads nowhere.
fn resolve(
    variable: &str,
    source: &EnvVarSource,
    container: &Container,
    pod: &Pod,
    sources: &Sources,
) -> Result<Option<String>, ConfigError> {
    if let Some(field) = &source.field_ref {
        return field_value(pod, &field.field_path).map(Some).ok_or_else(|| {
            ConfigError(format!(
                "env {variable}: unsupported fieldPath: {}",
                field.field_path
            ))
        });
    }
    let namespace = pod.namespace().unwrap_or_default();
    if let Some(key) = &source.config_map_key_ref {
        let optional = key.optional == Some(true);
        let Some(object) = sources.config_maps.get(&key.name) else {
            return if optional {
                Ok(None)
            } else {
                error(format!("configmap {:?} not found", key.name))
            };
        };
        return match object.data.as_ref().and_then(|data| data.get(&key.key)) {
            Some(value) => Ok(Some(value.clone())),
            None if optional => Ok(None),
            None => error(format!(
                "couldn't find key {} in ConfigMap {namespace}/{}",
                key.key, key.name
            )),
        };
    }
    if let Some(key) = &source.secret_key_ref {
        let optional = key.optional == Some(true);
        let Some(object) = sources.secrets.get(&key.name) else {
            return if optional {
                Ok(None)
            } else {
                error(format!("secret {:?} not found", key.name))
            };
        };
        return match object.data.as_ref().and_then(|data| data.get(&key.key)) {
            Some(value) => text(&key.name, &key.key, &value.0).map(Some),
            None if optional => Ok(None),
            None => error(format!(
                "couldn't find key {} in Secret {namespace}/{}",
                key.key, key.name
            )),
        };
    }
    if let Some(selector) = &source.resource_field_ref {
        return resources::value(pod, Some(container), selector)
            .map(Some)
            .map_err(|reason| ConfigError(format!("env {variable}: {reason}")));
    }
    error(format!(
        "env {variable}: only fieldRef, resourceFieldRef, configMapKeyRef and secretKeyRef are supported by the \
         local node"
    ))
}

fn text(secret: &str, key: &str, value: &[u8]) -> Result<String, ConfigError> {
    String::from_utf8(value.to_vec()).map_err(|_| {
        ConfigError(format!(
            "key {key} in secret {secret:?} is not text: mount it as a file instead"
        ))
    })
}

/// The value of a downward API field.
pub(super) fn field_value(pod: &Pod, path: &str) -> Option<String> {
    let spec = pod.spec.as_ref();
    let in_map = |map: &BTreeMap<String, String>, rest: &str| {
        let key = rest.strip_prefix("['")?.strip_suffix("']")?;
        Some(map.get(key).cloned().unwrap_or_default())
    };
    match path {
        "metadata.name" => pod.metadata.name.clone(),
        "metadata.namespace" => pod.metadata.namespace.clone(),
        "metadata.uid" => pod.metadata.uid.clone(),
        "metadata.labels" => Some(lines(pod.labels())),
        "metadata.annotations" => Some(lines(pod.annotations())),
        "spec.nodeName" => spec?.node_name.clone(),
        "spec.serviceAccountName" => Some(spec?.service_account_name.clone().unwrap_or_default()),
        "status.podIP" | "status.podIPs" => Some(POD_IP.to_owned()),
        "status.hostIP" | "status.hostIPs" => Some(HOST_IP.to_owned()),
        _ => {
            if let Some(rest) = path.strip_prefix("metadata.labels") {
                return in_map(pod.labels(), rest);
            }
            in_map(pod.annotations(), path.strip_prefix("metadata.annotations")?)
        }
    }
}

/// A map as the downward API writes it: sorted lines of `key="value"`.
fn lines(map: &BTreeMap<String, String>) -> String {
    let lines: Vec<String> = map
        .iter()
        .map(|(key, value)| format!("{key}={value:?}"))
        .collect();
    lines.join("\n")
}

/// Replaces `$(NAME)` by its value; `$$(NAME)` stands for the text `$(NAME)`, and unknown names stay.
pub(crate) fn expand(text: &str, variables: &BTreeMap<String, String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(dollar) = rest.find('$') {
        out.push_str(&rest[..dollar]);
        let after = &rest[dollar + 1..];
        if let Some(escaped) = after.strip_prefix('$') {
            out.push('$');
            rest = escaped;
        } else if let Some((name, tail)) = after.strip_prefix('(').and_then(|name| name.split_once(')')) {
            match variables.get(name) {
                Some(value) => out.push_str(value),
                None => out.push_str(&format!("$({name})")),
            }
            rest = tail;
        } else {
            out.push('$');
            rest = after;
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(env: serde_json::Value, env_from: serde_json::Value) -> Pod {
        serde_json::from_value(json!({
            "metadata": { "name": "p", "namespace": "ns", "uid": "u", "labels": { "app": "x" },
                          "annotations": { "a/b": "note" } },
            "spec": { "nodeName": "local", "containers": [ { "name": "c", "env": env, "envFrom": env_from } ] }
        }))
        .unwrap()
    }

    fn sources() -> Sources {
        let config: k8s_openapi::api::core::v1::ConfigMap =
            serde_json::from_value(json!({ "data": { "k": "v", "e": "$(k)" } })).unwrap();
        let secret: k8s_openapi::api::core::v1::Secret =
            serde_json::from_value(json!({ "data": { "s": "c2VjcmV0", "b": "/w==" } })).unwrap();
        Sources {
            config_maps: [("cm".into(), config)].into(),
            secrets: [("sec".into(), secret)].into(),
            ..Sources::default()
        }
    }

    fn result(
        env: serde_json::Value,
        env_from: serde_json::Value,
    ) -> Result<BTreeMap<String, String>, String> {
        let pod = pod(env, env_from);
        let container = pod.spec.as_ref().unwrap().containers[0].clone();
        variables(&container, &pod, &sources()).map_err(|error| error.to_string())
    }

    #[test]
    fn expansion_follows_the_kubelet() {
        let variables = BTreeMap::from([("A".to_owned(), "1".to_owned())]);
        for (text, expected) in [
            ("$(A)", "1"),
            ("x$(A)y$(A)", "x1y1"),
            ("$$(A)", "$(A)"),
            ("$$$(A)", "$1"),
            ("$(B)", "$(B)"),
            ("$A $", "$A $"),
            ("$(A", "$(A"),
        ] {
            assert_eq!(expand(text, &variables), expected, "{text}");
        }
    }

    #[test]
    fn variables_come_from_everywhere_and_later_ones_win() {
        let env = json!([
            { "name": "k", "value": "own" },
            { "name": "E", "value": "<$(k)>" },
            { "name": "LATER", "value": "$(NOT_YET)" },
            { "name": "NOT_YET", "value": "1" },
            { "name": "NAME", "valueFrom": { "fieldRef": { "fieldPath": "metadata.name" } } },
            { "name": "APP", "valueFrom": { "fieldRef": { "fieldPath": "metadata.labels['app']" } } },
            { "name": "NOTE", "valueFrom": { "fieldRef": { "fieldPath": "metadata.annotations['a/b']" } } },
            { "name": "CPU", "valueFrom": { "resourceFieldRef": { "resource": "requests.cpu" } } },
            { "name": "IP", "valueFrom": { "fieldRef": { "fieldPath": "status.podIP" } } },
            { "name": "CM", "valueFrom": { "configMapKeyRef": { "name": "cm", "key": "e" } } },
            { "name": "SEC", "valueFrom": { "secretKeyRef": { "name": "sec", "key": "s" } } },
            { "name": "NONE", "valueFrom": { "secretKeyRef": { "name": "no", "key": "s", "optional": true } } },
        ]);
        let found = result(env, json!([{ "prefix": "P_", "configMapRef": { "name": "cm" } }, { "configMapRef": { "name": "cm" } }])).unwrap();
        let expected = [
            ("APP", "x"),
            ("CM", "$(k)"),
            ("CPU", "0"),
            ("E", "<own>"),
            ("IP", "127.0.0.1"),
            ("LATER", "$(NOT_YET)"),
            ("NAME", "p"),
            ("NOTE", "note"),
            ("NOT_YET", "1"),
            ("P_e", "$(k)"),
            ("P_k", "v"),
            ("SEC", "secret"),
            ("e", "$(k)"),
            ("k", "own"),
        ];
        assert_eq!(
            found,
            expected
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into()
        );
    }

    #[test]
    fn a_missing_reference_is_named() {
        for (from, message) in [
            (
                json!({ "configMapKeyRef": { "name": "no", "key": "k" } }),
                "configmap \"no\" not found",
            ),
            (
                json!({ "configMapKeyRef": { "name": "cm", "key": "no" } }),
                "couldn't find key no in ConfigMap ns/cm",
            ),
            (
                json!({ "secretKeyRef": { "name": "no", "key": "k" } }),
                "secret \"no\" not found",
            ),
            (
                json!({ "secretKeyRef": { "name": "sec", "key": "no" } }),
                "couldn't find key no in Secret ns/sec",
            ),
            (
                json!({ "secretKeyRef": { "name": "sec", "key": "b" } }),
                "mount it as a file instead",
            ),
            (
                json!({ "resourceFieldRef": { "resource": "limits.gpu" } }),
                "env X: unsupported container resource: limits.gpu",
            ),
            (
                json!({ "fileKeyRef": { "volumeName": "v", "path": "p", "key": "k" } }),
                "env X: only fieldRef",
            ),
            (
                json!({ "fieldRef": { "fieldPath": "spec.other" } }),
                "unsupported fieldPath: spec.other",
            ),
        ] {
            let found = result(json!([{ "name": "X", "valueFrom": from }]), json!([])).unwrap_err();
            assert!(found.contains(message), "{found}");
        }
        let found = result(json!([]), json!([{ "secretRef": { "name": "no" } }])).unwrap_err();
        assert_eq!(found, "secret \"no\" not found");
        assert!(
            result(
                json!([]),
                json!([{ "secretRef": { "name": "no", "optional": true } }])
            )
            .unwrap()
            .is_empty()
        );
    }
}
