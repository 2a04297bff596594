//! Whether the scenarios change every field that a user may write.

use std::collections::BTreeSet;

use kaos_perturb::{Key, Scenario, Step};
use serde_json::{Value, json};

/// Types of Kubernetes itself, each of which some scenario changes as one field.
const EMBEDDED: [&str; 5] = [
    "configMapKeyRef",
    "fromSecretKeyRef",
    "podSpec",
    "resources",
    "secretKeyRef",
];

/// Fields that no scenario changes, and why.
const EXCEPTIONS: [(&str, &str); 1] = [("Agent.config.memory.type", "it has only one value")];

/// The fields of the schemas that no scenario changes, and exceptions that are none: what to do about each.
pub(crate) fn missing(scenarios: &[Scenario]) -> Vec<String> {
    let schemas: Vec<(String, Value)> = kaos_api::crds()
        .iter()
        .map(|definition| {
            let schema = json!(definition.spec.versions[0].schema);
            let spec = schema["openAPIV3Schema"]["properties"]["spec"].clone();
            (definition.spec.names.kind.clone(), spec)
        })
        .collect();
    let mut fields = BTreeSet::new();
    for (kind, schema) in &schemas {
        leaves(kind, schema, &mut fields);
    }
    let mut changed = BTreeSet::new();
    for scenario in scenarios {
        for (kind, before, patch) in changes(scenario) {
            if schemas.iter().any(|(known, _)| known == kind) {
                note(kind, before, patch, &fields, &mut changed);
            }
        }
    }
    let is_exception = |field: &str| EXCEPTIONS.iter().any(|(exception, _)| *exception == field);
    let unchanged = fields
        .difference(&changed)
        .filter(|field| !is_exception(field))
        .map(|field| format!("no scenario changes {field}: add it to `fields` in tests/perturb/scenarios"));
    let needless = EXCEPTIONS
        .iter()
        .filter(|(field, _)| changed.contains(*field) || !fields.contains(*field))
        .map(|(field, _)| {
            format!("{field} need not be an exception: a scenario changes it, or it is no field")
        });
    unchanged.chain(needless).collect()
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

/// The merges of a scenario: the kind, the spec of the object as its user gave it, and the patch of that.
fn changes(scenario: &Scenario) -> impl Iterator<Item = (&str, &Value, &Value)> {
    let applied = scenario.steps.iter().flat_map(|step| match step {
        Step::Apply(objects) => objects.as_slice(),
        _ => &[],
    });
    let given: Vec<&Value> = scenario.before.iter().chain(applied).collect();
    scenario.steps.iter().filter_map(move |step| {
        let Step::Merge { object, patch } = step else {
            return None;
        };
        let is_meant = |given: &&&Value| {
            let key = Key::of(given);
            (&key.kind, &key.name) == (&object.kind, &object.name)
        };
        let before = given.iter().find(is_meant)?;
        Some((object.kind.as_str(), &before["spec"], &patch["spec"]))
    })
}

/// Notes the fields that `patch` changes.
fn note(
    path: &str,
    before: &Value,
    patch: &Value,
    fields: &BTreeSet<String>,
    changed: &mut BTreeSet<String>,
) {
    if fields.contains(path) {
        if before != patch {
            changed.insert(path.to_owned());
        }
        return;
    }
    for (name, patch) in patch.as_object().into_iter().flatten() {
        note(&format!("{path}.{name}"), &before[name], patch, fields, changed);
    }
}
