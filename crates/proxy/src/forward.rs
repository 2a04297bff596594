//! One request to an upstream that speaks the OpenAI API, and its answer.

use std::{sync::Arc, time::Duration};

use axum::{
    body::Body,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use kaos_openai::{ChatChunk, ChatResponse, ErrorResponse, sse};
use kaos_seams::Dialer;
use serde_json::{Map, Value};
use url::Url;

use crate::{error::Failure, secret::Secret, stream};

/// How long the TCP and TLS handshakes may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long an upstream may think before it begins to answer; as LiteLLM's default.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(600);
/// The longest silence within an answer that has begun.
pub(crate) const IDLE_TIMEOUT: Duration = Duration::from_secs(120);
/// The largest answer that is not a stream, in bytes.
const MAX_ANSWER: usize = 64 * 1024 * 1024;
/// How much of an error that is not in the API's shape is quoted, in characters.
const QUOTED: usize = 300;

/// Sends requests to upstreams.
#[derive(Debug)]
pub(crate) struct Forwarder {
    dialer: Arc<dyn Dialer>,
    /// For names of the local node, which no proxy server knows.
    near: reqwest::Client,
    /// For everything else, through the proxy server that the environment may name.
    far: reqwest::Client,
}

impl Forwarder {
    pub(crate) fn new(dialer: Arc<dyn Dialer>) -> Result<Self, String> {
        let builder = || {
            reqwest::Client::builder()
                .connect_timeout(CONNECT_TIMEOUT)
                .read_timeout(ANSWER_TIMEOUT)
                // A redirect could carry the key elsewhere.
                .redirect(reqwest::redirect::Policy::none())
        };
        Ok(Self {
            dialer,
            near: builder().no_proxy().build().map_err(|error| error.to_string())?,
            far: builder().build().map_err(|error| error.to_string())?,
        })
    }

    /// Sends `request` for the upstream's `model` and passes its answer on.
    pub(crate) async fn forward(
        &self,
        mut request: Map<String, Value>,
        completions: &Url,
        key: Option<&Secret>,
        model: String,
    ) -> Result<Response, Failure> {
        let streaming = request.get("stream").and_then(Value::as_bool).unwrap_or(false);
        request.insert("model".to_owned(), Value::String(model));
        let located = self.dialer.locate(completions);
        let client = if located == *completions {
            &self.far
        } else {
            &self.near
        };
        let mut call = client.post(located).json(&request);
        if let Some(key) = key {
            call = call.bearer_auth(key.reveal());
        }
        let answer = match tokio::time::timeout(ANSWER_TIMEOUT, call.send()).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => return Err(unreachable(error, completions)),
            Err(_) => return Err(late(completions, "answer", ANSWER_TIMEOUT)),
        };
        let status = answer.status();
        if !status.is_success() {
            return Err(refused(answer, completions, key).await);
        }
        let is_stream = content_type(answer.headers()).starts_with("text/event-stream");
        if is_stream && streaming {
            return Ok(event_stream(Body::from_stream(stream::pass_on(
                answer.bytes_stream(),
                upstream_name(completions),
            ))));
        }
        let body = whole(answer, completions).await?;
        let parsed: ChatResponse = serde_json::from_slice(&body).map_err(|error| {
            let found = ErrorResponse::describe(&body, QUOTED);
            let host = upstream_name(completions);
            tracing::warn!(upstream = host, %error, "the upstream's answer is no chat completion");
            Failure::upstream(
                StatusCode::BAD_GATEWAY,
                format!("the upstream {host} answered with something that is no chat completion: {found}"),
            )
        })?;
        if streaming {
            return one_chunk(parsed);
        }
        Ok((StatusCode::OK, [(header::CONTENT_TYPE, "application/json")], body).into_response())
    }
}

/// The answer of a server that does not stream, for a caller who asked for a stream.
fn one_chunk(answer: ChatResponse) -> Result<Response, Failure> {
    let mut frames = sse::frame(&ChatChunk::from(answer))
        .map_err(|error| Failure::upstream(StatusCode::BAD_GATEWAY, error.to_string()))?;
    frames.extend_from_slice(sse::DONE_FRAME);
    Ok(event_stream(Body::from(frames)))
}

