//! A configuration file that the user gives: used as it is, and read for what can be told to be wrong.

use serde::Deserialize;
use serde_json::Value;

use super::accepts::matches;

/// What is looked at of a file; the rest is LiteLLM's.
#[derive(Debug, Deserialize)]
pub(super) struct GivenFile {
    model_list: Option<Vec<Entry>>,
    litellm_settings: Option<Settings>,
}

#[derive(Debug, Deserialize)]
struct Entry {
    model_name: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
struct Settings {
    #[serde(default)]
    callbacks: Value,
    #[serde(default)]
    success_callback: Value,
}

/// Reads a file.
///
/// # Errors
/// What is wrong with it, in one line.
pub(super) fn parse(text: &str) -> Result<GivenFile, String> {
    serde_saphyr::from_str(text).map_err(|error| {
        let error = error.without_snippet().to_string();
        error.lines().next().unwrap_or_default().trim().to_owned()
    })
}

impl GivenFile {
    /// The names that requests may use.
    pub(super) fn names(&self) -> Vec<&str> {
        let entries = self.model_list.iter().flatten();
        entries.filter_map(|entry| entry.model_name.as_deref()).collect()
    }

    /// Checks the names against the `models` of the spec, of which there may be none.
    ///
    /// # Errors
    /// What is wrong, with the fix.
    pub(super) fn check(&self, models: &[&str]) -> Result<(), String> {
        for (at, entry) in self.model_list.iter().flatten().enumerate() {
            let Some(name) = &entry.model_name else {
                return Err(format!(
                    "failed to parse configYaml: model_list[{at}] has no model_name; add the name that requests use"
                ));
            };
            if !models.is_empty() && !models.iter().any(|pattern| matches(pattern, name)) {
                return Err(format!(
                    "model_name {name:?} in configYaml not found in models list [{}]; \
                     add it to spec.proxyConfig.models, or take it out of spec.proxyConfig.configYaml",
                    models.join(" ")
                ));
            }
        }
        Ok(())
    }

    /// Whether the file has LiteLLM send traces.
    pub(super) fn sends_traces(&self) -> bool {
        let has_otel = |value: &Value| match value {
            Value::String(name) => name == super::config_file::OTEL,
            Value::Array(names) => names.iter().any(|name| name == super::config_file::OTEL),
            _ => false,
        };
        let settings = self.litellm_settings.as_ref();
        settings.is_some_and(|settings| has_otel(&settings.callbacks) || has_otel(&settings.success_callback))
    }
}
