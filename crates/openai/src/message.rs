//! Messages of a conversation, and the tool calls in them.

use serde::{Deserialize, Serialize};

use crate::{Extra, lenient};

/// Who a message is from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Instructions to the model.
    System,
    /// Instructions to the model, as newer models of OpenAI name them.
    Developer,
    /// The person, or whoever asks.
    User,
    /// The model.
    Assistant,
    /// The result of a tool call.
    Tool,
    /// A role that the API does not define.
    #[serde(untagged)]
    Other(String),
}

/// One message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Who it is from.
    pub role: Role,
    /// What it says. Written as `null` when `None`, as the API does for a message that only calls tools.
    #[serde(default)]
    pub content: Option<Content>,
    /// The name of the participant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The calls the model asks for; only in messages of the assistant.
    #[serde(
        default,
        deserialize_with = "lenient::null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub tool_calls: Vec<ToolCall>,
    /// Which call this message is the result of; only in messages of a tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}

impl Message {
    /// A message of `role` that says `text`.
    pub fn new(role: Role, text: impl Into<String>) -> Self {
        Self {
            role,
            content: Some(Content::Text(text.into())),
            name: None,
            tool_calls: Vec::new(),
            tool_call_id: None,
            extra: Extra::new(),
        }
    }

    /// Instructions to the model.
    pub fn system(text: impl Into<String>) -> Self {
        Self::new(Role::System, text)
    }

    /// A message of whoever asks.
    pub fn user(text: impl Into<String>) -> Self {
        Self::new(Role::User, text)
    }

    /// An answer of the model.
    pub fn assistant(text: impl Into<String>) -> Self {
        Self::new(Role::Assistant, text)
    }

    /// The result of the call `tool_call_id`.
    pub fn tool(tool_call_id: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            tool_call_id: Some(tool_call_id.into()),
            ..Self::new(Role::Tool, text)
        }
    }

    /// Its text: that of all text parts joined, empty without content.
    pub fn text(&self) -> String {
        self.content.as_ref().map(Content::text).unwrap_or_default()
    }
}

/// The content of a message: plain text, or parts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "content is neither a string, null nor a list of parts with a type each"
)]
pub enum Content {
    /// Plain text.
    Text(String),
    /// Text, images, audio and so on.
    Parts(Vec<ContentPart>),
}

impl Content {
    /// The text of all text parts, joined.
    pub fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Parts(parts) => parts.iter().filter_map(|part| part.text.as_deref()).collect(),
        }
    }
}

impl From<&str> for Content {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Content {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

/// One part of a message's content.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ContentPart {
    /// What the part is: `text`, `image_url`, `input_audio`, `file`, `refusal`, …
    #[serde(rename = "type")]
    pub kind: String,
    /// The text of a `text` part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The rest of the part.
    #[serde(flatten)]
    pub extra: Extra,
}

/// A call of a tool that the model asks for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// Identifies the call within the conversation; the result refers to it. Empty where the server gave none.
    #[serde(default, deserialize_with = "lenient::null_as_default")]
    pub id: String,
    /// What is called: `function`.
    #[serde(rename = "type", default = "function")]
    pub kind: String,
    /// The function and its arguments.
    pub function: FunctionCall,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}

impl ToolCall {
    /// A call of the function `name` with `arguments` (a JSON object as text).
    pub fn new(id: impl Into<String>, name: impl Into<String>, arguments: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            kind: function(),
            function: FunctionCall {
                name: name.into(),
                arguments: arguments.into(),
                extra: Extra::new(),
            },
            extra: Extra::new(),
        }
    }
}

/// A function and the arguments it is called with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FunctionCall {
    /// The function's name.
    #[serde(default, deserialize_with = "lenient::null_as_default")]
    pub name: String,
    /// The arguments: a JSON object as text, written by a model and so not always valid.
    #[serde(default, deserialize_with = "lenient::text")]
    pub arguments: String,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}

pub(crate) fn function() -> String {
    "function".to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn round_trip(value: Value) {
        let message: Message = serde_json::from_value(value.clone()).unwrap();
        assert_eq!(serde_json::to_value(&message).unwrap(), value);
    }

    #[test]
    fn messages_survive_being_read_and_written() {
        round_trip(json!({"role": "user", "content": "hi", "name": "ann"}));
        round_trip(json!({"role": "user", "content": [
            {"type": "text", "text": "what is this?"},
            {"type": "image_url", "image_url": {"url": "https://example.com/a.png", "detail": "low"}},
        ]}));
        round_trip(
            json!({"role": "assistant", "content": null, "refusal": null, "tool_calls": [
                {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": "{\"a\": 1}"}},
            ]}),
        );
        round_trip(json!({"role": "tool", "content": "3", "tool_call_id": "call_1"}));
        round_trip(json!({"role": "task-delegation", "content": "do it"}));
    }

    #[test]
    fn what_other_servers_write_is_understood() {
        let message: Message = serde_json::from_value(json!({
            "role": "assistant",
            "tool_calls": [{"function": {"name": "add", "arguments": {"a": 1}}}],
        }))
        .unwrap();
        assert_eq!(message.tool_calls, [ToolCall::new("", "add", r#"{"a":1}"#)]);
        let message: Message =
            serde_json::from_value(json!({"role": "assistant", "content": "x", "tool_calls": null})).unwrap();
        assert!(message.tool_calls.is_empty());
    }

    #[test]
    fn text_joins_the_text_parts_only() {
        let message: Message = serde_json::from_value(json!({"role": "user", "content": [
            {"type": "text", "text": "a"}, {"type": "image_url", "image_url": {}}, {"type": "text", "text": "b"},
        ]}))
        .unwrap();
        assert_eq!(message.text(), "ab");
        assert_eq!(
            Message {
                content: None,
                ..Message::user("")
            }
            .text(),
            ""
        );
    }

    #[test]
    fn what_is_wrong_with_a_message_is_said() {
        for content in [json!(7), json!({}), json!([{"text": "x"}])] {
            let error =
                serde_json::from_value::<Message>(json!({"role": "user", "content": content})).unwrap_err();
            assert!(
                error.to_string().starts_with("content is neither a string"),
                "{error}"
            );
        }
        let error = serde_json::from_value::<Message>(json!({"content": "x"})).unwrap_err();
        assert!(error.to_string().contains("role"), "{error}");
    }
}
