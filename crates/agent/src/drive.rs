//! Does the steps of a run: asks the model, calls the tools, and tells what happens while it does.
//!
//! The whole run is one stream, so that dropping it (the caller hung up) stops the model and the tools, and a
//! caller who reads slowly slows the model down instead of filling memory.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::{Stream, StreamExt, stream};
use kaos_openai::{ChatChunk, ChatRequest, ChatResponse, ChunkAccumulator, Usage};
use kaos_telemetry::{Operation, TraceContext};
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use crate::{
    model::{ChunkStream, Model, ModelError},
    operations::{Operations, used},
    peers::{Hop, Peers},
    run::{AgentRun, Invocation, Outcome, Step, ToolResult, text::Held},
    tools::Toolbox,
};

/// How many calls of one answer are made at once.
const CALLS_AT_ONCE: usize = 16;

/// What a run needs to be done.
#[derive(Clone)]
pub(crate) struct Means {
    pub(crate) model: Arc<dyn Model>,
    pub(crate) tools: Arc<Toolbox>,
    pub(crate) peers: Arc<Peers>,
    pub(crate) operations: Arc<Operations>,
    /// The way that the request came.
    pub(crate) hop: Hop,
    /// How long one tool call may take.
    pub(crate) tool_timeout: Duration,
    /// How long another agent may take to answer.
    pub(crate) delegation_timeout: Duration,
    /// How long the whole run may take.
    pub(crate) request_timeout: Duration,
    /// Set once the model has turned out to take no tools; `None`: it is expected to take them.
    pub(crate) takes_no_tools: Option<Arc<AtomicBool>>,
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
        invocation: Invocation,
        result: ToolResult,
    },
    /// The run is done. Nothing follows.
    Finished {
        step: u32,
        outcome: Outcome,
        usage: Usage,
    },
}

/// Drives `run` to its end, which is that of `whole`.
pub(crate) fn drive(mut run: AgentRun, means: Means, whole: Operation) -> impl Stream<Item = Event> + Send {
    let context = whole.context().clone();
    let deadline = Instant::now() + means.request_timeout;
    context.attach(async_stream::stream! {
        // The step that is going on: a question to the model and the calls that it leads to.
        let mut part: Option<Operation> = None;
        loop {
            let step = run.step();
            match run.next_step() {
                Step::CallModel(request) => {
                    if let Some(last) = part.take() {
                        last.succeed();
                    }
                    let this = means.operations.step(whole.context(), step, run.max_steps());
                    let asking = means.operations.model(this.context(), &request);
                    part = Some(this);
                    let model = request.model.clone();
                    // Taken when the model begins to answer.
                    let mut silent_since = Some(Instant::now());
                    let mut answer = ChunkAccumulator::new();
                    let mut failure = None;
                    // What is said may be a call, which is not for people.
                    let mut held = run.reads_calls().then(Held::default);
                    match timeout_at(deadline, ask(&means, *request, step, asking.context())).await {
                        Err(_) => failure = Some(means.late()),
                        Ok(Err(error)) => failure = Some(error),
                        Ok(Ok(mut chunks)) => {
                            loop {
                                match timeout_at(deadline, chunks.next()).await {
                                    Err(_) => failure = Some(means.late()),
                                    Ok(None) => {}
                                    Ok(Some(Err(error))) => failure = Some(error),
                                    Ok(Some(Ok(chunk))) => {
                                        if let Some(since) = silent_since.take() {
                                            means.operations.begun(&model, since.elapsed());
                                        }
                                        let said = said(&chunk);
                                        let told = match (&mut held, said) {
                                            (Some(held), Some(said)) => Some(held.push(&said)),
                                            (_, said) => said,
                                        };
                                        if let Some(text) = told.filter(|text| !text.is_empty()) {
                                            yield Event::Content { step, text };
                                        }
                                        answer.push(&chunk);
                                        continue;
                                    }
                                }
                                break;
                            }
                        }
                    }
                    let rest = held.map(Held::finish).unwrap_or_default();
                    if !rest.is_empty() {
                        yield Event::Content { step, text: rest };
                    }
                    if let Some(error) = failure {
                        let by_text = means.takes_no_tools.as_ref().filter(|_| error.refuses_tools());
                        if let Some(known) = by_text && run.call_by_text() {
                            if !known.swap(true, Ordering::Relaxed) {
                                tracing::warn!(%error, "the model takes no tools; it is told of them in text");
                            }
                            asking.fail(error.kind(), &error);
                            continue;
                        }
                        tracing::warn!(step, %error, "the model gave no answer");
                        asking.fail(error.kind(), &error);
                        run.model_failed(error.to_string());
                        continue;
                    }
                    let answer = answer.into_response();
                    means.operations.answered(&asking, &model, &answer);
                    asking.succeed();
                    for (invocation, result) in feed(&mut run, answer) {
                        if invocation.delegation.is_none() {
                            // Perhaps the model knows better than the list of tools does.
                            means.tools.refresh_soon();
                        }
                        yield Event::ToolCall { step, invocation: invocation.clone() };
                        yield Event::ToolResult { step, invocation, result };
                    }
                }
                Step::CallTools(invocations) => {
                    let trace = part.as_ref().unwrap_or(&whole).context().clone();
                    for invocation in &invocations {
                        yield Event::ToolCall { step, invocation: invocation.clone() };
                    }
                    let calls: Vec<_> = invocations
                        .into_iter()
                        .map(|invocation| {
                            let task = invocation.delegation.as_ref().map(|task| run.delegated(task));
                            call(&means, invocation, task, &trace)
                        })
                        .collect();
                    let mut calls = stream::iter(calls).buffer_unordered(CALLS_AT_ONCE);
                    loop {
                        match timeout_at(deadline, calls.next()).await {
                            Err(_) => run.model_failed(means.late().to_string()),
                            Ok(None) => {}
                            Ok(Some((invocation, result))) => {
                                let (tool, is_error) = (&invocation.tool, result.is_error);
                                tracing::debug!(step, tool, is_error, "tool answered");
                                if let Err(error) = run.tool_answered(&invocation.id, result.clone()) {
                                    run.model_failed(error.to_string());
                                }
                                yield Event::ToolResult { step, invocation, result };
                                continue;
                            }
                        }
                        break;
                    }
                }
                Step::Done(outcome) => {
                    end(part, whole, &outcome, run.usage());
                    yield Event::Finished { step, outcome, usage: run.usage().clone() };
                    return;
                }
            }
        }
    })
}

