//! A scripted model, a scripted server of tools and a scripted peer, for the tests of this crate.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use kaos_mcp::client::{ClientError, ToolInfo, ToolOutcome};
use kaos_openai::ChatRequest;
use kaos_telemetry::TraceContext;
use serde_json::{Map, Value, json};
use tokio::time::sleep;

use crate::{
    model::{ChunkStream, Model, ModelError},
    peers::{Card, Hop, PeerError, PeerSource},
    tools::ToolSource,
};

/// One thing a scripted model does in its answer.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    /// Sends this as the delta of a chunk.
    Delta(Value),
    /// Stops for this reason, with this usage.
    Stop(&'static str, u64, u64),
    /// Waits.
    Wait(Duration),
    /// Fails.
    Fail(ModelError),
}

/// A model that answers each question with the next of its scripts.
#[derive(Default)]
pub(crate) struct ScriptedModel {
    scripts: Mutex<VecDeque<Vec<Act>>>,
    pub(crate) asked: Mutex<Vec<ChatRequest>>,
    /// Why it cannot be asked now.
    pub(crate) missing: Mutex<Option<ModelError>>,
}

impl ScriptedModel {
    pub(crate) fn new(scripts: impl IntoIterator<Item = Vec<Act>>) -> Arc<Self> {
        Arc::new(Self {
            scripts: Mutex::new(scripts.into_iter().collect()),
            ..Self::default()
        })
    }

    pub(crate) fn question(&self, at: usize) -> ChatRequest {
        self.asked.lock().unwrap()[at].clone()
    }
}

/// An answer of text, in the pieces given.
pub(crate) fn says(pieces: &[&str]) -> Vec<Act> {
    let deltas = pieces.iter().map(|piece| Act::Delta(json!({"content": piece})));
    deltas.chain([Act::Stop("stop", 10, 1)]).collect()
}

/// An answer that calls tools.
pub(crate) fn calls(calls: &[(&str, Value)]) -> Vec<Act> {
    let deltas = calls.iter().enumerate().map(|(index, (name, arguments))| {
        Act::Delta(json!({"tool_calls": [{
            "index": index, "id": format!("call-{index}"), "type": "function",
            "function": {"name": name, "arguments": arguments.to_string()},
        }]}))
    });
    deltas.chain([Act::Stop("tool_calls", 10, 1)]).collect()
}

/// A failure of the model.
pub(crate) fn gone() -> ModelError {
    ModelError::Unreachable {
        url: "http://model/".to_owned(),
        reason: "connection refused".to_owned(),
    }
}

#[async_trait]
impl Model for ScriptedModel {
    async fn ask(&self, request: ChatRequest, _trace: &TraceContext) -> Result<ChunkStream, ModelError> {
        self.asked.lock().unwrap().push(request);
        let script = self
            .scripts
            .lock()
            .unwrap()
            .pop_front()
            .unwrap_or_else(|| vec![Act::Fail(gone())]);
        if let [Act::Fail(error)] = script.as_slice() {
            return Err(error.clone());
        }
        Ok(Box::pin(async_stream::try_stream! {
            for act in script {
                let chunk = match act {
                    Act::Delta(delta) => json!({"id": "u", "choices": [{"index": 0, "delta": delta}]}),
                    Act::Stop(reason, prompt, completion) => json!({
                        "choices": [{"index": 0, "delta": {}, "finish_reason": reason}],
                        "usage": {
                            "prompt_tokens": prompt, "completion_tokens": completion,
                            "total_tokens": prompt + completion,
                        },
                    }),
                    Act::Wait(duration) => {
                        sleep(duration).await;
                        continue;
                    }
                    Act::Fail(error) => Err(error)?,
                };
                yield serde_json::from_value(chunk).unwrap();
            }
        }))
    }

    async fn check(&self) -> Result<(), ModelError> {
        self.missing.lock().unwrap().clone().map_or(Ok(()), Err)
    }
}

/// What a scripted tool does.
#[derive(Clone, Debug)]
pub(crate) enum Tool {
    /// Answers with its arguments as text.
    Echo,
    /// Answers only with a structured result.
    Structured(Value),
    /// Runs and fails.
    Fails(&'static str),
    /// Takes this long.
    Slow(Duration),
    /// Answers this much text.
    Long(usize),
}

/// A server with scripted tools.
pub(crate) struct ScriptedTools {
    name: &'static str,
    pub(crate) tools: Mutex<Vec<(&'static str, Tool)>>,
    /// Cannot be reached.
    pub(crate) away: Mutex<bool>,
    pub(crate) listed: Mutex<usize>,
}

impl ScriptedTools {
    pub(crate) fn new(name: &'static str, tools: &[(&'static str, Tool)]) -> Arc<Self> {
        Arc::new(Self {
            name,
            tools: Mutex::new(tools.to_vec()),
            away: Mutex::new(false),
            listed: Mutex::new(0),
        })
    }

