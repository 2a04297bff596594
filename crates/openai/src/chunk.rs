//! The chunks of a streamed chat completion.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{ChatResponse, ErrorBody, ErrorResponse, Extra, FinishReason, Role, Usage, lenient, sse};

/// One event of the stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChatChunk {
    /// Identifies the completion; the same in all its chunks.
    #[serde(default, deserialize_with = "lenient::null_as_default")]
    pub id: String,
    /// `chat.completion.chunk`.
    #[serde(default = "object")]
    pub object: String,
    /// When the completion was made, in seconds since the epoch.
    #[serde(default, deserialize_with = "lenient::null_as_default")]
    pub created: i64,
    /// The model that answers.
    #[serde(default, deserialize_with = "lenient::null_as_default")]
    pub model: String,
    /// What is new in each answer; empty in the chunk that carries the usage.
    #[serde(default, deserialize_with = "lenient::null_as_default")]
    pub choices: Vec<ChunkChoice>,
    /// The tokens it took; in the last chunk, where the request asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}

impl ChatChunk {
    /// A chunk with one choice.
    pub fn new(
        id: impl Into<String>,
        created: i64,
        model: impl Into<String>,
        delta: Delta,
        finish_reason: Option<FinishReason>,
    ) -> Self {
        Self {
            id: id.into(),
            object: object(),
            created,
            model: model.into(),
            choices: vec![ChunkChoice {
                index: 0,
                delta,
                finish_reason,
                extra: Extra::new(),
            }],
            usage: None,
            extra: Extra::new(),
        }
    }

    /// The chunk that carries the usage: it has no choices.
    pub fn usage(id: impl Into<String>, created: i64, model: impl Into<String>, usage: Usage) -> Self {
        let chunk = Self::new(id, created, model, Delta::default(), None);
        Self {
            choices: Vec::new(),
            usage: Some(usage),
            ..chunk
        }
    }
}

/// A whole answer as a single chunk: for callers who asked for a stream of a server that gives none.
impl From<ChatResponse> for ChatChunk {
    fn from(response: ChatResponse) -> Self {
        let choices = response.choices.into_iter().map(|choice| {
            let message = choice.message;
            let tool_calls = message
                .tool_calls
                .into_iter()
                .zip(0..)
                .map(|(call, index)| ToolCallDelta {
                    index: Some(index),
                    id: Some(call.id),
                    kind: Some(call.kind),
                    function: FunctionDelta {
                        name: Some(call.function.name),
                        arguments: Some(call.function.arguments),
                        extra: call.function.extra,
                    },
                    extra: call.extra,
                });
            ChunkChoice {
                index: choice.index,
                delta: Delta {
                    role: Some(message.role),
                    content: message.content.map(|content| content.text()),
                    tool_calls: tool_calls.collect(),
                    extra: message.extra,
                },
                finish_reason: choice.finish_reason,
                extra: choice.extra,
            }
        });
        Self {
            id: response.id,
            object: object(),
            created: response.created,
            model: response.model,
            choices: choices.collect(),
            usage: response.usage,
            extra: response.extra,
        }
    }
}

/// What is new in one answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ChunkChoice {
    /// The answer's place among the answers.
    #[serde(default, deserialize_with = "lenient::null_as_default")]
    pub index: u32,
    /// What is added to the message.
    #[serde(default, deserialize_with = "lenient::null_as_default")]
    pub delta: Delta,
    /// Why the model stopped; `null` until it did.
    #[serde(default)]
    pub finish_reason: Option<FinishReason>,
    /// Everything else, such as `logprobs`.
    #[serde(flatten)]
    pub extra: Extra,
}

/// An addition to a message.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Delta {
    /// Who the message is from; in the first chunk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// More of its text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// More of its tool calls.
    #[serde(
        default,
        deserialize_with = "lenient::null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub tool_calls: Vec<ToolCallDelta>,
    /// Everything else, such as `reasoning_content`.
    #[serde(flatten)]
    pub extra: Extra,
}

impl Delta {
    /// More text.
    pub fn content(text: impl Into<String>) -> Self {
        Self {
            content: Some(text.into()),
            ..Self::default()
        }
    }

    /// The start of the assistant's message, as the first chunk of a stream has it.
    pub fn start() -> Self {
        Self {
            role: Some(Role::Assistant),
            ..Self::content("")
        }
    }
}

/// An addition to a tool call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolCallDelta {
    /// Which call of the message it belongs to. Some servers leave it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u32>,
    /// The call's identifier; in its first delta.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// `function`; in its first delta.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The function's name or more of its arguments.
    #[serde(default, deserialize_with = "lenient::null_as_default")]
    pub function: FunctionDelta,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}

