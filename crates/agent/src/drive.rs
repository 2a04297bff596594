//! Does the steps of a run: asks the model, calls the tools, and tells what happens while it does.
//!
//! The whole run is one stream, so that dropping it (the caller hung up) stops the model and the tools, and a
//! caller who reads slowly slows the model down instead of filling memory.

use std::{sync::Arc, time::Duration};

use futures::{Stream, StreamExt, stream};
use kaos_openai::{ChatChunk, ChatRequest, ChatResponse, ChunkAccumulator, Usage};
use serde_json::Value;

use crate::{
    model::{ChunkStream, Model, ModelError},
    run::{AgentRun, Invocation, Outcome, Step, ToolResult},
    tools::Toolbox,
};

/// How many calls of one answer are made at once.
const CALLS_AT_ONCE: usize = 16;

/// What a run needs to be done.
#[derive(Clone)]
pub(crate) struct Means {
    pub(crate) model: Arc<dyn Model>,
    pub(crate) tools: Arc<Toolbox>,
    /// How long one tool call may take.
    pub(crate) tool_timeout: Duration,
}

/// Something that happened in a run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Event {
    /// The model said more in this step.
    Content { step: u32, text: String },
    /// A tool is called.
    ToolCall { step: u32, invocation: Invocation },
    /// A call has its result.
    ToolResult {
        step: u32,
        tool: String,
        result: ToolResult,
    },
    /// The run is done. Nothing follows.
    Finished {
        step: u32,
        outcome: Outcome,
        usage: Usage,
    },
}

/// Drives `run` to its end.
pub(crate) fn drive(mut run: AgentRun, means: Means) -> impl Stream<Item = Event> + Send {
    async_stream::stream! {
        loop {
            let step = run.step();
            match run.next_step() {
                Step::CallModel(request) => {
                    let mut answer = ChunkAccumulator::new();
                    let mut failure = None;
                    match ask(&means, *request, step).await {
                        Err(error) => failure = Some(error),
                        Ok(mut chunks) => {
                            while let Some(chunk) = chunks.next().await {
                                match chunk {
                                    Err(error) => failure = Some(error),
                                    Ok(chunk) => {
                                        if let Some(text) = said(&chunk) {
                                            yield Event::Content { step, text };
                                        }
                                        answer.push(&chunk);
                                    }
                                }
                            }
                        }
                    }
                    if let Some(error) = failure {
                        tracing::warn!(step, %error, "the model gave no answer");
                        run.model_failed(error.to_string());
                        continue;
                    }
                    for (invocation, result) in feed(&mut run, answer.into_response()) {
                        // Perhaps the model knows better than the list of tools does.
                        means.tools.refresh_soon();
                        let tool = invocation.tool.clone();
                        yield Event::ToolCall { step, invocation };
                        yield Event::ToolResult { step, tool, result };
                    }
                }
                Step::CallTools(invocations) => {
                    for invocation in &invocations {
                        yield Event::ToolCall { step, invocation: invocation.clone() };
                    }
                    let calls = invocations.into_iter().map(|invocation| call(&means, invocation));
                    let mut calls = stream::iter(calls).buffer_unordered(CALLS_AT_ONCE);
                    while let Some((invocation, result)) = calls.next().await {
                        tracing::debug!(step, tool = invocation.tool, is_error = result.is_error, "tool answered");
                        if let Err(error) = run.tool_answered(&invocation.id, result.clone()) {
                            run.model_failed(error.to_string());
                        }
                        yield Event::ToolResult { step, tool: invocation.tool, result };
                    }
                }
                Step::Done(outcome) => {
                    yield Event::Finished { step, outcome, usage: run.usage().clone() };
                    return;
                }
            }
        }
    }
}

async fn ask(means: &Means, request: ChatRequest, step: u32) -> Result<ChunkStream, ModelError> {
    tracing::debug!(
        step,
        model = request.model,
        messages = request.messages.len(),
        "asking the model"
    );
    means.model.ask(request).await
}

/// Gives the run an answer it asked for; that it did not would be a mistake of this file.
fn feed(run: &mut AgentRun, answer: ChatResponse) -> Vec<(Invocation, ToolResult)> {
    run.model_answered(answer).unwrap_or_else(|error| {
        run.model_failed(error.to_string());
        Vec::new()
    })
}

async fn call(means: &Means, invocation: Invocation) -> (Invocation, ToolResult) {
    let arguments = match &invocation.arguments {
        Value::Object(arguments) => arguments.clone(),
        // The run only asks for calls whose arguments are an object.
        other => {
            return (
                invocation.clone(),
                ToolResult::failure(format_args!("{other} is not an object")),
            );
        }
    };
    let result = means
        .tools
        .call(&invocation.tool, arguments, means.tool_timeout)
        .await;
    (invocation, result)
}

/// What the first answer of a chunk adds to the text, or to the text by which the model refuses to answer.
fn said(chunk: &ChatChunk) -> Option<String> {
    let delta = &chunk.choices.iter().find(|choice| choice.index == 0)?.delta;
    let refusal = delta.extra.get("refusal").and_then(Value::as_str);
    let text = delta
        .content
        .as_deref()
        .filter(|text| !text.is_empty())
        .or(refusal)?;
    Some(text.to_owned()).filter(|text| !text.is_empty())
}
