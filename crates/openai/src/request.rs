//! The request of a chat completion.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Extra, Message, lenient, message::function};

/// The body of `POST /v1/chat/completions`.
///
/// Only the fields that this project reads are named. Sampling parameters and all others are in `extra`, so
/// that a number reaches the model as it was written.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ChatRequest {
    /// The model; empty where the request names none.
    #[serde(default, deserialize_with = "lenient::null_as_default")]
    pub model: String,
    /// The conversation so far.
    #[serde(default, deserialize_with = "lenient::null_as_default")]
    pub messages: Vec<Message>,
    /// Whether the answer is a stream of [`crate::ChatChunk`]s.
    #[serde(default, deserialize_with = "lenient::null_as_default")]
    pub stream: bool,
    /// What a stream carries beside its chunks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream_options: Option<StreamOptions>,
    /// The tools that the model may call.
    #[serde(
        default,
        deserialize_with = "lenient::null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub tools: Vec<Tool>,
    /// Whether and what the model calls: `"none"`, `"auto"`, `"required"` or an object that names a tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_choice: Option<Value>,
    /// Everything else: `temperature`, `max_tokens`, `response_format`, …
    #[serde(flatten)]
    pub extra: Extra,
}

impl ChatRequest {
    /// Whether the stream ends with a chunk that carries the usage.
    pub fn include_usage(&self) -> bool {
        self.stream_options
            .as_ref()
            .is_some_and(|options| options.include_usage)
    }
}

/// What a stream carries beside its chunks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StreamOptions {
    /// A last chunk without choices carries the usage.
    #[serde(default, deserialize_with = "lenient::null_as_default")]
    pub include_usage: bool,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}

/// A tool offered to the model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tool {
    /// What it is: `function`.
    #[serde(rename = "type", default = "function")]
    pub kind: String,
    /// The function.
    pub function: FunctionDefinition,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}

impl Tool {
    /// The function `name`, whose arguments are an object of the JSON schema `parameters`.
    pub fn function(name: impl Into<String>, description: Option<String>, parameters: Value) -> Self {
        Self {
            kind: function(),
            function: FunctionDefinition {
                name: name.into(),
                description,
                parameters: Some(parameters),
                extra: Extra::new(),
            },
            extra: Extra::new(),
        }
    }
}

/// A function offered to the model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FunctionDefinition {
    /// Its name: up to 64 letters, digits, `_` and `-`.
    pub name: String,
    /// What it does and when to call it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The JSON schema of its arguments; `None`: it takes none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<Value>,
    /// Everything else, such as `strict`.
    #[serde(flatten)]
    pub extra: Extra,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_request_keeps_what_is_not_interpreted_as_it_was_written() {
        let value = json!({
            "model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": true,
            "stream_options": {"include_usage": true}, "temperature": 1, "top_p": 0.5, "max_tokens": 12,
            "tools": [{"type": "function", "function": {
                "name": "add", "description": "adds", "strict": true,
                "parameters": {"type": "object", "properties": {}},
            }}],
            "tool_choice": {"type": "function", "function": {"name": "add"}},
        });
        let request: ChatRequest = serde_json::from_value(value.clone()).unwrap();
        assert!(request.include_usage());
        assert_eq!(request.extra["temperature"].to_string(), "1");
        assert_eq!(serde_json::to_value(&request).unwrap(), value);
    }

    #[test]
    fn absent_and_null_fields_are_defaults() {
        let request: ChatRequest = serde_json::from_value(
            json!({"model": null, "messages": null, "stream": null, "tools": null, "tool_choice": null}),
        )
        .unwrap();
        assert_eq!(request, ChatRequest::default());
        assert_eq!(
            serde_json::from_str::<ChatRequest>("{}").unwrap(),
            ChatRequest::default()
        );
        assert!(!request.include_usage());
    }
}
