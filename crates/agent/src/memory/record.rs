//! What of a request and its run is worth remembering.

use kaos_openai::{Message, Role};
use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    bounded::shortened,
    drive::Event,
    run::{DELEGATION_FAILED, Invocation, Outcome, TASK_DELEGATION, TOOL_FAILED, ToolResult},
};

/// How much of a text or of a call's arguments is remembered, in bytes.
pub(super) const TEXT_LIMIT: usize = 64 << 10;

/// The kind of an event, as readers of KAOS agents know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// The text of a message of a user.
    UserMessage,
    /// The task that another agent hands on.
    TaskDelegationReceived,
    /// `tool`, `arguments`.
    ToolCall,
    /// `tool`, `result`, and `is_error` where the call failed.
    ToolResult,
    /// `agent`, `task`.
    DelegationRequest,
    /// `agent`, `response`.
    DelegationResponse,
    /// `agent`, `error`.
    DelegationError,
    /// The text of the answer.
    AgentResponse,
    /// Why there is no answer.
    Error,
}

/// An event before it has a time.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Record {
    pub(crate) kind: Kind,
    pub(crate) content: Value,
}

impl Kind {
    /// What an event with `content` adds to a conversation, if it is something that was said.
    pub(super) fn message(self, content: &Value) -> Option<Message> {
        let text = content.as_str()?;
        match self {
            Self::UserMessage | Self::TaskDelegationReceived => Some(Message::user(text)),
            Self::AgentResponse => Some(Message::assistant(text)),
            Self::ToolCall
            | Self::ToolResult
            | Self::DelegationRequest
            | Self::DelegationResponse
            | Self::DelegationError
            | Self::Error => None,
        }
    }
}

impl Record {
    fn new(kind: Kind, content: Value) -> Self {
        Self { kind, content }
    }

    /// What a request asks. What it repeats of the conversation before, up to the last answer of the
    /// assistant, was asked before.
    pub(crate) fn of_request(messages: &[Message]) -> Vec<Self> {
        let before = messages
            .iter()
            .rposition(|message| message.role == Role::Assistant);
        let asked = messages.iter().skip(before.map_or(0, |last| last + 1));
        let records = asked.filter_map(|message| {
            let kind = match &message.role {
                Role::User => Kind::UserMessage,
                Role::Other(role) if role == TASK_DELEGATION => Kind::TaskDelegationReceived,
                _ => return None,
            };
            Some(Self::new(kind, bounded(message.text()).into()))
        });
        records.collect()
    }

    /// What happened in a run.
    pub(crate) fn of_event(event: &Event) -> Option<Self> {
        match event {
            Event::Content { .. } => None,
            Event::ToolCall { invocation, .. } => Some(call(invocation)),
            Event::ToolResult {
                invocation, result, ..
            } => Some(answer(invocation, result)),
            Event::Finished { outcome, .. } => Some(match outcome {
                Outcome::Answered { text, .. } => {
                    Self::new(Kind::AgentResponse, bounded(text.clone()).into())
                }
                Outcome::StepsExhausted { .. } => Self::new(Kind::Error, outcome.text().into()),
                Outcome::ModelFailed { reason } => Self::new(Kind::Error, bounded(reason.clone()).into()),
            }),
        }
    }
}

fn call(invocation: &Invocation) -> Record {
    if let Some(delegation) = &invocation.delegation {
        let content = json!({"agent": delegation.agent, "task": bounded(delegation.task.clone())});
        return Record::new(Kind::DelegationRequest, content);
    }
    let written = invocation.arguments.to_string();
    let arguments = if written.len() > TEXT_LIMIT {
        bounded(written).into()
    } else {
        invocation.arguments.clone()
    };
    Record::new(
        Kind::ToolCall,
        json!({"tool": name(invocation), "arguments": arguments}),
    )
}

fn answer(invocation: &Invocation, result: &ToolResult) -> Record {
    if let Some(delegation) = &invocation.delegation {
        let agent = &delegation.agent;
        if result.is_error {
            let error = result
                .text
                .strip_prefix(DELEGATION_FAILED)
                .unwrap_or(&result.text);
            let content = json!({"agent": agent, "error": bounded(error.to_owned())});
            return Record::new(Kind::DelegationError, content);
        }
        let content = json!({"agent": agent, "response": bounded(result.text.clone())});
        return Record::new(Kind::DelegationResponse, content);
    }
    let content = if result.is_error {
        let error = result.text.strip_prefix(TOOL_FAILED).unwrap_or(&result.text);
        json!({"tool": name(invocation), "result": bounded(error.to_owned()), "is_error": true})
    } else {
        json!({"tool": name(invocation), "result": bounded(result.text.clone())})
    };
    Record::new(Kind::ToolResult, content)
}

