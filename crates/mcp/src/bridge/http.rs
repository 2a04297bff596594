//! The bridge's HTTP side: the streamable transport at `/mcp`, and the older one of events at `/sse`.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    Json, Router,
    body::Body,
    extract::{Query, Request, State},
    http::{HeaderMap, HeaderName, StatusCode, header},
    response::{
        IntoResponse, Response,
        sse::{self, Sse},
    },
    routing,
};
use futures::{Stream, StreamExt, stream};
use kaos_telemetry::Telemetry;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::{
    Full, Shared,
    session::{Event, Session, stream as new_stream},
};
use crate::message::{BRIDGE_ERROR, INVALID_REQUEST, Kind, Message, PARSE_ERROR, failure};

/// How often a comment keeps a quiet stream from being taken for a dead one.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");

pub(super) fn router(shared: Arc<Shared>, telemetry: Telemetry) -> Router {
    Router::new()
        .route("/mcp", routing::post(post).get(get).delete(delete))
        .route("/sse", routing::get(events))
        .route("/messages", routing::post(messages))
        .route(
            "/health",
            routing::get(|| async { Json(json!({"status": "healthy"})) }),
        )
        .route("/ready", routing::get(ready))
        .route(
            "/metrics",
            routing::get(move || async move { telemetry.scrape() }),
        )
        .with_state(shared)
}

/// Why a request is not taken, as HTTP and as JSON-RPC tell it.
struct Refusal {
    status: StatusCode,
    code: i32,
    message: String,
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let body = failure(&Value::Null, self.code, &self.message);
        (self.status, [(header::CONTENT_TYPE, "application/json")], body).into_response()
    }
}

fn refusal(status: StatusCode, code: i32, message: &str) -> Refusal {
    Refusal {
        status,
        code,
        message: message.to_owned(),
    }
}

fn invalid(status: StatusCode, message: &str) -> Refusal {
    refusal(status, INVALID_REQUEST, message)
}

fn accepts(headers: &HeaderMap, media_type: &str) -> bool {
    let family = media_type.split('/').next().unwrap_or_default();
    let accept = headers.get_all(header::ACCEPT).iter();
    accept
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|range| range.split(';').next().unwrap_or_default().trim())
        .any(|range| range == media_type || range == "*/*" || range.strip_suffix("/*") == Some(family))
}

async fn read(headers: &HeaderMap, body: Body) -> Result<Message, Refusal> {
    let content_type = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    let is_json = content_type
        .and_then(|value| value.split(';').next())
        .is_some_and(|value| value.trim().eq_ignore_ascii_case("application/json"));
    if !is_json {
        return Err(invalid(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "send JSON, with Content-Type: application/json",
        ));
    }
    let bytes = crate::body::read(body)
        .await
        .map_err(|(status, said)| invalid(status, &said))?;
    let text =
        std::str::from_utf8(&bytes).map_err(|_| refusal(StatusCode::BAD_REQUEST, PARSE_ERROR, "no UTF-8"))?;
    Message::parse(text)
        .map_err(|malformed| refusal(StatusCode::BAD_REQUEST, malformed.code, &malformed.what))
}

fn find(shared: &Shared, id: Option<&str>) -> Result<Session, Refusal> {
    let Some(id) = id else {
        return Err(refusal(
            StatusCode::BAD_REQUEST,
            BRIDGE_ERROR,
            "there is no session: send initialize first, and then its Mcp-Session-Id with every request",
        ));
    };
    shared.sessions().get(id).cloned().ok_or_else(over)
}

/// As the transport has it: the client is to begin a new session.
fn over() -> Refusal {
    refusal(
        StatusCode::NOT_FOUND,
        BRIDGE_ERROR,
        "the session is not known or has ended; send initialize for a new one",
    )
}

fn session_id(headers: &HeaderMap) -> Option<&str> {
    headers.get(SESSION)?.to_str().ok()
}

async fn post(State(shared): State<Arc<Shared>>, request: Request) -> Result<Response, Refusal> {
    let (parts, body) = request.into_parts();
    let headers = &parts.headers;
    if !(accepts(headers, "application/json") && accepts(headers, "text/event-stream")) {
        return Err(invalid(
            StatusCode::NOT_ACCEPTABLE,
            "accept both forms of an answer: Accept: application/json, text/event-stream",
        ));
    }
    let message = read(headers, body).await?;
    if session_id(headers).is_none()
        && matches!(&message.kind, Kind::Request { method, .. } if method == "initialize")
    {
        return initialize(&shared, message).await;
    }
    let session = find(&shared, session_id(headers))?;
    let answers_one = matches!(message.kind, Kind::Request { .. });
    let (answers, answer) = new_stream();
    if !session.send(Event::Message { message, answers }).await {
        return Err(over());
    }
    Ok(if answers_one {
        streamed(answer)
    } else {
        StatusCode::ACCEPTED.into_response()
    })
}