    fn reach(&self) -> Result<(), ClientError> {
        if *self.away.lock().unwrap() {
            let reason = "connection refused".to_owned();
            return Err(ClientError::Connect {
                url: format!("http://{}/mcp", self.name),
                reason,
            });
        }
        Ok(())
    }
}

#[async_trait]
impl ToolSource for ScriptedTools {
    fn name(&self) -> &str {
        self.name
    }

    async fn list_tools(&self, _deadline: Duration) -> Result<Vec<ToolInfo>, ClientError> {
        *self.listed.lock().unwrap() += 1;
        self.reach()?;
        let tools = self.tools.lock().unwrap();
        let info = |(name, _): &(&str, Tool)| ToolInfo {
            name: (*name).to_owned(),
            description: format!("{name} of {}", self.name),
            input_schema: Map::from_iter([("type".to_owned(), json!("object"))]),
        };
        Ok(tools.iter().map(info).collect())
    }

    async fn call_tool(
        &self,
        tool: &str,
        arguments: Map<String, Value>,
        _deadline: Duration,
        _trace: &TraceContext,
    ) -> Result<ToolOutcome, ClientError> {
        self.reach()?;
        let known = self
            .tools
            .lock()
            .unwrap()
            .iter()
            .find(|(name, _)| *name == tool)
            .map(|(_, does)| does.clone());
        let text = |text: String| ToolOutcome {
            text,
            ..ToolOutcome::default()
        };
        Ok(match known {
            None => ToolOutcome {
                is_error: true,
                ..text(format!("Unknown tool: {tool}"))
            },
            Some(Tool::Echo) => text(format!("{} {}", self.name, Value::Object(arguments))),
            Some(Tool::Structured(value)) => ToolOutcome {
                structured: Some(value),
                ..ToolOutcome::default()
            },
            Some(Tool::Fails(reason)) => ToolOutcome {
                is_error: true,
                ..text(reason.to_owned())
            },
            Some(Tool::Slow(duration)) => {
                sleep(duration).await;
                text("late".to_owned())
            }
            Some(Tool::Long(size)) => text("é".repeat(size / 2)),
        })
    }
}

/// An agent that answers every task with what it was asked, for as long as it takes.
#[derive(Default)]
pub(crate) struct ScriptedPeer {
    name: &'static str,
    /// Why it cannot be reached.
    pub(crate) away: Mutex<Option<&'static str>>,
    /// How long it takes to answer anything.
    pub(crate) takes: Mutex<Duration>,
    pub(crate) answer: Mutex<Option<String>>,
    pub(crate) cards: Mutex<usize>,
    pub(crate) asked: Mutex<Vec<(ChatRequest, Hop)>>,
    pub(crate) traces: Mutex<Vec<TraceContext>>,
}

impl ScriptedPeer {
    pub(crate) fn new(name: &'static str) -> Arc<Self> {
        Arc::new(Self {
            name,
            ..Self::default()
        })
    }

    async fn reach(&self) -> Result<(), PeerError> {
        let takes = *self.takes.lock().unwrap();
        sleep(takes).await;
        self.away.lock().unwrap().map_or(Ok(()), |reason| {
            Err(PeerError::Unreachable {
                url: format!("http://{}/", self.name),
                reason: reason.to_owned(),
            })
        })
    }
}

#[async_trait]
impl PeerSource for ScriptedPeer {
    fn name(&self) -> &str {
        self.name
    }

    async fn card(&self) -> Result<Card, PeerError> {
        *self.cards.lock().unwrap() += 1;
        self.reach().await?;
        Ok(Card {
            name: format!("the-real-{}", self.name),
            description: format!("what {} does", self.name),
        })
    }

    async fn ask(&self, request: &ChatRequest, hop: &Hop, trace: &TraceContext) -> Result<String, PeerError> {
        self.asked.lock().unwrap().push((request.clone(), hop.clone()));
        self.traces.lock().unwrap().push(trace.clone());
        self.reach().await?;
        let answer = self.answer.lock().unwrap().clone();
        let task = request.messages.last().map(kaos_openai::Message::text);
        Ok(answer.unwrap_or_else(|| format!("{} did: {}", self.name, task.unwrap_or_default())))
    }
}
