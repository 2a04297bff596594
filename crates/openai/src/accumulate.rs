//! Folds the chunks of a stream into the answer they are the pieces of.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{
    ChatChunk, ChatResponse, Choice, ChunkChoice, Content, Extra, FinishReason, Message, Role, ToolCall,
    ToolCallDelta, Usage,
};

/// Collects chunks. Additions to tool calls are put together by their index.
#[derive(Clone, Debug, Default)]
pub struct ChunkAccumulator {
    id: String,
    created: i64,
    model: String,
    usage: Option<Usage>,
    choices: BTreeMap<u32, Partial>,
}

/// One answer so far.
#[derive(Clone, Debug, Default)]
struct Partial {
    role: Option<Role>,
    content: Option<String>,
    /// Other fields of the message: texts such as `reasoning_content` come in pieces as well.
    extra: Extra,
    /// Each call with the index the server gave it.
    calls: Vec<(Option<u32>, ToolCall)>,
    finish_reason: Option<FinishReason>,
}

impl ChunkAccumulator {
    /// Nothing so far.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds one chunk.
    pub fn push(&mut self, chunk: &ChatChunk) {
        if self.id.is_empty() {
            self.id.clone_from(&chunk.id);
            self.created = chunk.created;
        }
        if self.model.is_empty() {
            self.model.clone_from(&chunk.model);
        }
        // Servers that send the usage with every chunk send the total so far.
        if let Some(usage) = &chunk.usage {
            self.usage = Some(usage.clone());
        }
        for choice in &chunk.choices {
            self.choices.entry(choice.index).or_default().push(choice);
        }
    }

    /// Why the first answer stopped, once it has.
    pub fn finish_reason(&self) -> Option<&FinishReason> {
        self.choices.get(&0)?.finish_reason.as_ref()
    }

    /// The answer as it would have been without streaming.
    pub fn into_response(self) -> ChatResponse {
        let choices = self
            .choices
            .into_iter()
            .map(|(index, partial)| partial.into_choice(index))
            .collect();
        let whole = ChatResponse::new(
            self.id,
            self.created,
            self.model,
            Message::assistant(""),
            FinishReason::Stop,
            Usage::default(),
        );
        ChatResponse {
            choices,
            usage: self.usage,
            ..whole
        }
    }
}

impl Partial {
    fn push(&mut self, choice: &ChunkChoice) {
        if let Some(role) = &choice.delta.role {
            self.role = Some(role.clone());
        }
        if let Some(text) = &choice.delta.content {
            self.content.get_or_insert_default().push_str(text);
        }
        for (name, value) in &choice.delta.extra {
            match (self.extra.get_mut(name), value) {
                (Some(Value::String(text)), Value::String(more)) => text.push_str(more),
                // A piece without the field says nothing about it.
                (Some(_), Value::Null) => {}
                _ => {
                    self.extra.insert(name.clone(), value.clone());
                }
            }
        }
        for delta in &choice.delta.tool_calls {
            self.push_call(delta);
        }
        if let Some(reason) = &choice.finish_reason {
            self.finish_reason = Some(reason.clone());
        }
    }

    fn push_call(&mut self, delta: &ToolCallDelta) {
        let id = delta.id.as_deref().unwrap_or_default();
        // Without an index an addition belongs to the last call. An identifier of its own starts another call
        // even at a known index: some servers number every call 0.
        let last = match delta.index {
            Some(_) => self.calls.iter().rposition(|(index, _)| *index == delta.index),
            None => self.calls.len().checked_sub(1),
        };
        let known =
            last.filter(|at| id.is_empty() || self.calls[*at].1.id.is_empty() || self.calls[*at].1.id == id);
        let at = known.unwrap_or_else(|| {
            self.calls.push((delta.index, ToolCall::new("", "", "")));
            self.calls.len() - 1
        });
        let call = &mut self.calls[at].1;
        if call.id.is_empty() {
            id.clone_into(&mut call.id);
        }
        if let Some(name) = &delta.function.name
            && call.function.name.is_empty()
        {
            call.function.name.clone_from(name);
        }
        if let Some(arguments) = &delta.function.arguments {
            call.function.arguments.push_str(arguments);
        }
        call.extra.extend(delta.extra.clone());
    }

