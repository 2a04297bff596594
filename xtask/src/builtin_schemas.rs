//! The schemas of the embedded API server's built-in kinds, from the OpenAPI files of the Kubernetes Go module.
//!
//! What is kept: types, formats, required fields, defaults, keys and merge strategies of lists. What is dropped:
//! descriptions, which are most of the files, and defaults that say nothing (`""`, and `{}` but for fields: there it
//! says that the field is always there).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::{Map, Value, json};

/// The folder of the documents inside the module `k8s.io/kubernetes`.
const FOLDER: &str = "api/openapi-spec/v3";

/// Group, version and the kinds that are described. The embedded server says how they are served
/// (`crates/apiserver/src/builtin`).
const KINDS: &[(&str, &str, &[&str])] = &[
    (
        "",
        "v1",
        &[
            "ConfigMap",
            "Endpoints",
            "Event",
            "Namespace",
            "Node",
            "PersistentVolumeClaim",
            "Pod",
            "Secret",
            "Service",
            "ServiceAccount",
        ],
    ),
    ("apiextensions.k8s.io", "v1", &["CustomResourceDefinition"]),
    ("apps", "v1", &["Deployment", "ReplicaSet"]),
    ("batch", "v1", &["Job"]),
    ("autoscaling", "v1", &["Scale"]),
    ("coordination.k8s.io", "v1", &["Lease"]),
    ("discovery.k8s.io", "v1", &["EndpointSlice"]),
    ("events.k8s.io", "v1", &["Event"]),
];

/// What is sent but not kept.
const SENT: &[&str] = &["v1/Binding", "v1/DeleteOptions"];

/// All that the server reads in bodies of requests, such as `apps/v1/Deployment`.
pub(crate) fn bodies() -> Vec<String> {
    let kept = KINDS.iter().flat_map(|(group, version, kinds)| {
        let slash = if group.is_empty() { "" } else { "/" };
        kinds
            .iter()
            .map(move |kind| format!("{group}{slash}{version}/{kind}"))
    });
    kept.chain(SENT.iter().map(|kind| (*kind).to_owned())).collect()
}

const REFERENCE: &str = "#/components/schemas/";

/// What a schema may say that the server reads.
const KEPT: &[&str] = &[
    "additionalProperties",
    "default",
    "enum",
    "format",
    "items",
    "properties",
    "required",
    "type",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-list-type",
    "x-kubernetes-map-type",
    "x-kubernetes-patch-merge-key",
    "x-kubernetes-patch-strategy",
    "x-kubernetes-preserve-unknown-fields",
];

/// Makes the schema file from the unpacked module `k8s.io/kubernetes`.
///
/// # Errors
/// Where a document is missing or does not have one of the kinds.
pub(crate) fn generate(module_dir: &Path) -> Result<String> {
    let mut schemas = BTreeMap::new();
    for (group, version, kinds) in KINDS {
        let document = read(module_dir, document_of(group), version)?;
        let all = document
            .pointer("/components/schemas")
            .and_then(Value::as_object)
            .with_context(|| format!("the document of {group}/{version} has no schemas"))?;
        let mut names = BTreeSet::new();
        for kind in *kinds {
            let served = json!({ "group": group, "kind": kind, "version": version });
            let Some(name) = name_of(all, &served) else {
                bail!("the document of {group}/{version} has no kind {kind}")
            };
            collect(all, name, &mut names)?;
            let mut schema = reduce(&all[name]);
            schema["x-kubernetes-group-version-kind"] = json!([served]);
            schemas.insert(name.to_owned(), schema);
        }
        for name in names {
            schemas.entry(name).or_insert_with_key(|name| reduce(&all[name]));
        }
    }
    // One schema a line: small, and a change of the module shows as the lines it changes.
    let lines: Vec<String> = schemas
        .iter()
        .map(|(name, schema)| format!("{}:{schema}", Value::from(name.as_str())))
        .collect();
    Ok(format!("{{\n{}\n}}\n", lines.join(",\n")))
}

