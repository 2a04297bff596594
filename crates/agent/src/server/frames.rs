//! The chunks that a run is streamed in: the model's text as it comes, and between it what the agent does, in
//! chunks that only carry the field `kaos`, which clients of the Chat Completions API pass over.

use kaos_openai::{ChatChunk, Delta};
use serde_json::{Value, json};

use crate::{drive::Event, memory::SessionId, run::Outcome, server::session::SESSION_FIELD};

/// Turns the events of one run into chunks.
#[derive(Clone, Debug)]
pub(crate) struct Frames {
    pub(crate) id: String,
    pub(crate) created: i64,
    pub(crate) model: String,
    pub(crate) max_steps: u32,
    pub(crate) include_usage: bool,
    /// The session, where there is memory.
    pub(crate) session: Option<SessionId>,
    /// The step whose text was sent last.
    said_in: Option<u32>,
}

impl Frames {
    pub(crate) fn new(
        id: String,
        created: i64,
        model: String,
        max_steps: u32,
        include_usage: bool,
        session: Option<SessionId>,
    ) -> Self {
        Self {
            id,
            created,
            model,
            max_steps,
            include_usage,
            session,
            said_in: None,
        }
    }

    /// The chunk that every stream begins with.
    pub(crate) fn start(&self) -> ChatChunk {
        let mut chunk = self.chunk(Delta::start());
        if let Some(session) = &self.session {
            chunk
                .extra
                .insert(SESSION_FIELD.to_owned(), session.as_str().into());
        }
        chunk
    }

    /// The chunks that tell of `event`.
    pub(crate) fn chunks(&mut self, event: Event) -> Vec<ChatChunk> {
        match event {
            Event::Content { step, text } => vec![self.text(step, &text)],
            Event::ToolCall { step, invocation } => vec![self.progress(json!({
                "type": "tool_call",
                "step": step,
                "max_steps": self.max_steps,
                "tool": invocation.tool,
                "arguments": invocation.arguments,
            }))],
            Event::ToolResult {
                step,
                invocation,
                result,
            } => vec![self.progress(json!({
                "type": "tool_result",
                "step": step,
                "max_steps": self.max_steps,
                "tool": invocation.tool,
                "result": result.text,
                "is_error": result.is_error,
            }))],
            Event::Finished { step, outcome, usage } => {
                let mut chunks = Vec::new();
                match &outcome {
                    // Its text was sent as it came.
                    Outcome::Answered { .. } => {}
                    Outcome::StepsExhausted { .. } => chunks.push(self.text(step + 1, &outcome.text())),
                    Outcome::ModelFailed { reason } => {
                        chunks.push(self.progress(json!({
                            "type": "error",
                            "step": step,
                            "max_steps": self.max_steps,
                            "result": reason,
                            "is_error": true,
                        })));
                        chunks.push(self.text(step + 1, &outcome.text()));
                    }
                }
                let mut last = self.chunk(Delta::default());
                for choice in &mut last.choices {
                    choice.finish_reason = Some(outcome.finish_reason());
                }
                chunks.push(last);
                if self.include_usage {
                    chunks.push(ChatChunk::usage(&self.id, self.created, &self.model, usage));
                }
                chunks
            }
        }
    }

    /// More text; that of another step begins a paragraph of its own.
    fn text(&mut self, step: u32, text: &str) -> ChatChunk {
        let begins = self.said_in.is_some_and(|said_in| said_in != step);
        self.said_in = Some(step);
        self.chunk(Delta::content(if begins {
            format!("\n\n{text}")
        } else {
            text.to_owned()
        }))
    }

    fn progress(&self, progress: Value) -> ChatChunk {
        let mut chunk = self.chunk(Delta::default());
        chunk.extra.insert("kaos".to_owned(), progress);
        chunk
    }

    fn chunk(&self, delta: Delta) -> ChatChunk {
        ChatChunk::new(&self.id, self.created, &self.model, delta, None)
    }
}

