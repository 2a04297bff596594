//! Which models a ModelAPI may be asked for.

use std::fmt;

use kaos_api::v1alpha1::{ModelAPISpec, ModelApiMode};
use kaos_ollama::ModelName;

use super::{given, hosted};

/// The name that stands for every model.
pub(crate) const ANY: &str = "*";

/// The models that a ModelAPI may be asked for, as its spec tells. Shown as its status shows lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Accepts(Which);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Which {
    /// Names and patterns.
    Listed(Vec<String>),
    /// The one that Ollama runs.
    Hosted(String),
}

impl Accepts {
    /// Whether `model` is among them.
    pub(crate) fn model(&self, model: &str) -> bool {
        match &self.0 {
            Which::Listed(patterns) => patterns.iter().any(|pattern| matches(pattern, model)),
            // `smollm2` and `smollm2:latest` are one model to Ollama.
            Which::Hosted(hosted) => {
                hosted == model || hosted.parse::<ModelName>().is_ok_and(|hosted| hosted.is(model))
            }
        }
    }
}

impl fmt::Display for Accepts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Which::Listed(patterns) => f.write_str(&patterns.join(" ")),
            Which::Hosted(model) => f.write_str(model),
        }
    }
}

/// Whether `pattern` (a name, or with `*` at its end all names that begin so) stands for `name`.
pub(super) fn matches(pattern: &str, name: &str) -> bool {
    pattern == name
        || pattern
            .strip_suffix('*')
            .is_some_and(|prefix| name.starts_with(prefix))
}

/// The models that a ModelAPI of this spec may be asked for. What its configuration file has where the spec lists
/// none; all where nobody here can know.
pub(crate) fn accepts(spec: &ModelAPISpec) -> Accepts {
    let listed = |names: Vec<&str>| Accepts(Which::Listed(names.into_iter().map(str::to_owned).collect()));
    if spec.mode == ModelApiMode::Hosted {
        return Accepts(Which::Hosted(hosted::model(spec).unwrap_or_default().to_owned()));
    }
    let Some(proxy) = &spec.proxy_config else {
        return listed(Vec::new());
    };
    if !proxy.models.is_empty() {
        return listed(proxy.models.iter().map(String::as_str).collect());
    }
    if let Some(model) = &proxy.model {
        return listed(vec![model]);
    }
    let text = proxy
        .config_yaml
        .as_ref()
        .and_then(|yaml| yaml.from_string.as_deref());
    match text.map(given::parse) {
        Some(Ok(file)) if !file.names().is_empty() => listed(file.names()),
        _ => listed(vec![ANY]),
    }
}

#[cfg(test)]
mod tests {
    use kaos_api::v1alpha1::ModelAPI;

    use super::*;
    use crate::common::testing::stored;

    #[test]
    fn models_are_accepted_by_name_pattern_and_file() {
        for (spec, shown, accepted, refused) in [
            (
                "{mode: Proxy, proxyConfig: {models: [gpt-4o, 'openai/*'], model: other}}",
                "gpt-4o openai/*",
                vec!["gpt-4o", "openai/x"],
                vec!["gpt-4", "openai", "other", ""],
            ),
            (
                "{mode: Proxy, proxyConfig: {models: ['*']}}",
                "*",
                vec!["x", "a/b"],
                vec![],
            ),
            (
                "{mode: Proxy, proxyConfig: {model: one}}",
                "one",
                vec!["one"],
                vec!["two"],
            ),
            (
                "{mode: Proxy, proxyConfig: {apiBase: 'http://x'}}",
                "*",
                vec!["x"],
                vec![],
            ),
            (
                "{mode: Proxy, proxyConfig: {configYaml: {fromString: 'model_list: [{model_name: a}, {model_name: b/*}]'}}}",
                "a b/*",
                vec!["a", "b/c"],
                vec!["c"],
            ),
            (
                "{mode: Proxy, proxyConfig: {configYaml: {fromSecretKeyRef: {name: s, key: k}}}}",
                "*",
                vec!["x"],
                vec![],
            ),
            (
                "{mode: Hosted, hostedConfig: {model: smollm2}, serverConfig: {model: old}}",
                "smollm2",
                vec!["smollm2", "smollm2:latest"],
                vec!["smollm2:135m", "old"],
            ),
            (
                "{mode: Hosted, serverConfig: {model: 'm:1'}}",
                "m:1",
                vec!["m:1"],
                vec!["m", "*"],
            ),
        ] {
            let accepts = accepts(&stored::<ModelAPI>("m", spec).spec);
            assert_eq!(accepts.to_string(), shown, "{spec}");
            for model in accepted {
                assert!(accepts.model(model), "{spec}: {model}");
            }
            for model in refused {
                assert!(!accepts.model(model), "{spec}: {model}");
            }
        }
    }
}