/// The group whose document describes a group's kinds. Scale is a subresource only: it has no document of its own.
fn document_of(group: &'static str) -> &'static str {
    if group == "autoscaling" { "apps" } else { group }
}

fn read(module_dir: &Path, group: &str, version: &str) -> Result<Value> {
    let file = if group.is_empty() {
        format!("api__{version}_openapi.json")
    } else {
        format!("apis__{group}__{version}_openapi.json")
    };
    let path = module_dir.join(FOLDER).join(file);
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} is not JSON", path.display()))
}

/// The schema that describes a served kind.
fn name_of<'a>(all: &'a Map<String, Value>, served: &Value) -> Option<&'a str> {
    all.iter()
        .find(|(_, schema)| {
            let kinds = schema["x-kubernetes-group-version-kind"].as_array();
            kinds.is_some_and(|kinds| kinds.contains(served))
        })
        .map(|(name, _)| name.as_str())
}

/// Adds a schema and all that it refers to.
fn collect(all: &Map<String, Value>, name: &str, names: &mut BTreeSet<String>) -> Result<()> {
    if !names.insert(name.to_owned()) {
        return Ok(());
    }
    let schema = all
        .get(name)
        .with_context(|| format!("a schema refers to {name}, which is not there"))?;
    for reference in references(schema) {
        collect(all, reference, names)?;
    }
    Ok(())
}

fn references(schema: &Value) -> Vec<&str> {
    match schema {
        Value::Object(fields) => fields
            .iter()
            .flat_map(
                |(key, value)| match value.as_str().and_then(|path| path.strip_prefix(REFERENCE)) {
                    Some(name) if key == "$ref" => vec![name],
                    _ => references(value),
                },
            )
            .collect(),
        Value::Array(items) => items.iter().flat_map(references).collect(),
        _ => Vec::new(),
    }
}

/// A schema without what the server does not read.
fn reduce(schema: &Value) -> Value {
    let Some(fields) = schema.as_object() else {
        return schema.clone();
    };
    let mut reduced = Map::new();
    // A reference with settings beside it is written as `allOf` of one reference.
    if let Some(reference) = schema.get("$ref").or_else(|| schema.pointer("/allOf/0/$ref")) {
        reduced.insert("$ref".to_owned(), reference.clone());
    }
    // Quantities and ports are texts or numbers.
    if fields.contains_key("oneOf") {
        reduced.insert("x-kubernetes-int-or-string".to_owned(), true.into());
    }
    for key in KEPT {
        let Some(value) = fields.get(*key) else { continue };
        let value = match *key {
            "properties" => {
                let properties = value.as_object().into_iter().flatten();
                Value::Object(
                    properties
                        .map(|(name, property)| (name.clone(), reduce(property)))
                        .collect(),
                )
            }
            "items" | "additionalProperties" => {
                let mut below = reduce(value);
                if let Some(fields) = below
                    .as_object_mut()
                    .filter(|fields| fields.get("default") == Some(&json!({})))
                {
                    fields.remove("default");
                }
                below
            }
            "default" if *value == json!("") => continue,
            _ => value.clone(),
        };
        reduced.insert((*key).to_owned(), value);
    }
    Value::Object(reduced)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_keeps_what_the_server_reads() {
        let schema = json!({
            "description": "long",
            "type": "object",
            "required": ["name"],
            "properties": {
                "name": { "type": "string", "default": "", "description": "long" },
                "protocol": { "type": "string", "default": "TCP" },
                "strategy": {
                    "allOf": [{ "$ref": "#/components/schemas/a.Strategy" }],
                    "default": {},
                    "x-kubernetes-patch-strategy": "retainKeys"
                },
                "port": { "oneOf": [{ "type": "integer" }, { "type": "string" }], "format": "int-or-string" }
            }
        });
        assert_eq!(references(&schema), ["a.Strategy"]);
        assert_eq!(
            reduce(&schema),
            json!({
                "type": "object",
                "required": ["name"],
                "properties": {
                    "name": { "type": "string" },
                    "protocol": { "type": "string", "default": "TCP" },
                    "strategy": {
                        "$ref": "#/components/schemas/a.Strategy",
                        "default": {},
                        "x-kubernetes-patch-strategy": "retainKeys"
                    },
                    "port": { "x-kubernetes-int-or-string": true, "format": "int-or-string" }
                }
            })
        );
    }
}