#[cfg(test)]
mod tests {
    use kaos_openai::{FinishReason, Usage};

    use super::*;
    use crate::run::{Invocation, ToolResult};

    fn frames(include_usage: bool) -> Frames {
        Frames::new("chatcmpl-1".to_owned(), 7, "m".to_owned(), 5, include_usage, None)
    }

    fn content(chunks: &[ChatChunk]) -> Vec<Option<&str>> {
        chunks
            .iter()
            .map(|chunk| chunk.choices.first().and_then(|c| c.delta.content.as_deref()))
            .collect()
    }

    #[test]
    fn progress_is_a_chunk_without_an_addition() {
        let invocation = Invocation {
            id: "a".to_owned(),
            tool: "add".to_owned(),
            arguments: json!({"a": "it's \"None\""}),
            delegation: None,
        };
        let [call] = &frames(false).chunks(Event::ToolCall {
            step: 2,
            invocation: invocation.clone(),
        })[..] else {
            panic!("one")
        };
        assert_eq!(
            serde_json::to_value(call).unwrap(),
            json!({
                "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 7, "model": "m",
                "choices": [{"index": 0, "delta": {}, "finish_reason": null}],
                "kaos": {
                    "type": "tool_call", "step": 2, "max_steps": 5, "tool": "add",
                    "arguments": {"a": "it's \"None\""},
                },
            })
        );
        let event = Event::ToolResult {
            step: 2,
            invocation,
            result: ToolResult::success("3"),
        };
        assert_eq!(
            frames(false).chunks(event)[0].extra["kaos"],
            json!({"type": "tool_result", "step": 2, "max_steps": 5, "tool": "add", "result": "3", "is_error": false})
        );
    }

    #[test]
    fn the_text_of_each_step_is_a_paragraph() {
        let mut frames = frames(false);
        let texts: Vec<ChatChunk> = [(1, "a"), (1, "b"), (3, "c"), (3, "d")]
            .into_iter()
            .flat_map(|(step, text)| {
                frames.chunks(Event::Content {
                    step,
                    text: text.to_owned(),
                })
            })
            .collect();
        assert_eq!(content(&texts), [Some("a"), Some("b"), Some("\n\nc"), Some("d")]);
    }

    #[test]
    fn a_stream_ends_with_its_reason_and_the_usage_if_asked_for() {
        let outcome = Outcome::Answered {
            text: "x".to_owned(),
            finish_reason: FinishReason::Length,
        };
        let end = Event::Finished {
            step: 1,
            outcome,
            usage: Usage::new(1, 2),
        };
        let chunks = frames(false).chunks(end.clone());
        assert_eq!(chunks.len(), 1);
        assert_eq!(chunks[0].choices[0].finish_reason, Some(FinishReason::Length));
        let chunks = frames(true).chunks(end);
        assert_eq!((chunks.len(), &chunks[1].usage), (2, &Some(Usage::new(1, 2))));
    }

    #[test]
    fn a_failure_is_told_to_people_and_to_programs() {
        let outcome = Outcome::ModelFailed {
            reason: "gone".to_owned(),
        };
        let mut frames = frames(false);
        frames.chunks(Event::Content {
            step: 1,
            text: "half a".to_owned(),
        });
        let chunks = frames.chunks(Event::Finished {
            step: 1,
            outcome,
            usage: Usage::default(),
        });
        assert_eq!(chunks[0].extra["kaos"]["type"], "error");
        assert_eq!(
            content(&chunks),
            [None, Some("\n\nSorry, I encountered an error: gone"), None]
        );
        let outcome = Outcome::StepsExhausted { max_steps: 5 };
        let chunks = self::frames(false).chunks(Event::Finished {
            step: 5,
            outcome,
            usage: Usage::default(),
        });
        assert_eq!(
            content(&chunks),
            [Some("Reached maximum reasoning steps (5)"), None]
        );
    }
}
