//! From the events of a stream of Messages to the chunks of a chat completion.

use std::collections::BTreeMap;

use kaos_openai::{ChatChunk, Delta, FunctionDelta, ToolCallDelta};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Counts, finish, plain};
use crate::provider::{Origin, Piece, Translate};

/// One stream.
pub(in super::super) struct Stream {
    origin: Origin,
    counts: Counts,
    /// The tool calls by the block they are in, numbered as OpenAI does, and whether arguments have come.
    calls: BTreeMap<u64, (u32, bool)>,
    /// The thought of the block that is open.
    thought: Option<(u64, String, String)>,
    finished: bool,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Said {
    MessageStart {
        message: Start,
    },
    ContentBlockStart {
        index: u64,
        content_block: Value,
    },
    ContentBlockDelta {
        index: u64,
        delta: Value,
    },
    ContentBlockStop {
        index: u64,
    },
    MessageDelta {
        delta: Value,
        #[serde(default)]
        usage: Counts,
    },
    MessageStop,
    Error {
        error: Value,
    },
    /// `ping`, and what may come.
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct Start {
    #[serde(default)]
    id: String,
    #[serde(default)]
    model: String,
    #[serde(default)]
    usage: Counts,
}

impl Stream {
    pub(in super::super) fn new(origin: Origin) -> Self {
        Self {
            origin,
            counts: Counts::default(),
            calls: BTreeMap::new(),
            thought: None,
            finished: false,
        }
    }

    fn chunk(&self, delta: Delta) -> Vec<Piece> {
        let Origin { id, created, model } = &self.origin;
        vec![Piece::Chunk(Box::new(ChatChunk::new(
            id, *created, model, delta, None,
        )))]
    }

    fn extra(&self, fields: Value) -> Vec<Piece> {
        let Value::Object(extra) = fields else {
            return Vec::new();
        };
        self.chunk(Delta {
            extra,
            ..Delta::default()
        })
    }

    fn call(&self, delta: ToolCallDelta) -> Vec<Piece> {
        self.chunk(Delta {
            tool_calls: vec![delta],
            ..Delta::default()
        })
    }

    fn arguments(&self, index: u32, text: &str) -> Vec<Piece> {
        self.call(ToolCallDelta {
            index: Some(index),
            function: FunctionDelta {
                arguments: Some(text.to_owned()),
                ..FunctionDelta::default()
            },
            ..ToolCallDelta::default()
        })
    }

    fn begin(&mut self, block: u64, content: &Value) -> Vec<Piece> {
        let part = |name: &str| content[name].as_str().unwrap_or_default();
        match part("type") {
            "text" if !part("text").is_empty() => self.chunk(Delta::content(part("text"))),
            "tool_use" => {
                let index = u32::try_from(self.calls.len()).unwrap_or(u32::MAX);
                // A call may come whole, with its arguments in the first event.
                let given = content["input"].as_object().filter(|input| !input.is_empty());
                self.calls.insert(block, (index, given.is_some()));
                self.call(ToolCallDelta {
                    index: Some(index),
                    id: Some(part("id").to_owned()),
                    kind: Some("function".to_owned()),
                    function: FunctionDelta {
                        name: Some(part("name").to_owned()),
                        arguments: Some(given.map(|_| content["input"].to_string()).unwrap_or_default()),
                        ..FunctionDelta::default()
                    },
                    ..ToolCallDelta::default()
                })
            }
            "thinking" => {
                self.thought = Some((block, part("thinking").to_owned(), part("signature").to_owned()));
                Vec::new()
            }
            "redacted_thinking" => self.extra(json!({ "thinking_blocks": [content] })),
            _ => Vec::new(),
        }
    }

    fn delta(&mut self, block: u64, delta: &Value) -> Vec<Piece> {
        let part = |name: &str| delta[name].as_str().unwrap_or_default();
        match part("type") {
            "text_delta" => self.chunk(Delta::content(part("text"))),
            "input_json_delta" => match self.calls.get_mut(&block) {
                Some(_) if part("partial_json").is_empty() => Vec::new(),
                Some((index, begun)) => {
                    *begun = true;
                    let index = *index;
                    self.arguments(index, part("partial_json"))
                }
                None => Vec::new(),
            },
            "thinking_delta" => {
                if let Some((_, thought, _)) = &mut self.thought {
                    thought.push_str(part("thinking"));
                }
                self.extra(json!({ "reasoning_content": part("thinking") }))
            }
            "signature_delta" => {
                if let Some((_, _, signature)) = &mut self.thought {
                    signature.push_str(part("signature"));
                }
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    fn stop(&mut self, block: u64) -> Vec<Piece> {
        if let Some((_, thinking, signature)) = self.thought.take_if(|(open, _, _)| *open == block) {
            let whole = json!({"type": "thinking", "thinking": thinking, "signature": signature});
            return self.extra(json!({ "thinking_blocks": [whole] }));
        }
        // Arguments are JSON: those of a call without any are an empty object.
        match self.calls.get_mut(&block) {
            Some((index, begun)) if !*begun => {
                *begun = true;
                let index = *index;
                self.arguments(index, "{}")
            }
            _ => Vec::new(),
        }
    }
}

impl Translate for Stream {
    fn event(&mut self, data: &str) -> Result<Vec<Piece>, String> {
        let said: Said = serde_json::from_str(data)
            .map_err(|error| format!("an event that is none of Messages: {error}"))?;
        Ok(match said {
            Said::MessageStart { message } => {
                if !message.id.is_empty() {
                    self.origin.id = message.id;
                }
                if !message.model.is_empty() {
                    self.origin.model = message.model;
                }
                self.counts.update(message.usage);
                self.chunk(Delta::start())
            }
            Said::ContentBlockStart { index, content_block } => self.begin(index, &content_block),
            Said::ContentBlockDelta { index, delta } => self.delta(index, &delta),
            Said::ContentBlockStop { index } => self.stop(index),
            Said::MessageDelta { delta, usage } => {
                self.counts.update(usage);
                let Some(reason) = delta["stop_reason"].as_str() else {
                    return Ok(Vec::new());
                };
                self.finished = true;
                let Origin { id, created, model } = &self.origin;
                let reason = Some(finish(reason));
                let last = ChatChunk::new(id, *created, model, Delta::default(), reason);
                let usage = ChatChunk::usage(id, *created, model, self.counts.usage());
                vec![Piece::Chunk(Box::new(last)), Piece::Chunk(Box::new(usage))]
            }
            Said::MessageStop => vec![Piece::Done],
            Said::Error { error } => {
                let text = |name: &str| error[name].as_str().map(ToOwned::to_owned);
                let message = text("message").unwrap_or_else(|| error.to_string());
                vec![Piece::Error(Box::new(plain(text("type"), message)))]
            }
            Said::Other => Vec::new(),
        })
    }

    fn end(&mut self) -> Vec<Piece> {
        if self.finished {
            vec![Piece::Done]
        } else {
            Vec::new()
        }
    }
}