/// A streamed answer.
pub(crate) fn event_stream(body: Body) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-cache"),
        // Asks reverse proxies not to collect the stream before they pass it on.
        (header::HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    (StatusCode::OK, headers, body).into_response()
}

async fn whole(mut answer: reqwest::Response, completions: &Url) -> Result<Bytes, Failure> {
    let mut body = Vec::new();
    loop {
        let chunk = tokio::time::timeout(IDLE_TIMEOUT, answer.chunk()).await;
        match chunk.map_err(|_| late(completions, "go on with its answer", IDLE_TIMEOUT))? {
            Ok(None) => return Ok(body.into()),
            Ok(Some(chunk)) if body.len() + chunk.len() <= MAX_ANSWER => body.extend_from_slice(&chunk),
            Ok(Some(_)) => {
                let limit = MAX_ANSWER / 1024 / 1024;
                let host = upstream_name(completions);
                let message = format!("the upstream {host} answered with more than {limit} MiB");
                return Err(Failure::upstream(StatusCode::BAD_GATEWAY, message));
            }
            Err(error) => return Err(unreachable(error, completions)),
        }
    }
}

/// An upstream's error with its status, in the API's shape.
async fn refused(answer: reqwest::Response, completions: &Url, key: Option<&Secret>) -> Failure {
    let status = answer.status();
    let retry_after = answer.headers().get(header::RETRY_AFTER).cloned();
    let host = upstream_name(completions);
    if !status.is_client_error() && !status.is_server_error() {
        let message = format!("the upstream {host} answered with the status {status}; correct its api_base");
        return Failure::upstream(StatusCode::BAD_GATEWAY, message);
    }
    let body = match whole(answer, completions).await {
        Ok(body) => body,
        Err(failure) => return failure,
    };
    let text = String::from_utf8_lossy(&body);
    let text = key.map_or_else(|| text.to_string(), |key| key.redact(&text));
    let shaped = serde_json::from_str::<ErrorResponse>(&text)
        .ok()
        .filter(|shaped| !shaped.error.message.is_empty());
    let body = shaped.unwrap_or_else(|| {
        let said = ErrorResponse::describe(text.as_bytes(), QUOTED);
        let said = if said.is_empty() {
            "without a message".to_owned()
        } else {
            said
        };
        ErrorResponse::new(
            crate::error::UPSTREAM,
            format!("the upstream {host} answered {status}: {said}"),
        )
    });
    tracing::warn!(
        upstream = host,
        status = status.as_u16(),
        message = body.error.message,
        "the upstream refused"
    );
    Failure::passed_on(status, body, retry_after)
}

fn unreachable(error: reqwest::Error, completions: &Url) -> Failure {
    let host = upstream_name(completions);
    if error.is_timeout() {
        let what = if error.is_connect() {
            "accept a connection"
        } else {
            "answer"
        };
        let limit = if error.is_connect() {
            CONNECT_TIMEOUT
        } else {
            ANSWER_TIMEOUT
        };
        return late(completions, what, limit);
    }
    let connecting = error.is_connect();
    // The URL is said once, and without what a query may carry.
    let error = error.without_url();
    let mut reason = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(current) = cause {
        reason = current.to_string();
        cause = current.source();
    }
    let what = if connecting {
        "cannot be reached"
    } else {
        "broke off"
    };
    tracing::warn!(upstream = host, reason, "the upstream {what}");
    Failure::upstream(
        StatusCode::BAD_GATEWAY,
        format!("the upstream {host} {what}: {reason}"),
    )
}

fn late(completions: &Url, what: &str, limit: Duration) -> Failure {
    let host = upstream_name(completions);
    let message = format!("the upstream {host} did not {what} within {} s", limit.as_secs());
    tracing::warn!(
        upstream = host,
        seconds = limit.as_secs(),
        "the upstream did not {what} in time"
    );
    Failure::upstream(StatusCode::GATEWAY_TIMEOUT, message)
}

/// Host and port, for messages.
fn upstream_name(completions: &Url) -> String {
    let host = completions.host_str().unwrap_or_default();
    completions
        .port()
        .map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

fn content_type(headers: &HeaderMap) -> &str {
    headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default()
}
