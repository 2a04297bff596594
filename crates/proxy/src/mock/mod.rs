//! The mock: a model that answers by rules instead of by thought, for trying things out and for tests.
//!
//! The same conversation gets the same answer. It says that it is a mock, in its text (`[mock] …`) and its
//! `system_fingerprint`. It computes nothing: what it knows of the world comes from tools, whose results it
//! quotes. The rules:
//!
//! 1. After results of tools it quotes them.
//! 2. To a user's message, where tools are offered, it calls the one whose words fit best ([`choice`]), with
//!    arguments taken from the message ([`arguments`]); it says so where one is missing.
//! 3. Otherwise it repeats the message.

mod arguments;
mod choice;
mod plain;
mod words;

use axum::{
    Json,
    body::Body,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures::stream;
use kaos_openai::{
    ChatChunk, ChatRequest, ChatResponse, Delta, FinishReason, FunctionDelta, Message, Role, ToolCall,
    ToolCallDelta, Usage, sse,
};
use kaos_seams::Seams;
use serde_json::Value;

use crate::{
    error::Failure,
    forward::event_stream,
    mock::{arguments::Filled, choice::Choice},
    request::{Operation, Request},
    watched::Watched,
};

/// What marks every answer.
const FINGERPRINT: &str = "kaos-mock";
/// How much of a message it repeats, in characters.
const REPEATED: usize = 500;

/// Answers `request`, streamed where it asks for that.
pub(crate) fn respond(
    request: &Request<'_>,
    seams: &Seams,
    watched: &mut Watched,
) -> Result<Response, Failure> {
    match request.operation {
        Operation::Chat => chat(&request.chat(&[])?, seams, watched),
        Operation::Completions => plain::completion(request, seams, watched),
        Operation::Embeddings => plain::embeddings(request, watched),
    }
}

fn chat(request: &ChatRequest, seams: &Seams, watched: &mut Watched) -> Result<Response, Failure> {
    let id = seams.random.hex(12);
    let message = answer(request, &id);
    let finish = if message.tool_calls.is_empty() {
        FinishReason::Stop
    } else {
        FinishReason::ToolCalls
    };
    let usage = usage(request, &message);
    watched.tokens((&usage).into());
    let created = seams.clock.now().as_second();
    let id = format!("chatcmpl-{id}");
    if request.stream {
        return streamed(request, &id, created, message, finish, usage);
    }
    let mut response = ChatResponse::new(id, created, &request.model, message, finish, usage);
    response
        .extra
        .insert("system_fingerprint".to_owned(), FINGERPRINT.into());
    Ok(Json(response).into_response())
}

/// The message that follows the conversation.
fn answer(request: &ChatRequest, id: &str) -> Message {
    // Instructions may follow what they are about.
    let instructs = |message: &Message| matches!(message.role, Role::System | Role::Developer);
    let end = request
        .messages
        .iter()
        .rposition(|message| !instructs(message))
        .map_or(0, |last| last + 1);
    let messages = &request.messages[..end];
    let results = trailing_results(messages);
    if !results.is_empty() {
        return say(quote(messages, results));
    }
    let asked = messages.iter().rev().find(|message| message.role == Role::User);
    let text = asked.map(Message::text).unwrap_or_default();
    if messages.last().is_none_or(|last| last.role != Role::User) {
        return say(repeat(&text));
    }
    let tool = match choice::choose(request, &text) {
        Choice::Tool(tool) => tool,
        Choice::None => return say(repeat(&text)),
        Choice::Unknown(name) => {
            return say(format!(
                "I was told to call {name}, but no tool of that name is offered."
            ));
        }
    };
    match arguments::fill(tool, &text) {
        Filled::Arguments(arguments) => {
            let name = tool.function.name.clone();
            let call = ToolCall::new(format!("call_{id}"), name, Value::Object(arguments).to_string());
            Message {
                content: None,
                tool_calls: vec![call],
                ..Message::assistant("")
            }
        }
        Filled::Missing { name, kind } => say(format!(
            "I would call {}, but the message has no value for its argument {name} ({kind}).",
            tool.function.name
        )),
    }
}

fn say(text: String) -> Message {
    Message::assistant(format!("[mock] {text}"))
}

fn repeat(text: &str) -> String {
    let text = text.trim();
    match text.char_indices().nth(REPEATED) {
        _ if text.is_empty() => "There is nothing to answer.".to_owned(),
        Some((end, _)) => format!("You said: {}…", &text[..end]),
        None => format!("You said: {text}"),
    }
}

/// The results of tools that end the conversation.
fn trailing_results(messages: &[Message]) -> &[Message] {
    let others = messages.iter().rposition(|message| message.role != Role::Tool);
    &messages[others.map_or(0, |last| last + 1)..]
}

fn quote(messages: &[Message], results: &[Message]) -> String {
    let calls = || messages.iter().flat_map(|message| &message.tool_calls);
    let quoted = results.iter().map(|result| {
        let call = calls().rfind(|call| Some(call.id.as_str()) == result.tool_call_id.as_deref());
        let name = call.map_or("The tool", |call| call.function.name.as_str());
        format!("{name} answered: {}", result.text())
    });
    quoted.collect::<Vec<_>>().join("\n")
}

/// Words in place of tokens.
fn count(text: &str) -> u64 {
    text.split_whitespace().count() as u64
}

fn usage(request: &ChatRequest, answer: &Message) -> Usage {
    let prompt = request
        .messages
        .iter()
        .map(|message| count(&message.text()))
        .sum();
    let calls: u64 = answer
        .tool_calls
        .iter()
        .map(|call| 1 + count(&call.function.arguments))
        .sum();
    Usage::new(prompt, count(&answer.text()) + calls)
}

/// The answer word by word.
fn streamed(
    request: &ChatRequest,
    id: &str,
    created: i64,
    message: Message,
    finish: FinishReason,
    usage: Usage,
) -> Result<Response, Failure> {
    let mut deltas = vec![Delta::start()];
    deltas.extend(
        message
            .text()
            .split_inclusive(char::is_whitespace)
            .map(Delta::content),
    );
    for (call, index) in message.tool_calls.into_iter().zip(0..) {
        let piece = |id, kind, name, arguments| Delta {
            tool_calls: vec![ToolCallDelta {
                index: Some(index),
                id,
                kind,
                function: FunctionDelta {
                    name,
                    arguments,
                    ..FunctionDelta::default()
                },
                ..ToolCallDelta::default()
            }],
            ..Delta::default()
        };
        let name = call.function.name;
        deltas.push(piece(
            Some(call.id),
            Some(call.kind),
            Some(name),
            Some(String::new()),
        ));
        deltas.push(piece(None, None, None, Some(call.function.arguments)));
    }
    let chunk = |delta, reason| ChatChunk::new(id, created, request.model.as_str(), delta, reason);
    let mut chunks: Vec<ChatChunk> = deltas.into_iter().map(|delta| chunk(delta, None)).collect();
    chunks.push(chunk(Delta::default(), Some(finish)));
    if request.include_usage() {
        chunks.push(ChatChunk::usage(id, created, request.model.as_str(), usage));
    }
    let mut frames = Vec::with_capacity(chunks.len() + 1);
    for mut chunk in chunks {
        chunk
            .extra
            .insert("system_fingerprint".to_owned(), FINGERPRINT.into());
        let frame = sse::frame(&chunk);
        let frame = frame.map_err(|error| {
            Failure::invalid(
                StatusCode::INTERNAL_SERVER_ERROR,
                format!("the answer cannot be written: {error}"),
            )
        })?;
        frames.push(Ok::<_, std::convert::Infallible>(Bytes::from(frame)));
    }
    frames.push(Ok(Bytes::from_static(sse::DONE_FRAME)));
    Ok(event_stream(Body::from_stream(stream::iter(frames))))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ask(request: Value) -> Message {
        answer(&serde_json::from_value(request).unwrap(), "1")
    }

    fn multiply() -> Value {
        json!({"type": "function", "function": {
            "name": "multiply",
            "description": "Multiply two whole numbers: a times b.",
            "parameters": {
                "type": "object",
                "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
                "required": ["a", "b"],
            },
        }})
    }

    #[test]
    fn the_tool_that_fits_is_called_with_the_numbers_of_the_message() {
        let message = ask(json!({
            "messages": [
                {"role": "system", "content": "Use the calculator for every multiplication."},
                {"role": "user", "content": "What is 1234 times 5678?"},
            ],
            "tools": [multiply()],
        }));
        assert_eq!(message.content, None);
        assert_eq!(
            message.tool_calls,
            [ToolCall::new("call_1", "multiply", r#"{"a":1234,"b":5678}"#)]
        );
    }

    #[test]
    fn a_missing_argument_is_named() {
        let message = ask(json!({
            "messages": [{"role": "user", "content": "What is 1234 times itself?"}],
            "tools": [multiply()],
        }));
        assert_eq!(
            message.text(),
            "[mock] I would call multiply, but the message has no value for its argument b (integer)."
        );
    }

    #[test]
    fn results_of_tools_are_quoted_as_they_are() {
        let message = ask(json!({
            "messages": [
                {"role": "user", "content": "What is 2 times 3, and 4 times 5?"},
                {"role": "assistant", "content": null, "tool_calls": [
                    {"id": "x", "type": "function", "function": {"name": "multiply", "arguments": "{}"}},
                    {"id": "y", "type": "function", "function": {"name": "multiply", "arguments": "{}"}},
                ]},
                {"role": "tool", "tool_call_id": "x", "content": "6"},
                {"role": "tool", "tool_call_id": "y", "content": "20 \"exactly\""},
            ],
            "tools": [multiply()],
        }));
        assert_eq!(
            message.text(),
            "[mock] multiply answered: 6\nmultiply answered: 20 \"exactly\""
        );
    }

    #[test]
    fn instructions_at_the_end_change_nothing() {
        let end = json!({"role": "system", "content": "Answer now, multiply nothing."});
        let message = ask(json!({
            "messages": [
                {"role": "user", "content": "2 times 3"},
                {"role": "assistant", "content": null, "tool_calls": [
                    {"id": "x", "type": "function", "function": {"name": "multiply", "arguments": "{}"}},
                ]},
                {"role": "tool", "tool_call_id": "x", "content": "6"},
                end,
            ],
            "tools": [multiply()],
        }));
        assert_eq!(message.text(), "[mock] multiply answered: 6");
        let message = ask(json!({
            "messages": [{"role": "user", "content": "2 times 3"}, end],
            "tools": [multiply()],
        }));
        assert_eq!(message.tool_calls.len(), 1);
    }

    #[test]
    fn without_a_tool_that_fits_the_message_is_repeated() {
        let said = |content: &str, tools: Value| {
            ask(json!({"messages": [{"role": "user", "content": content}], "tools": tools})).text()
        };
        assert_eq!(
            said("How are you?", json!([multiply()])),
            "[mock] You said: How are you?"
        );
        assert_eq!(said("2 times 3", json!([])), "[mock] You said: 2 times 3");
        assert_eq!(said("  ", json!([])), "[mock] There is nothing to answer.");
        assert!(said(&"long ".repeat(200), json!([])).ends_with('…'));
    }

    #[test]
    fn the_choice_of_tools_is_respected() {
        let call = |choice: Value| {
            ask(json!({
                "messages": [{"role": "user", "content": "2 times 3"}],
                "tools": [multiply()],
                "tool_choice": choice,
            }))
        };
        assert_eq!(call(json!("none")).text(), "[mock] You said: 2 times 3");
        assert_eq!(call(json!("required")).tool_calls.len(), 1);
        assert_eq!(
            call(json!({"type": "function", "function": {"name": "multiply"}}))
                .tool_calls
                .len(),
            1
        );
        assert_eq!(
            call(json!({"type": "function", "function": {"name": "divide"}})).text(),
            "[mock] I was told to call divide, but no tool of that name is offered."
        );
    }
}