/// A tool's name, which the model may have made up.
fn name(invocation: &Invocation) -> String {
    bounded(invocation.tool.clone())
}

fn bounded(text: String) -> String {
    shortened(text, TEXT_LIMIT)
}

#[cfg(test)]
mod tests {
    use kaos_openai::{FinishReason, Usage};

    use super::*;
    use crate::run::{Delegation, delegation_failed};

    fn invocation(arguments: Value, delegation: Option<&str>) -> Invocation {
        Invocation {
            id: "a".to_owned(),
            tool: "add".to_owned(),
            arguments,
            delegation: delegation.map(|agent| Delegation {
                agent: agent.to_owned(),
                task: "dig".to_owned(),
            }),
        }
    }

    fn recorded(event: Event) -> Option<(Kind, Value)> {
        Record::of_event(&event).map(|record| (record.kind, record.content))
    }

    #[test]
    fn a_request_is_what_was_asked_since_the_last_answer() {
        let delegated = Message::new(Role::Other(TASK_DELEGATION.to_owned()), "dig");
        let messages = [
            Message::system("s"),
            Message::user("old"),
            Message::assistant("answer"),
            Message::user("new"),
            delegated,
            Message::new(Role::Other("x".to_owned()), "y"),
        ];
        let kinds = |messages: &[Message]| -> Vec<(Kind, Value)> {
            let records = Record::of_request(messages).into_iter();
            records.map(|record| (record.kind, record.content)).collect()
        };
        let expected = [
            (Kind::UserMessage, json!("new")),
            (Kind::TaskDelegationReceived, json!("dig")),
        ];
        assert_eq!(kinds(&messages), expected);
        assert_eq!(kinds(&messages[..2]), [(Kind::UserMessage, json!("old"))]);
    }

    #[test]
    fn every_call_and_its_result_is_remembered() {
        let call = |arguments, delegation| {
            let invocation = invocation(arguments, delegation);
            recorded(Event::ToolCall { step: 1, invocation })
        };
        let result = |delegation, result| {
            let invocation = invocation(json!({}), delegation);
            recorded(Event::ToolResult {
                step: 1,
                invocation,
                result,
            })
        };
        let cases = [
            (
                call(json!({"x": 1}), None),
                Kind::ToolCall,
                json!({"tool": "add", "arguments": {"x": 1}}),
            ),
            (
                result(None, ToolResult::success("3")),
                Kind::ToolResult,
                json!({"tool": "add", "result": "3"}),
            ),
            (
                result(None, ToolResult::failure("boom")),
                Kind::ToolResult,
                json!({"tool": "add", "result": "boom", "is_error": true}),
            ),
            (
                call(json!({"task": "dig"}), Some("bob")),
                Kind::DelegationRequest,
                json!({"agent": "bob", "task": "dig"}),
            ),
            (
                result(Some("bob"), ToolResult::success("done")),
                Kind::DelegationResponse,
                json!({"agent": "bob", "response": "done"}),
            ),
            (
                result(Some("bob"), delegation_failed("gone")),
                Kind::DelegationError,
                json!({"agent": "bob", "error": "gone"}),
            ),
        ];
        for (found, kind, content) in cases {
            assert_eq!(found, Some((kind, content)));
        }
        let long = call(json!({"x": "y".repeat(TEXT_LIMIT)}), None).unwrap().1;
        assert!(long.to_string().len() < TEXT_LIMIT + 200);
        assert!(
            long["arguments"]
                .as_str()
                .unwrap()
                .ends_with("more bytes are left out]")
        );
    }

    #[test]
    fn the_end_is_an_answer_or_an_error() {
        let end = |outcome| {
            recorded(Event::Finished {
                step: 1,
                outcome,
                usage: Usage::default(),
            })
        };
        let answered = Outcome::Answered {
            text: "so".to_owned(),
            finish_reason: FinishReason::Stop,
        };
        let failed = Outcome::ModelFailed {
            reason: "gone".to_owned(),
        };
        assert_eq!(end(answered), Some((Kind::AgentResponse, json!("so"))));
        assert_eq!(end(failed), Some((Kind::Error, json!("gone"))));
        assert_eq!(
            end(Outcome::StepsExhausted { max_steps: 3 }),
            Some((Kind::Error, json!("Reached maximum reasoning steps (3)")))
        );
        let said = Event::Content {
            step: 1,
            text: "so".to_owned(),
        };
        assert_eq!(recorded(said), None);
    }
}