fn no_session(Full(limit): &Full) -> Refusal {
    let message = format!(
        "{limit} sessions are in use, which is the limit; end some, or raise {}",
        super::config::SESSIONS_VARIABLE
    );
    refusal(StatusCode::SERVICE_UNAVAILABLE, BRIDGE_ERROR, &message)
}

/// Opens a session, which is one only when the server has said yes.
async fn initialize(shared: &Arc<Shared>, message: Message) -> Result<Response, Refusal> {
    let (id, session) = shared.open(None).map_err(|full| no_session(&full))?;
    // Ended again where the client leaves before the answer.
    let unless_begun = session.end_on_drop();
    let (answers, mut answer) = new_stream();
    let sent = session.send(Event::Message { message, answers }).await;
    let answer = if sent { answer.recv().await } else { None };
    let Some(answer) = answer else {
        return Err(over());
    };
    let is_result = serde_json::from_str::<Value>(&answer).is_ok_and(|answer| answer.get("result").is_some());
    let json = (header::CONTENT_TYPE, "application/json".to_owned());
    Ok(if is_result {
        unless_begun.disarm();
        ([json, (SESSION, id)], answer).into_response()
    } else {
        ([json], answer).into_response()
    })
}

async fn get(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Result<Response, Refusal> {
    if !accepts(&headers, "text/event-stream") {
        return Err(invalid(
            StatusCode::NOT_ACCEPTABLE,
            "send MCP requests by POST; GET opens a stream, with Accept: text/event-stream",
        ));
    }
    let session = find(&shared, session_id(&headers))?;
    let (outbox, messages) = new_stream();
    if session.send(Event::Stream(outbox)).await {
        Ok(streamed(messages))
    } else {
        Err(over())
    }
}

async fn delete(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Result<Response, Refusal> {
    find(&shared, session_id(&headers))?.end();
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Messages as server-sent events, until their sender is gone.
fn streamed(messages: mpsc::Receiver<String>) -> Response {
    sse(events_of(messages))
}

fn events_of(messages: mpsc::Receiver<String>) -> impl Stream<Item = sse::Event> + Send + 'static {
    stream::unfold(messages, |mut messages| async {
        let message = messages.recv().await?;
        Some((sse::Event::default().event("message").data(message), messages))
    })
}

fn sse(events: impl Stream<Item = sse::Event> + Send + 'static) -> Response {
    Sse::new(events.map(Ok::<_, Infallible>))
        .keep_alive(sse::KeepAlive::new().interval(KEEP_ALIVE))
        .into_response()
}

/// The transport of 2024-11-05: a stream that begins with the address that messages are posted to, and answers to
/// everything.
async fn events(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Result<Response, Refusal> {
    if !accepts(&headers, "text/event-stream") {
        return Err(invalid(
            StatusCode::NOT_ACCEPTABLE,
            "this is a stream of events: Accept: text/event-stream",
        ));
    }
    let (outbox, messages) = new_stream();
    let (id, session) = shared.open(Some(outbox)).map_err(|full| no_session(&full))?;
    // The session is as long as its stream.
    let end = session.end_on_drop();
    // Relative: a gateway's prefix stays in front.
    let endpoint = sse::Event::default()
        .event("endpoint")
        .data(format!("messages?session_id={id}"));
    let rest = events_of(messages).map(move |event| {
        let _ = &end;
        event
    });
    Ok(sse(stream::once(async { endpoint }).chain(rest)))
}

#[derive(Deserialize)]
struct OldSession {
    session_id: String,
}

async fn messages(
    State(shared): State<Arc<Shared>>,
    Query(of): Query<OldSession>,
    request: Request,
) -> Result<Response, Refusal> {
    let (parts, body) = request.into_parts();
    let message = read(&parts.headers, body).await?;
    let session = find(&shared, Some(&of.session_id))?;
    let Some(answers) = session.stream.clone() else {
        return Err(over());
    };
    if session.send(Event::Message { message, answers }).await {
        Ok(StatusCode::ACCEPTED.into_response())
    } else {
        Err(over())
    }
}

async fn ready(State(shared): State<Arc<Shared>>) -> Response {
    let (problem, server) = {
        let health = shared.health();
        (health.problem.clone(), health.server.clone())
    };
    match problem {
        Some(reason) => {
            let body = json!({"status": "not ready", "reason": reason});
            (StatusCode::SERVICE_UNAVAILABLE, Json(body)).into_response()
        }
        None => Json(json!({
            "status": "ready",
            "server": server,
            "sessions": shared.sessions().len(),
        }))
        .into_response(),
    }
}
