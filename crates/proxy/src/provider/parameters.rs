//! Parameters of OpenAI's chat completions, of which each other API has some.

use kaos_openai::Extra;
use serde_json::Value;

use super::Remote;
use crate::error::Failure;

/// All that only OpenAI's API gives a meaning to. Parameters beyond it are the provider's own and reach it.
pub(crate) const OPENAI: &[&str] = &[
    "audio",
    "frequency_penalty",
    "function_call",
    "functions",
    "logit_bias",
    "logprobs",
    "max_completion_tokens",
    "max_tokens",
    "metadata",
    "modalities",
    "n",
    "parallel_tool_calls",
    "prediction",
    "presence_penalty",
    "prompt_cache_key",
    "prompt_cache_retention",
    "reasoning_effort",
    "response_format",
    "safety_identifier",
    "seed",
    "service_tier",
    "stop",
    "store",
    "temperature",
    "top_logprobs",
    "top_p",
    "user",
    "verbosity",
    "web_search_options",
];

/// Those that only its text completions have.
const OF_TEXTS: [&str; 3] = ["best_of", "echo", "suffix"];

/// The parameters of a request, each taken once.
pub(super) struct Parameters(Extra);

impl Parameters {
    pub(super) fn new(extra: Extra) -> Self {
        Self(extra)
    }

    /// A parameter, unless it is null.
    pub(super) fn take(&mut self, name: &str) -> Option<Value> {
        self.0.shift_remove(name).filter(|value| !value.is_null())
    }

    /// The most tokens of an answer, in either spelling.
    pub(super) fn max_tokens(&mut self) -> Option<Value> {
        let older = self.take("max_tokens");
        self.take("max_completion_tokens").or(older)
    }

    /// The texts to stop at.
    pub(super) fn stop(&mut self) -> Option<Value> {
        self.take("stop").map(|stop| match stop {
            Value::String(_) => Value::Array(vec![stop]),
            other => other,
        })
    }

    /// What is left: the provider's own parameters. Those of OpenAI are left out with `drop_params`, and
    /// so are those that say what holds anyway.
    ///
    /// # Errors
    /// When one is left that the provider's API has not.
    pub(super) fn rest(self, remote: &Remote) -> Result<Extra, Failure> {
        let mut rest = self.0;
        rest.retain(|_, value| !value.is_null());
        let idle = |name: &str, value: &Value| match name {
            "n" | "best_of" => *value == 1,
            "logprobs" | "store" | "echo" => *value == false,
            "suffix" => value == "",
            "service_tier" => value == "auto" || value == "default",
            "frequency_penalty" | "presence_penalty" => value.as_f64() == Some(0.0),
            _ => false,
        };
        let foreign: Vec<String> = rest
            .keys()
            .filter(|name| OPENAI.contains(&name.as_str()) || OF_TEXTS.contains(&name.as_str()))
            .cloned()
            .collect();
        for name in foreign {
            let value = rest.shift_remove(&name).unwrap_or_default();
            if !remote.drop_params && !idle(&name, &value) {
                let message = format!(
                    "the provider {} has no parameter {name}; leave it out, or set \
                     litellm_settings.drop_params: true in the proxy's configuration",
                    remote.provider.name
                );
                return Err(Failure::parameter(&name, message));
            }
        }
        Ok(rest)
    }
}

/// The arguments of a call as an object. Those that a model wrote wrongly, or that were cut off, are carried as
/// a text: the conversation about them can go on.
pub(super) fn arguments(text: &str) -> Value {
    if text.trim().is_empty() {
        return Value::Object(Extra::new());
    }
    match serde_json::from_str(text) {
        Ok(Value::Object(arguments)) => Value::Object(arguments),
        _ => serde_json::json!({ "invalid_arguments": text }),
    }
}

/// What `tool_choice` asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ToolChoice {
    Auto,
    None,
    Required,
    One(String),
}

impl ToolChoice {
    /// Reads one.
    ///
    /// # Errors
    /// When it is none.
    pub(super) fn read(value: &Value) -> Result<Self, Failure> {
        match value {
            Value::String(word) if word == "auto" => Ok(Self::Auto),
            Value::String(word) if word == "none" => Ok(Self::None),
            Value::String(word) if word == "required" => Ok(Self::Required),
            other => match other.pointer("/function/name").and_then(Value::as_str) {
                Some(name) => Ok(Self::One(name.to_owned())),
                None => Err(Failure::parameter(
                    "tool_choice",
                    "tool_choice must be none, auto, required or name a function",
                )),
            },
        }
    }
}
