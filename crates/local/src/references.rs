//! What the pods would look for: Secrets and ConfigMaps, and keys of them.

use std::collections::BTreeSet;

use k8s_openapi::api::apps::v1::Deployment;
use kube::ResourceExt;
use serde_json::Value;

use crate::{env_file::ENV_SECRET, finding::Finding, manifest::Manifest, positions::join};

/// A Secret or ConfigMap, or a key of one, that a pod needs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Reference {
    kind: &'static str,
    name: String,
    key: Option<String>,
}

/// What the pods of `deployments` refer to and is not among the manifests. Warnings: it may be on the cluster.
pub(crate) fn missing(deployments: &[Deployment], manifests: &[Manifest], namespace: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for deployment in deployments {
        let within = deployment.namespace().unwrap_or_default();
        let template = serde_json::to_value(&deployment.spec.template);
        let mut references = BTreeSet::new();
        collect(&template.unwrap_or_default(), "", &mut references);
        let owner = deployment.metadata.owner_references.iter().flatten().next();
        let (kind, name) = owner.map_or(("Deployment".to_owned(), deployment.name_any()), |owner| {
            (owner.kind.clone(), owner.name.clone())
        });
        let is_user = |one: &&Manifest| {
            one.gvk().kind == kind && one.name() == name && one.namespace_or(namespace) == within
        };
        let Some(user) = manifests.iter().find(is_user) else {
            continue;
        };
        for reference in references {
            let is_it = |one: &&Manifest| {
                one.gvk().kind == reference.kind
                    && one.name() == reference.name
                    && one.namespace_or(namespace) == within
            };
            let Some(problem) = problem(&reference, manifests.iter().find(is_it)) else {
                continue;
            };
            // What the controllers themselves make is not written in the manifest.
            let Some(field) = place(
                &Value::Object(user.object.data.as_object().cloned().unwrap_or_default()),
                "",
                &reference,
            ) else {
                continue;
            };
            findings.push(user.finding(Some(&field), problem).into_warning());
        }
    }
    findings
}

fn problem(reference: &Reference, found: Option<&Manifest>) -> Option<String> {
    let Reference { kind, name, key } = reference;
    let Some(found) = found else {
        return Some(if name == ENV_SECRET && *kind == "Secret" {
            format!(
                "{kind} {name} is what `kaos up --env-file FILE` makes; on a cluster it has to be there before"
            )
        } else {
            format!("{kind} {name} is not among these files; it has to be there before the pods start")
        });
    };
    let key = key.as_deref()?;
    let holds = |field: &str| found.object.data[field].get(key).is_some();
    let has = ["data", "stringData", "binaryData"].into_iter().any(holds);
    (!has).then(|| format!("{kind} {name} has no key {key}"))
}

/// Finds the references of a pod template.
fn collect(value: &Value, name: &str, found: &mut BTreeSet<Reference>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| collect(item, name, found)),
        Value::Object(object) => {
            if object.get("optional") != Some(&Value::Bool(true)) {
                found.extend(reference(value, name));
            }
            for (name, value) in object {
                collect(value, name, found);
            }
        }
        _ => {}
    }
}

/// What the value of a field called `name` refers to.
fn reference(value: &Value, name: &str) -> Option<Reference> {
    let text = |key: &str| value[key].as_str().map(ToOwned::to_owned);
    let (kind, names, key) = match name {
        "secretKeyRef" | "fromSecretKeyRef" => ("Secret", "name", text("key")),
        "configMapKeyRef" => ("ConfigMap", "name", text("key")),
        "secretRef" => ("Secret", "name", None),
        "configMapRef" | "configMap" => ("ConfigMap", "name", None),
        "secret" if value["secretName"].is_string() => ("Secret", "secretName", items(value)),
        // In a projected volume.
        "secret" => ("Secret", "name", items(value)),
        _ => return None,
    };
    Some(Reference {
        kind,
        name: text(names)?,
        key,
    })
}

/// The key that a volume shows, where it is one.
fn items(value: &Value) -> Option<String> {
    match value["items"].as_array()?.as_slice() {
        [one] => one["key"].as_str().map(ToOwned::to_owned),
        _ => None,
    }
}

/// The field of a resource's own spec in which it names what a pod then looks for.
fn place(value: &Value, path: &str, wanted: &Reference) -> Option<String> {
    let name = path.rsplit('.').next().unwrap_or(path);
    if let Some(found) = reference(value, name)
        && (found.kind, &found.name) == (wanted.kind, &wanted.name)
        && (found.key.is_none() || wanted.key.is_none() || found.key == wanted.key)
    {
        return Some(path.to_owned());
    }
    match value {
        Value::Object(object) => object
            .iter()
            .find_map(|(key, value)| place(value, &join(path, key), wanted)),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .find_map(|(at, item)| place(item, &format!("{path}[{at}]"), wanted)),
        _ => None,
    }
}
