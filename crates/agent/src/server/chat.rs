//! `POST /v1/chat/completions`.

use std::{pin::pin, time::Duration};

use axum::{
    Json,
    body::{Body, Bytes},
    extract::{FromRequest, Request, State, rejection::BytesRejection},
    response::{IntoResponse, Response},
};
use futures::{Stream, StreamExt};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use kaos_openai::{ChatChunk, ChatRequest, ChatResponse, ErrorResponse, Message, sse};
use kaos_telemetry::{Operation, TraceContext};
use serde_json::Value;
use tokio::time::timeout;

use super::{
    App, BODY_LIMIT,
    frames::Frames,
    refusal::Refusal,
    session::{self, SESSION_FIELD, SESSION_HEADER},
};
use crate::{
    drive::{Event, drive},
    memory::{Record, SessionId},
    peers::Hop,
    run::{AgentRun, Identity, Outcome, Settings, conversation, is_asked},
};

/// How long a stream may be silent before a comment is sent, so that nothing on the way takes it for dead.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
const KEEP_ALIVE_FRAME: &[u8] = b": keep-alive\n\n";

/// How long the body of a request may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// The type of the error of a model that failed, as that of a server.
const MODEL_FAILED: &str = "server_error";

/// The model's name in the answer to a request that names none.
const UNNAMED: &str = "agent";

pub(crate) async fn completions(State(app): State<App>, request: Request) -> Result<Response, Refusal> {
    let headers = request.headers().clone();
    let body = timeout(BODY_TIMEOUT, Bytes::from_request(request, &())).await;
    let body = body.map_err(|_| too_slow())?.map_err(unread)?;
    require_json(&headers)?;
    let mut request: ChatRequest = serde_json::from_slice(&body).map_err(|error| {
        Refusal::bad_request(format!("request body is not a chat completion request: {error}"))
    })?;
    let session = session::named(&headers, &mut request.extra)?;
    let (stream, include_usage) = (request.stream, request.include_usage());
    let model = if request.model.is_empty() {
        UNNAMED.to_owned()
    } else {
        request.model.clone()
    };
    let hop = Hop::of(&headers);
    let trace = TraceContext::of_headers(&headers);
    let (run, session, operation) = begin(&app, request, &hop, session, &trace).await?;
    let id = format!("chatcmpl-{}", app.seams.random.hex(16));
    let frames = Frames::new(
        id,
        app.now(),
        model,
        run.max_steps(),
        include_usage,
        session.clone(),
    );
    tracing::debug!(id = frames.id, stream, "chat completion begins");
    let events = events(&app, run, hop, session.clone(), operation);
    let mut response = if stream {
        streamed(&app, events, frames).await?
    } else {
        whole(&app, events, frames).await?
    };
    let header = session.and_then(|session| HeaderValue::from_str(session.as_str()).ok());
    if let Some(session) = header {
        response.headers_mut().insert(SESSION_HEADER, session);
    }
    Ok(response)
}

/// What happens in a run, which is remembered as it happens.
fn events(
    app: &App,
    run: AgentRun,
    hop: Hop,
    session: Option<SessionId>,
    operation: Operation,
) -> impl Stream<Item = Event> + Send + use<> {
    let remembered = app.memory.clone().zip(session);
    let ids = operation.ids();
    drive(run, app.means(hop), operation).inspect(move |event| {
        if let Some((memory, session)) = &remembered {
            memory.record(session, ids.as_ref(), Record::of_event(event));
        }
    })
}

fn too_slow() -> Refusal {
    let detail = format!("request body did not arrive within {} s", BODY_TIMEOUT.as_secs());
    Refusal::new(StatusCode::REQUEST_TIMEOUT, detail)
}

fn unread(rejection: BytesRejection) -> Refusal {
    match rejection.status() {
        status @ StatusCode::PAYLOAD_TOO_LARGE => Refusal::new(
            status,
            format!("request body is larger than {} MiB", BODY_LIMIT >> 20),
        ),
        status => Refusal::new(status, rejection.body_text()),
    }
}

/// Only JSON that says so: a web page can send anything else to a local agent without asking, and the agent's
/// tools may have effects.
fn require_json(headers: &HeaderMap) -> Result<(), Refusal> {
    let kind = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let media_type = kind
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase();
    if media_type == "application/json" || media_type.ends_with("+json") {
        return Ok(());
    }
    let detail = format!("content type must be application/json, found {kind:?}");
    Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail))
}

