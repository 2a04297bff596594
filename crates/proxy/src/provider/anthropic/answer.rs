//! From an answer of Messages to a chat completion.

use kaos_openai::{ChatResponse, Content, Message, ToolCall};
use serde::Deserialize;
use serde_json::Value;

use super::{Counts, finish};
use crate::provider::Origin;

#[derive(Deserialize)]
struct Said {
    #[serde(default)]
    id: String,
    #[serde(default)]
    model: String,
    content: Vec<Value>,
    #[serde(default)]
    stop_reason: Option<String>,
    #[serde(default)]
    usage: Counts,
}

pub(in super::super) fn answer(origin: &Origin, body: &[u8]) -> Result<ChatResponse, String> {
    let said: Said = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    let (mut text, mut thought) = (None::<String>, String::new());
    let (mut thoughts, mut calls) = (Vec::new(), Vec::new());
    for block in said.content {
        let part = |name: &str| block[name].as_str().unwrap_or_default();
        match part("type") {
            "text" => text.get_or_insert_default().push_str(part("text")),
            "thinking" => {
                thought.push_str(part("thinking"));
                thoughts.push(block);
            }
            "redacted_thinking" => thoughts.push(block),
            "tool_use" => calls.push(ToolCall::new(
                part("id"),
                part("name"),
                block["input"].to_string(),
            )),
            // What the server's own tools did is in the text, too.
            _ => {}
        }
    }
    let mut message = Message {
        content: text.map(Content::Text),
        tool_calls: calls,
        ..Message::assistant("")
    };
    if message.content.is_none() && message.tool_calls.is_empty() {
        message.content = Some(Content::Text(String::new()));
    }
    if !thought.is_empty() {
        message
            .extra
            .insert("reasoning_content".to_owned(), thought.into());
    }
    if !thoughts.is_empty() {
        message
            .extra
            .insert("thinking_blocks".to_owned(), thoughts.into());
    }
    let or = |said: String, other: &str| if said.is_empty() { other.to_owned() } else { said };
    Ok(ChatResponse::new(
        or(said.id, &origin.id),
        origin.created,
        or(said.model, &origin.model),
        message,
        finish(said.stop_reason.as_deref().unwrap_or_default()),
        said.usage.usage(),
    ))
}
