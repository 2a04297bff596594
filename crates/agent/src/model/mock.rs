//! Answers that are given instead of the model's: for tests of agents whose model would not say the same twice.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;
use futures::stream;
use kaos_openai::{ChatRequest, ChatResponse, Content, FinishReason, Message, ToolCall, Usage};
use kaos_telemetry::TraceContext;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{ChunkStream, Model, ModelError};
use crate::run::{
    delegation_tool,
    text::{Asked, beside, blocks, written},
};

/// Gives the answers it has, each once, whoever asks; then asks the model.
pub(crate) struct MockedModel {
    model: Arc<dyn Model>,
    answers: Mutex<VecDeque<Message>>,
}

impl MockedModel {
    /// `answers`, before those of `model`; where there are none, the model itself.
    pub(crate) fn before(model: Arc<dyn Model>, answers: Vec<Message>) -> Arc<dyn Model> {
        if answers.is_empty() {
            return model;
        }
        tracing::warn!(
            answers = answers.len(),
            "DEBUG_MOCK_RESPONSES is set: these answers are given before the model is asked"
        );
        Arc::new(Self {
            model,
            answers: Mutex::new(answers.into()),
        })
    }

    fn answers(&self) -> std::sync::MutexGuard<'_, VecDeque<Message>> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Model for MockedModel {
    async fn ask(&self, request: ChatRequest, trace: &TraceContext) -> Result<ChunkStream, ModelError> {
        let answer = self.answers().pop_front();
        let Some(message) = answer else {
            return self.model.ask(request, trace).await;
        };
        let reason = match message.tool_calls.as_slice() {
            [] => FinishReason::Stop,
            _ => FinishReason::ToolCalls,
        };
        let response = ChatResponse::new("mock", 0, request.model, message, reason, Usage::default());
        Ok(Box::pin(stream::iter([Ok(response.into())])))
    }

    /// The model is not needed while there are answers.
    async fn check(&self) -> Result<(), ModelError> {
        let needed = self.answers().is_empty();
        if needed { self.model.check().await } else { Ok(()) }
    }
}

const LIST: &str = "a JSON list of answers, each a text or an object with tool_calls, or a single text that \
                    does not begin with [";
const CALLS: &str = "a list whose tool_calls are lists of objects with a name and arguments";

/// Reads `DEBUG_MOCK_RESPONSES`: a JSON list of answers, or a single one.
///
/// An answer is a text, or an object with `tool_calls` (also written as a text), each
/// `{"name", "arguments"}` or of the form of the Chat Completions API. In a text, the fenced blocks by which
/// earlier agents of KAOS called one tool (`tool_call`) or agent (`delegate`) are calls as well.
///
/// # Errors
/// What the value has to be.
pub(crate) fn parse(value: &str) -> Result<Vec<Message>, &'static str> {
    match serde_json::from_str(value) {
        Ok(Value::Array(items)) => items.into_iter().map(item).collect(),
        Ok(single @ (Value::String(_) | Value::Object(_))) => Ok(vec![item(single)?]),
        Err(_) if value.starts_with('[') => Err(LIST),
        Ok(_) | Err(_) => Ok(vec![text(value)?]),
    }
}

fn item(item: Value) -> Result<Message, &'static str> {
    match item {
        Value::String(said) => text(&said),
        Value::Object(object) if object.contains_key("tool_calls") => answer(object),
        _ => Err(LIST),
    }
}

fn text(said: &str) -> Result<Message, &'static str> {
    match serde_json::from_str(said) {
        Ok(Value::Object(object)) if object.contains_key("tool_calls") => answer(object),
        _ => Ok(fenced(said).unwrap_or_else(|| Message::assistant(said))),
    }
}

/// An answer with calls.
fn answer(object: Map<String, Value>) -> Result<Message, &'static str> {
    #[derive(Deserialize)]
    struct Answer {
        #[serde(default)]
        content: Option<String>,
        tool_calls: Vec<Call>,
    }
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Call {
        Plain {
            #[serde(default)]
            id: String,
            name: String,
            #[serde(default)]
            arguments: Value,
        },
        OfTheApi(ToolCall),
    }
    let answer: Answer = serde_json::from_value(Value::Object(object)).map_err(|_| CALLS)?;
    let calls = answer.tool_calls.into_iter().map(|call| match call {
        Call::Plain { id, name, arguments } => ToolCall::new(id, name, written(&arguments)),
        Call::OfTheApi(call) => call,
    });
    Ok(Message {
        content: answer.content.map(Content::Text),
        tool_calls: calls.collect(),
        ..Message::assistant("")
    })
}