/// An addition to a function call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FunctionDelta {
    /// The function's name; in the call's first delta.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// More of the arguments' text.
    #[serde(
        default,
        deserialize_with = "lenient::optional_text",
        skip_serializing_if = "Option::is_none"
    )]
    pub arguments: Option<String>,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}

/// What the data of one server-sent event of a completion says.
#[derive(Clone, Debug, PartialEq)]
pub enum StreamEvent {
    /// More of the answer.
    Chunk(Box<ChatChunk>),
    /// The server failed after it had begun to answer.
    Error(ErrorBody),
    /// The end: `[DONE]`.
    Done,
}

/// The data of an event that is neither a chunk, an error nor `[DONE]`.
#[derive(Debug, thiserror::Error)]
#[error("event of the completion is not a chunk: {reason}; found {found:?}")]
pub struct UnreadableEvent {
    reason: String,
    found: String,
}

/// How much of an unreadable event an error quotes, in characters.
const QUOTED: usize = 120;

impl StreamEvent {
    /// Reads the data of an event.
    ///
    /// # Errors
    /// If it is not JSON, or not an object with the fields of a chunk or of an error.
    pub fn parse(data: &str) -> Result<Self, UnreadableEvent> {
        let data = data.trim();
        if data == sse::DONE {
            return Ok(Self::Done);
        }
        let unreadable = |reason: String| UnreadableEvent {
            reason,
            found: data.chars().take(QUOTED).collect(),
        };
        let value: Value = serde_json::from_str(data).map_err(|error| unreadable(error.to_string()))?;
        if value.get("error").is_some_and(|error| !error.is_null()) {
            return serde_json::from_value::<ErrorResponse>(value)
                .map(|response| Self::Error(response.error))
                .map_err(|error| unreadable(error.to_string()));
        }
        if value.get("choices").is_none() && value.get("usage").is_none() {
            return Err(unreadable("it has no choices".to_owned()));
        }
        serde_json::from_value(value)
            .map(Self::Chunk)
            .map_err(|error| unreadable(error.to_string()))
    }
}

fn object() -> String {
    "chat.completion.chunk".to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn chunks_have_the_shape_of_the_api() {
        let chunk = ChatChunk::new("c", 1, "m", Delta::start(), None);
        assert_eq!(
            serde_json::to_string(&chunk).unwrap(),
            r#"{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}"#
        );
        let last = ChatChunk::new("c", 1, "m", Delta::default(), Some(FinishReason::ToolCalls));
        assert_eq!(
            serde_json::to_value(&last).unwrap()["choices"],
            json!([{"index": 0, "delta": {}, "finish_reason": "tool_calls"}])
        );
        assert_eq!(
            serde_json::to_value(ChatChunk::usage("c", 1, "m", Usage::new(1, 2))).unwrap(),
            json!({
                "id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [],
                "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3},
            })
        );
    }

    #[test]
    fn deltas_of_tool_calls_survive_being_read_and_written() {
        let value = json!({
            "id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m",
            "choices": [{"index": 0, "finish_reason": null, "delta": {"tool_calls": [
                {"index": 0, "id": "call_1", "type": "function", "function": {"name": "add", "arguments": ""}},
                {"index": 1, "function": {"arguments": "{\"a\""}},
            ]}}],
            "kaos": {"type": "tool_call"},
        });
        let chunk: ChatChunk = serde_json::from_value(value.clone()).unwrap();
        assert_eq!(serde_json::to_value(&chunk).unwrap(), value);
    }

    #[test]
    fn events_are_told_apart() {
        assert_eq!(StreamEvent::parse(" [DONE] ").unwrap(), StreamEvent::Done);
        let chunk = StreamEvent::parse(r#"{"choices":[{"delta":{"content":"a"}}],"usage":null}"#).unwrap();
        assert!(matches!(chunk, StreamEvent::Chunk(c) if c.choices[0].delta.content.as_deref() == Some("a")));
        let error = StreamEvent::parse(r#"{"error":{"message":"overloaded","code":503}}"#).unwrap();
        assert!(
            matches!(error, StreamEvent::Error(e) if e.message == "overloaded" && e.code.as_deref() == Some("503"))
        );
        for garbage in ["", "{", "7", "null", r#"{"a":1}"#, r#"{"choices":7}"#] {
            assert!(StreamEvent::parse(garbage).is_err(), "{garbage}");
        }
    }
}
