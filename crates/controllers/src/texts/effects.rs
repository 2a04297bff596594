//! That there is nothing in the schemas that does nothing: with each field changed alone, something else becomes of
//! the resource. But an older spelling beside the newer one changes nothing, and that is said.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::{Value, json};

use super::Row;
use crate::common::testing::yaml;

const EFFECTS: &str = include_str!("effects.yaml");

/// Types of Kubernetes itself: what it makes of their fields is not tested here.
const EMBEDDED: [&str; 2] = ["podSpec", "resources"];

/// Fields that change nothing, and why.
const EXCEPTIONS: [(&str, &str); 2] = [
    ("Agent.config.memory.type", "it has only one value"),
    (
        "MCPServer.config.tools.fromSecretKeyRef.optional",
        "it comes with the type of Kubernetes, and the status says that it has no effect",
    ),
];

/// A spec, and changes that are each made to it alone.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Effects {
    kind: String,
    spec: Value,
    /// What beside an Agent is not ready.
    #[serde(default)]
    unready: Vec<String>,
    #[serde(default)]
    changes: Vec<Value>,
    /// Older spellings of what the spec has.
    #[serde(default)]
    overridden: Vec<Value>,
}

impl Effects {
    /// Everything that becomes of a spec, and the reasons of what else is said of it.
    fn outcome(&self, spec: &Value) -> (String, Vec<&'static str>) {
        let row = json!({"case": "", "spec": spec, "unready": self.unready, "gateway": true});
        let row: Row = serde_json::from_value(row).unwrap();
        let (plan, more) = match self.kind.as_str() {
            "Agent" => row.agent(),
            "ModelAPI" => row.model_api(),
            _ => row.mcp_server(),
        };
        let objects = plan.objects.map(|objects| yaml(&objects));
        (
            format!("{objects:?} {:?} {more:?}", plan.lacks),
            plan.notes.into_iter().map(|note| note.reason).collect(),
        )
    }

    /// As [`Effects::outcome`], with a change of the spec.
    fn outcome_with(&self, change: &Value) -> (String, Vec<&'static str>) {
        let mut spec = self.spec.clone();
        merge(&mut spec, change);
        self.outcome(&spec)
    }
}

fn effects() -> Vec<Effects> {
    serde_saphyr::from_str(EFFECTS).unwrap()
}

fn merge(into: &mut Value, patch: &Value) {
    match (into, patch) {
        (Value::Object(into), Value::Object(patch)) => {
            for (name, patch) in patch {
                merge(into.entry(name).or_insert_with(|| json!({})), patch);
            }
        }
        (into, patch) => *into = patch.clone(),
    }
}

/// The fields below `path` that hold no fields of their own.
fn leaves(path: &str, schema: &Value, fields: &mut BTreeSet<String>) {
    let name = path.rsplit('.').next().unwrap_or_default();
    match schema["properties"].as_object() {
        Some(properties) if !EMBEDDED.contains(&name) => {
            for (name, schema) in properties {
                leaves(&format!("{path}.{name}"), schema, fields);
            }
        }
        _ => {
            fields.insert(path.to_owned());
        }
    }
}

/// The one of `fields` that `patch` changes, at or below `path`.
fn changed(path: &str, patch: &Value, fields: &BTreeSet<String>) -> String {
    match patch.as_object() {
        Some(entries) if !fields.contains(path) => {
            assert_eq!(entries.len(), 1, "{path} is to change one field: {patch}");
            let (name, patch) = entries.iter().next().unwrap();
            changed(&format!("{path}.{name}"), patch, fields)
        }
        _ => {
            assert!(fields.contains(path), "{path} is no field");
            path.to_owned()
        }
    }
}

#[test]
fn every_field_takes_effect() {
    let mut fields = BTreeSet::new();
    for definition in kaos_api::crds() {
        let schema = json!(definition.spec.versions[0].schema);
        let spec = &schema["openAPIV3Schema"]["properties"]["spec"];
        leaves(&definition.spec.names.kind, spec, &mut fields);
    }
    let (mut effective, mut without) = (BTreeSet::new(), Vec::new());
    for effects in effects() {
        let (before, _) = effects.outcome(&effects.spec);
        for change in &effects.changes {
            let field = changed(&effects.kind, change, &fields);
            if effects.outcome_with(change).0 == before {
                without.push(format!("{}: {change} makes no difference", effects.kind));
            } else {
                effective.insert(field);
            }
        }
    }
    assert!(without.is_empty(), "{}", without.join("\n"));
    let missing: Vec<&str> = fields.difference(&effective).map(String::as_str).collect();
    assert_eq!(
        missing,
        EXCEPTIONS.map(|(field, _)| field),
        "add the fields to effects.yaml"
    );
}

#[test]
fn an_older_spelling_beside_the_newer_one_changes_nothing_and_is_told() {
    let mut count = 0;
    for effects in effects() {
        let (before, notes) = effects.outcome(&effects.spec);
        for older in &effects.overridden {
            let (after, told) = effects.outcome_with(older);
            assert_eq!(after, before, "{} {older}", effects.kind);
            let told: Vec<_> = told
                .into_iter()
                .filter(|reason| !notes.contains(reason))
                .collect();
            assert_eq!(told, ["OlderSpelling"], "{} {older}", effects.kind);
            count += 1;
        }
    }
    assert!(count > 0, "there are older spellings");
}