/// The calls of a text with fenced blocks, and what is said beside them.
fn fenced(said: &str) -> Option<Message> {
    let found = blocks(said);
    let beside = beside(said, &found);
    let beside = beside.trim();
    let calls: Vec<ToolCall> = found
        .into_iter()
        .map(|(_, asked)| match asked {
            Asked::Tool { name, arguments } => ToolCall::new("", name, arguments),
            Asked::Agent { name, arguments } => ToolCall::new("", delegation_tool(&name), arguments),
        })
        .collect();
    (!calls.is_empty()).then(|| Message {
        content: (!beside.is_empty()).then(|| beside.into()),
        tool_calls: calls,
        ..Message::assistant("")
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    /// The text of each answer and its calls.
    fn read(value: &str) -> Vec<(String, Vec<(String, String)>)> {
        let calls = |message: &Message| {
            let calls = message.tool_calls.iter();
            calls
                .map(|call| (call.function.name.clone(), call.function.arguments.clone()))
                .collect()
        };
        parse(value)
            .unwrap()
            .iter()
            .map(|message| (message.text(), calls(message)))
            .collect()
    }

    fn says(text: &str) -> (String, Vec<(String, String)>) {
        (text.to_owned(), Vec::new())
    }

    fn call(text: &str, name: &str, arguments: &str) -> (String, Vec<(String, String)>) {
        (text.to_owned(), vec![(name.to_owned(), arguments.to_owned())])
    }

    #[test]
    fn texts_are_a_list_or_a_single_one() {
        assert_eq!(read(r#"["a", "b"]"#), [says("a"), says("b")]);
        assert_eq!(read("hello, \"you\""), [says("hello, \"you\"")]);
        assert_eq!(read(r#""quoted""#), [says("quoted")]);
        assert_eq!(read("42"), [says("42")]);
        assert_eq!(read("[]"), []);
    }

    #[test]
    fn calls_are_objects_or_texts_of_objects_in_either_form() {
        let plain = json!({"tool_calls": [{"id": "c", "name": "add", "arguments": {"x": 1}}]});
        let api = json!({"tool_calls": [{"id": "c", "function": {"name": "add", "arguments": "{\"x\":1}"}}]});
        let expected = call("", "add", r#"{"x":1}"#);
        for item in [plain.clone(), plain.to_string().into(), api] {
            assert_eq!(read(&json!([item]).to_string()), std::slice::from_ref(&expected));
        }
        assert_eq!(read(&plain.to_string()), std::slice::from_ref(&expected));
        let said = json!([{"content": "so", "tool_calls": [{"name": "now"}]}]);
        assert_eq!(read(&said.to_string()), [call("so", "now", "")]);
    }

    #[test]
    fn fenced_blocks_are_calls() {
        let tool = "Let me see.\n```tool_call\n{\"tool\": \"add\", \"arguments\": {\"x\": 1}}\n```";
        let agent = "```delegate\n{\"agent\": \"worker-1\", \"task\": \"dig\"}\n```";
        assert_eq!(
            read(&json!([tool, agent]).to_string()),
            [
                call("Let me see.", "add", r#"{"x":1}"#),
                call("", "delegate_to_worker-1", r#"{"task":"dig"}"#)
            ]
        );
        let broken = "```tool_call\n{\"tool\": \n```";
        assert_eq!(read(&json!([broken]).to_string()), [says(broken)]);
    }

    #[test]
    fn what_cannot_be_an_answer_is_refused() {
        for (value, expected) in [
            ("[\"a\"", LIST),
            ("[7]", LIST),
            ("[{}]", LIST),
            (r#"[{"tool_calls": 7}]"#, CALLS),
            (r#"{"tool_calls": [{"arguments": {}}]}"#, CALLS),
        ] {
            assert_eq!(parse(value), Err(expected), "{value}");
        }
    }

    proptest! {
        #[test]
        fn no_value_makes_it_panic(value in "(\\[|\\{|```tool_call\n|```delegate\n|\"|tool_calls|```|.){0,40}") {
            let _ = parse(&value);
        }
    }
}