/// The run that a request asks for, the session it belongs to where there is memory, and the operation that it
/// is, as part of `trace`.
async fn begin(
    app: &App,
    request: ChatRequest,
    hop: &Hop,
    session: Option<SessionId>,
    trace: &TraceContext,
) -> Result<(AgentRun, Option<SessionId>, Operation), Refusal> {
    let ChatRequest {
        messages,
        stream,
        tools,
        tool_choice,
        extra: mut parameters,
        ..
    } = request;
    if messages.is_empty() {
        return Err(Refusal::bad_request("messages are required"));
    }
    if !is_asked(&messages) {
        return Err(Refusal::bad_request("No user or task-delegation message found"));
    }
    if !tools.is_empty() || parameters.contains_key("functions") {
        return Err(Refusal::bad_request(
            "tools are not supported: an agent calls the tools it is set up with",
        ));
    }
    match parameters.remove("n") {
        None | Some(Value::Null) => {}
        Some(n) if n.as_u64() == Some(1) => {}
        Some(n) => {
            return Err(Refusal::bad_request(format!(
                "n is {n}, but an agent gives one answer: leave it out"
            )));
        }
    }
    let delegates = app.dependencies.peers.delegates(hop).await;
    let limit = app.config.context_limit;
    let remembered = match (&app.memory, &session) {
        (Some(memory), Some(session)) => memory.conversation(session, limit),
        _ => Vec::new(),
    };
    let identity = Identity {
        name: &app.config.name,
        description: &app.config.description,
        instructions: &app.config.instructions,
        delegates: &delegates,
    };
    let asked = Record::of_request(&messages);
    let messages = conversation(identity, remembered, messages);
    let session = app.memory.as_ref().map(|memory| memory.open(session));
    let max_steps = app.config.max_steps;
    let operation = app.operations.request(trace, session.as_ref(), max_steps, stream);
    if let (Some(memory), Some(session)) = (&app.memory, &session) {
        memory.record(session, operation.ids().as_ref(), asked);
    }
    let settings = Settings {
        model: app.config.model.clone(),
        max_steps,
        context_limit: limit,
        tool_choice,
        calling: app.calling(),
        parameters,
    };
    let tools = app
        .dependencies
        .tools
        .offered()
        .iter()
        .map(|tool| tool.definition())
        .collect();
    let run = AgentRun::new(settings, messages, tools, delegates);
    Ok((run, session, operation))
}

/// The answer in one piece: what the model said last. What it said before it called tools is only streamed.
async fn whole(
    app: &App,
    events: impl Stream<Item = Event> + Send,
    frames: Frames,
) -> Result<Response, Refusal> {
    let mut events = pin!(events);
    let finished = async {
        loop {
            match events.next().await {
                Some(Event::Finished { outcome, usage, .. }) => return Some((outcome, usage)),
                Some(Event::Content { .. } | Event::ToolCall { .. } | Event::ToolResult { .. }) => {}
                None => return None,
            }
        }
    };
    let Some((outcome, usage)) = app.cut.run_until_cancelled(finished).await.flatten() else {
        return Err(shutting_down());
    };
    if let Outcome::ModelFailed { reason } = &outcome
        && app.config.strict_errors
    {
        return Err(failed(reason));
    }
    let message = Message::assistant(outcome.text());
    let Frames {
        id,
        created,
        model,
        session,
        ..
    } = frames;
    let mut response = ChatResponse::new(id, created, model, message, outcome.finish_reason(), usage);
    if let Some(session) = session {
        response
            .extra
            .insert(SESSION_FIELD.to_owned(), session.as_str().into());
    }
    Ok(Json(response).into_response())
}

/// The answer as it comes, with what the agent does in between.
async fn streamed(
    app: &App,
    events: impl Stream<Item = Event> + Send + 'static,
    frames: Frames,
) -> Result<Response, Refusal> {
    let strict = app.config.strict_errors;
    let mut events = Box::pin(events.peekable());
    if strict {
        // The status says whether the model failed, so that it waits for the first that is known of that.
        let first = app.cut.run_until_cancelled(events.as_mut().peek()).await;
        if let Event::Finished {
            outcome: Outcome::ModelFailed { reason },
            ..
        } = first.flatten().ok_or_else(shutting_down)?
        {
            return Err(failed(reason));
        }
    }
    let frames = Box::pin(body(events, frames, strict)).take_until(app.cut.clone().cancelled_owned());
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-cache"),
        (header::CONNECTION, "keep-alive"),
    ];
    Ok((headers, Body::from_stream(frames)).into_response())
}

/// The bytes of a stream of events. A model that fails late is an error in a frame, where that is asked for.
fn body(
    events: impl Stream<Item = Event> + Send,
    mut frames: Frames,
    strict: bool,
) -> impl Stream<Item = Result<Bytes, serde_json::Error>> + Send {
    async_stream::try_stream! {
        let mut events = pin!(events);
        yield encode(&[frames.start()])?;
        loop {
            match timeout(KEEP_ALIVE, events.next()).await {
                Err(_) => yield Bytes::from_static(KEEP_ALIVE_FRAME),
                Ok(Some(Event::Finished { outcome: Outcome::ModelFailed { reason }, .. })) if strict => {
                    yield sse::frame(&ErrorResponse::new(MODEL_FAILED, reason))?.into();
                }
                Ok(Some(event)) => yield encode(&frames.chunks(event))?,
                Ok(None) => break,
            }
        }
        yield Bytes::from_static(sse::DONE_FRAME);
    }
}

fn shutting_down() -> Refusal {
    Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "the agent is shutting down")
}

fn failed(reason: &str) -> Refusal {
    Refusal::new(StatusCode::BAD_GATEWAY, reason)
}

fn encode(chunks: &[ChatChunk]) -> Result<Bytes, serde_json::Error> {
    let mut bytes = Vec::new();
    for chunk in chunks {
        bytes.append(&mut sse::frame(chunk)?);
    }
    Ok(bytes.into())
}
