//! What a user does, as data.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{Fault, mirror::Key};

/// What there is, and what a user then does, step by step. After each step the world comes to rest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Scenario {
    /// What it shows.
    pub name: String,
    /// Definitions of the subject, by name, that are not installed at first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub absent: Vec<String>,
    /// Objects of the user that are there and settled before anything goes wrong.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub before: Vec<Value>,
    /// Objects of others, which nobody may touch. They are there first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub foreign: Vec<Value>,
    /// What the user does.
    pub steps: Vec<Step>,
    /// Whether somebody else tampers with what the controllers have made at the end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tamper: bool,
}

/// One thing that a user does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum Step {
    /// Applies objects, whole.
    Apply(Vec<Value>),
    /// Changes fields of an object by a JSON merge patch.
    Merge {
        /// The object.
        object: Key,
        /// The patch.
        patch: Value,
    },
    /// Deletes an object.
    Delete(Key),
    /// Installs a definition of the subject, by name.
    Install(String),
    /// Deletes a definition of the subject, by name, and with it all objects of its kind.
    Uninstall(String),
    /// Takes back the step before.
    Revert,
}

/// One scenario and what goes wrong in it; all there is to a replay.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Case {
    /// What the user does.
    pub scenario: Scenario,
    /// What goes wrong; nothing in an undisturbed run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<Fault>,
}

impl Scenario {
    /// Where the first step deletes an object: the scenario in which it never was, and nothing happens.
    pub(crate) fn without_what_is_deleted(&self) -> Option<Self> {
        let Some(Step::Delete(gone)) = self.steps.first() else {
            return None;
        };
        let is_gone = |object: &Value| {
            let key = Key::of(object);
            (&key.kind, &key.name) == (&gone.kind, &gone.name)
        };
        Some(Self {
            before: self
                .before
                .iter()
                .filter(|object| !is_gone(object))
                .cloned()
                .collect(),
            steps: Vec::new(),
            ..self.clone()
        })
    }

    /// How big it is: what shrinking makes less.
    pub(crate) fn size(&self) -> usize {
        let objects = self.before.len() + self.foreign.len();
        let steps = self.steps.iter().map(|step| match step {
            Step::Apply(objects) => objects.len(),
            _ => 1,
        });
        objects + steps.sum::<usize>()
    }
}

/// The merge patch that takes `patch` back where it is applied to `object`.
pub(crate) fn inverse(patch: &Value, object: &Value) -> Value {
    let Value::Object(fields) = patch else {
        return object.clone();
    };
    let undone = fields.iter().map(|(name, patch)| {
        let undo = match object.get(name) {
            None | Some(Value::Null) => Value::Null,
            Some(live) if patch.is_object() && live.is_object() => inverse(patch, live),
            Some(live) => live.clone(),
        };
        (name.clone(), undo)
    });
    Value::Object(undone.collect::<Map<_, _>>())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_patch_is_taken_back_field_by_field() {
        let object = json!({"spec": {"a": 1, "deep": {"x": "y", "z": [1]}}});
        let patch = json!({"spec": {"a": 2, "b": {"c": 3}, "deep": {"z": [2], "x": null}}});
        assert_eq!(
            inverse(&patch, &object),
            json!({"spec": {"a": 1, "b": null, "deep": {"z": [1], "x": "y"}}})
        );
    }
}