impl Means {
    /// Why a run ends that has taken too long.
    fn late(&self) -> ModelError {
        ModelError::Late {
            limit: self.request_timeout,
        }
    }
}

/// Ends the last step and the whole.
fn end(part: Option<Operation>, whole: Operation, outcome: &Outcome, usage: &Usage) {
    used(&whole, usage);
    if let Outcome::ModelFailed { reason } = outcome {
        let ends = part.into_iter().chain([whole]);
        return ends.for_each(|operation| operation.fail("model_failed", reason));
    }
    part.into_iter().for_each(Operation::succeed);
    match outcome {
        Outcome::StepsExhausted { .. } => whole.fail("steps_exhausted", outcome.text()),
        Outcome::Answered { .. } | Outcome::ModelFailed { .. } => whole.succeed(),
    }
}

async fn ask(
    means: &Means,
    request: ChatRequest,
    step: u32,
    trace: &TraceContext,
) -> Result<ChunkStream, ModelError> {
    tracing::debug!(
        step,
        model = request.model,
        messages = request.messages.len(),
        "asking the model"
    );
    trace.attach(means.model.ask(request, trace)).await
}

/// Gives the run an answer it asked for; that it did not would be a mistake of this file.
fn feed(run: &mut AgentRun, answer: ChatResponse) -> Vec<(Invocation, ToolResult)> {
    run.model_answered(answer).unwrap_or_else(|error| {
        run.model_failed(error.to_string());
        Vec::new()
    })
}

/// Calls a tool, or hands `task` to the agent that the tool stands for, as part of `trace`.
async fn call(
    means: &Means,
    invocation: Invocation,
    task: Option<ChatRequest>,
    trace: &TraceContext,
) -> (Invocation, ToolResult) {
    let operations = &means.operations;
    let (operation, result) = if let (Some(delegation), Some(request)) = (&invocation.delegation, task) {
        let handing = operations.delegation(trace, &delegation.agent);
        let (deadline, trace) = (means.delegation_timeout, handing.context());
        let asked = means
            .peers
            .ask(&delegation.agent, &request, &means.hop, deadline, trace);
        let result = trace.attach(asked).await;
        (handing, result)
    } else {
        let calling = operations.tool(trace, &invocation.tool, &invocation.id);
        let result = match &invocation.arguments {
            Value::Object(arguments) => {
                let (arguments, deadline, trace) = (arguments.clone(), means.tool_timeout, calling.context());
                let called = means
                    .tools
                    .call(&invocation.tool, arguments, deadline, operations, trace);
                trace.attach(called).await
            }
            // The run only asks for calls whose arguments are an object.
            other => ToolResult::failure(format_args!("{other} is not an object")),
        };
        (calling, result)
    };
    match (result.is_error, &invocation.delegation) {
        (false, _) => operation.succeed(),
        (true, None) => operation.fail("tool_error", &result.text),
        (true, Some(_)) => operation.fail("delegation_failed", &result.text),
    }
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