    fn into_choice(self, index: u32) -> Choice {
        let mut calls = self.calls;
        calls.sort_by_key(|(index, _)| index.unwrap_or(u32::MAX));
        let message = Message {
            role: self.role.unwrap_or(Role::Assistant),
            // Streams open with an empty text that a message which only calls tools does not have.
            content: self
                .content
                .filter(|text| calls.is_empty() || !text.is_empty())
                .map(Content::Text),
            name: None,
            tool_calls: calls.into_iter().map(|(_, call)| call).collect(),
            tool_call_id: None,
            extra: self.extra,
        };
        Choice {
            index,
            message,
            finish_reason: self.finish_reason,
            extra: Extra::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn fold(chunks: Vec<Value>) -> ChatResponse {
        let mut accumulator = ChunkAccumulator::new();
        for chunk in chunks {
            accumulator.push(&serde_json::from_value(chunk).unwrap());
        }
        accumulator.into_response()
    }

    fn delta(delta: Value) -> Value {
        json!({"id": "c", "created": 5, "model": "m", "choices": [{"index": 0, "delta": delta}]})
    }

    fn calls(response: &ChatResponse) -> Vec<(&str, &str, &str)> {
        let calls = &response.choices[0].message.tool_calls;
        calls
            .iter()
            .map(|c| {
                (
                    c.id.as_str(),
                    c.function.name.as_str(),
                    c.function.arguments.as_str(),
                )
            })
            .collect()
    }

    #[test]
    fn text_is_joined_and_the_last_chunk_carries_the_usage() {
        let response = fold(vec![
            delta(json!({"role": "assistant", "content": ""})),
            delta(json!({"content": "Hel"})),
            delta(json!({"content": "lo"})),
            json!({"id": "c", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}),
            json!({"id": "c", "choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}}),
        ]);
        assert_eq!(
            response,
            ChatResponse::new(
                "c",
                5,
                "m",
                Message::assistant("Hello"),
                FinishReason::Stop,
                Usage::new(1, 2)
            )
        );
    }

    #[test]
    fn calls_are_put_together_by_their_index() {
        let response = fold(vec![
            delta(json!({"role": "assistant", "content": null, "tool_calls": [
                {"index": 0, "id": "a", "type": "function", "function": {"name": "add", "arguments": ""}}]})),
            delta(
                json!({"tool_calls": [{"index": 1, "id": "b", "function": {"name": "sub", "arguments": "{\"x\""}}]}),
            ),
            delta(json!({"tool_calls": [{"index": 0, "function": {"arguments": "{\"a\":1"}}]})),
            delta(
                json!({"tool_calls": [{"index": 1, "function": {"arguments": ":2}"}},
                                        {"index": 0, "id": "", "function": {"arguments": "}"}}]}),
            ),
        ]);
        assert_eq!(
            calls(&response),
            [("a", "add", r#"{"a":1}"#), ("b", "sub", r#"{"x":2}"#)]
        );
        assert_eq!(response.choices[0].message.content, None);
    }

    #[test]
    fn servers_that_number_badly_are_understood() {
        let all_zero = fold(vec![
            delta(
                json!({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "add", "arguments": "{}"}}]}),
            ),
            delta(
                json!({"tool_calls": [{"index": 0, "id": "b", "function": {"name": "sub", "arguments": "{"}}]}),
            ),
            delta(
                json!({"tool_calls": [{"index": 0, "id": "b", "function": {"name": "sub", "arguments": "}"}}]}),
            ),
        ]);
        assert_eq!(calls(&all_zero), [("a", "add", "{}"), ("b", "sub", "{}")]);
        let no_index = fold(vec![
            delta(json!({"tool_calls": [{"id": "a", "function": {"name": "add", "arguments": "{"}}]})),
            delta(json!({"tool_calls": [{"function": {"arguments": "}"}}]})),
            delta(json!({"tool_calls": [{"id": "b", "function": {"name": "sub", "arguments": {}}}]})),
        ]);
        assert_eq!(calls(&no_index), [("a", "add", "{}"), ("b", "sub", "{}")]);
    }

    #[test]
    fn other_texts_of_the_message_are_joined_too() {
        let response = fold(vec![
            delta(json!({"reasoning_content": null, "refusal": null})),
            delta(json!({"reasoning_content": "so "})),
            delta(json!({"reasoning_content": "what", "refusal": null})),
            delta(json!({"content": "ok", "reasoning_content": null})),
        ]);
        let extra = serde_json::to_value(&response.choices[0].message.extra).unwrap();
        assert_eq!(extra, json!({"reasoning_content": "so what", "refusal": null}));
    }

    #[test]
    fn answers_are_kept_apart() {
        let response = fold(vec![
            json!({"choices": [{"index": 1, "delta": {"content": "b"}}, {"index": 0, "delta": {"content": "a"}}]}),
            json!({"choices": [{"index": 1, "delta": {"content": "B"}}]}),
        ]);
        let texts: Vec<String> = response
            .choices
            .iter()
            .map(|choice| choice.message.text())
            .collect();
        assert_eq!(texts, ["a", "bB"]);
    }

    #[test]
    fn a_whole_answer_is_a_single_chunk() {
        let mut message = Message::assistant("so");
        message.tool_calls = vec![ToolCall::new("a", "add", "{}"), ToolCall::new("b", "sub", "{}")];
        let whole = ChatResponse::new("c", 5, "m", message, FinishReason::ToolCalls, Usage::new(1, 2));
        let mut accumulator = ChunkAccumulator::new();
        accumulator.push(&whole.clone().into());
        assert_eq!(accumulator.into_response(), whole);
    }

    #[test]
    fn no_chunks_are_no_answer() {
        assert!(ChunkAccumulator::new().into_response().choices.is_empty());
    }

    proptest! {
        #[test]
        fn splitting_arguments_changes_nothing(arguments in ".{0,60}", size in 1usize..10) {
            let mut chunks = vec![delta(json!({"tool_calls": [{"index": 3, "id": "a", "function": {"name": "f"}}]}))];
            let characters: Vec<char> = arguments.chars().collect();
            for piece in characters.chunks(size) {
                let piece: String = piece.iter().collect();
                chunks.push(delta(json!({"tool_calls": [{"index": 3, "function": {"arguments": piece}}]})));
            }
            let response = fold(chunks);
            prop_assert_eq!(calls(&response), [("a", "f", arguments.as_str())]);
        }
    }
}
