//! Which model an agent asks.

use k8s_openapi::api::core::v1::EnvVar;
use kaos_api::{
    names::Kind,
    v1alpha1::{ModelAPI, PodSpecPatch},
};
use serde_json::Value;

use crate::{
    common::{plan::Note, status::Standing},
    model_api::accepts::accepts,
};

/// The variable with the model's name.
pub(crate) const MODEL_NAME: &str = "MODEL_NAME";
/// The model of an agent that names none.
const DEFAULT_MODEL: &str = "smollm2:135m";

fn items(value: Option<&Value>) -> impl Iterator<Item = &Value> {
    value.and_then(Value::as_array).into_iter().flatten()
}

/// The user's [`MODEL_NAME`], if there is one: that of the pod spec comes over the others.
pub(crate) fn variable(users: &[EnvVar], pod_spec: Option<&PodSpecPatch>) -> Option<EnvVar> {
    let named = |value: &&Value, name: &str| value.get("name").and_then(Value::as_str) == Some(name);
    let container = items(pod_spec.and_then(|patch| patch.0.get("containers")))
        .find(|container| named(container, Kind::Agent.container()));
    let patched = items(container.and_then(|container| container.get("env")))
        .find(|variable| named(variable, MODEL_NAME) && variable.get("$patch").is_none())
        // One that is none is told of when the pod spec is merged.
        .and_then(|variable| serde_json::from_value(variable.clone()).ok());
    let given = || users.iter().rev().find(|variable| variable.name == MODEL_NAME);
    patched.or_else(|| given().cloned())
}

/// The model for the generated [`MODEL_NAME`]: that of `spec.model`, or the default one. Nothing where the user's
/// `variable` has it.
///
/// # Errors
/// When the ModelAPI does not serve the model, or none is named and it does not serve the default one.
pub(crate) fn model<'a>(
    model: Option<&'a str>,
    variable: Option<&EnvVar>,
    model_api: &ModelAPI,
    notes: &mut Vec<Note>,
) -> Result<Option<&'a str>, Standing> {
    let served = accepts(&model_api.spec);
    let name = model_api.metadata.name.as_deref().unwrap_or_default();
    let refused = |model: &str, fix: &str| {
        Standing::failed(
            "ModelNotSupported",
            format!("model {model:?} not supported by ModelAPI {name:?} (supported: [{served}]); {fix}"),
        )
    };
    if let Some(variable) = variable {
        if let Some(model) = model {
            notes.push(Note::without_effect(format!(
                "spec.model {model:?} has no effect beside the variable {MODEL_NAME}, which spec.container.env, \
                 spec.config.env or spec.podSpec sets; remove one of the two"
            )));
        }
        // What comes from elsewhere, or is put together from other variables, is known in the pod only.
        return match variable.value.as_deref() {
            Some(value) if variable.value_from.is_none() && !value.contains("$(") && !served.model(value) => {
                Err(refused(
                    value,
                    &format!("change the variable {MODEL_NAME} to one of these"),
                ))
            }
            _ => Ok(None),
        };
    }
    match model {
        Some(model) if served.model(model) => Ok(Some(model)),
        Some(model) => Err(refused(model, "change spec.model, or have the ModelAPI serve it")),
        None if served.model(DEFAULT_MODEL) => Ok(Some(DEFAULT_MODEL)),
        None => Err(Standing::failed(
            "ModelMissing",
            format!(
                "spec.model is required: ModelAPI {name:?} does not serve {DEFAULT_MODEL}, the model of agents \
                 that name none (supported: [{served}]); set spec.model to one of these"
            ),
        )),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::common::{env::literal, testing::stored};

    #[test]
    fn the_users_variable_wins_over_the_field_over_the_default() {
        let listed = "{mode: Proxy, proxyConfig: {models: [smart, 'openai/*']}}";
        let hosted = "{mode: Hosted, hostedConfig: {model: 'smollm2:135m'}}";
        let anything = "{mode: Proxy, proxyConfig: {models: ['*']}}";
        let from_secret = EnvVar {
            name: MODEL_NAME.to_owned(),
            value: None,
            value_from: Some(Default::default()),
        };
        let named = |value| vec![literal(MODEL_NAME, value)];
        for (spec, field, users, expected) in [
            (listed, Some("smart"), vec![], Ok(Some("smart"))),
            (listed, Some("clever"), vec![], Err("ModelNotSupported")),
            (listed, None, vec![], Err("ModelMissing")),
            (hosted, None, vec![], Ok(Some("smollm2:135m"))),
            (anything, None, vec![], Ok(Some("smollm2:135m"))),
            (listed, None, named("openai/x"), Ok(None)),
            (listed, Some("smart"), named("clever"), Err("ModelNotSupported")),
            (listed, Some("clever"), named("smart"), Ok(None)),
            (listed, None, vec![from_secret], Ok(None)),
        ] {
            let model_api: ModelAPI = stored("models", spec);
            let mut notes = Vec::new();
            let variable = variable(&users, None);
            let found =
                model(field, variable.as_ref(), &model_api, &mut notes).map_err(|standing| standing.reason);
            assert_eq!(found, expected, "{spec} {field:?} {users:?}");
            assert_eq!(!notes.is_empty(), field.is_some() && !users.is_empty());
        }
    }

    #[test]
    fn the_variable_of_the_pod_spec_comes_over_the_others() {
        let users = [literal(MODEL_NAME, "smart")];
        let found = |patch: Value| {
            let variable = variable(&users, Some(&PodSpecPatch(patch)));
            variable.and_then(|variable| variable.value)
        };
        let sets = |container: &str, name: &str| json!({"containers": [{"name": container, "env": [{"name": name, "value": "clever"}]}]});
        assert_eq!(found(sets("agent", MODEL_NAME)).as_deref(), Some("clever"));
        for other in [
            sets("sidecar", MODEL_NAME),
            sets("agent", "OTHER"),
            json!({"containers": 1}),
            json!(null),
        ] {
            assert_eq!(found(other.clone()).as_deref(), Some("smart"), "{other}");
        }
    }
}
