//! The tools an agent can call: what its MCP servers offer, under the names the model gets.
//!
//! The toolbox keeps asking each server in the background, so that a request never waits for a list of tools
//! and the agent knows which server it misses. What a server offered last stays offered while it is gone.

mod source;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::future::join_all;
use kaos_mcp::client::{ToolInfo, ToolOutcome};
use kaos_openai::Tool;
use kaos_telemetry::TraceContext;
use serde_json::{Map, Value};
use tokio::{sync::Notify, time::timeout};
use tokio_util::sync::CancellationToken;

pub(crate) use source::{McpSource, ToolSource};

use crate::{
    bounded::shortened,
    operations::Operations,
    pace::Pace,
    run::{ToolResult, function_name},
};

/// How long a server may take to list its tools.
const LIST_TIMEOUT: Duration = Duration::from_secs(5);
/// How much of a tool's result the model is shown, in bytes: more would fill the context of most models.
pub(crate) const RESULT_LIMIT: usize = 256 << 10;

/// The tools of several servers.
pub(crate) struct Toolbox {
    sources: Vec<Arc<dyn ToolSource>>,
    listings: Mutex<Vec<Listing>>,
    asked_again: Notify,
}

/// What is known of one server.
#[derive(Clone, Debug)]
struct Listing {
    tools: Vec<Arc<ToolInfo>>,
    /// Why it cannot be asked, as of the last time it was.
    missing: Option<String>,
}

/// A tool as it is offered to the model.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct OfferedTool {
    /// The name the model calls it by.
    pub(crate) name: String,
    /// The tool as its server describes it.
    pub(crate) info: Arc<ToolInfo>,
    source: usize,
}

impl OfferedTool {
    /// The tool as a request to the model lists it.
    pub(crate) fn definition(&self) -> Tool {
        let description = Some(self.info.description.clone()).filter(|text| !text.is_empty());
        Tool::function(
            &self.name,
            description,
            Value::Object(self.info.input_schema.clone()),
        )
    }
}

impl Toolbox {
    /// The tools of `sources`; where two have a tool of the same name, that of the first is called.
    pub(crate) fn new(sources: Vec<Arc<dyn ToolSource>>) -> Self {
        let unknown = Listing {
            tools: Vec::new(),
            missing: Some("it was not asked yet".to_owned()),
        };
        Self {
            listings: Mutex::new(vec![unknown; sources.len()]),
            sources,
            asked_again: Notify::new(),
        }
    }

    /// Keeps the lists of tools fresh until `stop`.
    pub(crate) async fn watch(&self, pace: &Pace, stop: &CancellationToken) {
        join_all((0..self.sources.len()).map(|at| async move {
            pace.repeat(stop, &self.asked_again, || self.refresh(at)).await;
        }))
        .await;
    }

    /// Asks one server for its tools; whether it answered.
    async fn refresh(&self, at: usize) -> bool {
        let source = &self.sources[at];
        let listed = match timeout(LIST_TIMEOUT, source.list_tools(LIST_TIMEOUT)).await {
            Ok(Ok(tools)) => Ok(tools.into_iter().map(Arc::new).collect::<Vec<_>>()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!(
                "it did not list its tools within {} s",
                LIST_TIMEOUT.as_secs()
            )),
        };
        let mut listings = self.listings.lock().unwrap_or_else(PoisonError::into_inner);
        let listing = &mut listings[at];
        let answered = listed.is_ok();
        match listed {
            Ok(tools) => {
                if listing.missing.take().is_some() || listing.tools != tools {
                    let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
                    tracing::info!(
                        server = source.name(),
                        tools = names.join(", "),
                        "MCP server lists its tools"
                    );
                }
                listing.tools = tools;
            }
            Err(reason) => {
                if listing.missing.as_ref() != Some(&reason) {
                    tracing::warn!(server = source.name(), reason, "MCP server is not reachable");
                }
                listing.missing = Some(reason);
            }
        }
        answered
    }

    /// The servers that cannot be asked, each with the reason.
    pub(crate) fn missing(&self) -> Vec<String> {
        let listings = self.listings.lock().unwrap_or_else(PoisonError::into_inner);
        let missing = self
            .sources
            .iter()
            .zip(listings.iter())
            .filter_map(|(source, listing)| {
                let reason = listing.missing.as_ref()?;
                Some(format!("MCP server {} is not reachable: {reason}", source.name()))
            });
        missing.collect()
    }

    /// Whether there is any server.
    pub(crate) fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }

    /// The tools that are offered now.
    pub(crate) fn offered(&self) -> Vec<OfferedTool> {
        let listings = self.listings.lock().unwrap_or_else(PoisonError::into_inner);
        let mut names = BTreeSet::new();
        let tools = listings
            .iter()
            .enumerate()
            .flat_map(|(source, listing)| listing.tools.iter().map(move |info| (source, info)));
        tools
            .filter_map(|(source, info)| {
                let name = function_name(&info.name);
                names.insert(name.clone()).then(|| OfferedTool {
                    name,
                    info: info.clone(),
                    source,
                })
            })
            .collect()
    }

    /// Calls the tool offered as `name`, for at most `deadline`, as part of `trace`. Never fails: what goes wrong
    /// is a result that says so.
    pub(crate) async fn call(
        &self,
        name: &str,
        arguments: Map<String, Value>,
        deadline: Duration,
        operations: &Operations,
        trace: &TraceContext,
    ) -> ToolResult {
        let Some(tool) = self.offered().into_iter().find(|tool| tool.name == name) else {
            self.refresh_soon();
            return ToolResult::failure(format_args!("the tool {name:?} is not offered any more"));
        };
        let source = &self.sources[tool.source];
        let calling = operations.mcp_tool(trace, &tool.info.name, source.name(), source.url());
        let call = source.call_tool(&tool.info.name, arguments, deadline, calling.context());
        match timeout(deadline, call).await {
            Ok(Ok(outcome)) => {
                let result = told(outcome);
                if result.is_error {
                    if result.text.to_ascii_lowercase().contains("unknown tool") {
                        self.refresh_soon();
                    }
                    calling.fail("tool_error", &result.text);
                } else {
                    calling.succeed();
                }
                result
            }
            Ok(Err(error)) => {
                self.refresh_soon();
                calling.fail("call_failed", &error);
                ToolResult::failure(error)
            }
            Err(_) => {
                let seconds = deadline.as_secs_f64();
                let result = ToolResult::failure(format_args!("{name:?} did not answer within {seconds} s"));
                calling.fail("timeout", &result.text);
                result
            }
        }
    }

    /// Has the servers asked for their tools again without waiting for the next round: a call showed that
    /// what is known of them is not true any more.
    pub(crate) fn refresh_soon(&self) {
        self.asked_again.notify_waiters();
    }
}

/// What the model is told of an outcome: its text, or the structured result of a tool that gives only that.
fn told(outcome: ToolOutcome) -> ToolResult {
    let text = match outcome.structured {
        Some(structured) if outcome.text.trim().is_empty() => structured.to_string(),
        _ => outcome.text,
    };
    let text = shortened(text, RESULT_LIMIT);
    if outcome.is_error {
        ToolResult::failure(text)
    } else {
        ToolResult::success(text)
    }
}
