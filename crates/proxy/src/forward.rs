//! One request to one upstream, and its answer.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use axum::{
    body::Body,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use kaos_openai::{ChatChunk, ChatResponse, ErrorResponse, sse};
use kaos_seams::Seams;
use serde_json::Value;
use tokio::time::{Instant, timeout_at};
use url::Url;

use crate::{
    client::{CONNECT_TIMEOUT, Transport},
    config::Limits,
    error::Failure,
    provider::{Origin, Remote},
    request::{Operation, Request},
    stream::{Form, Passage},
    watched::Watched,
};

/// The longest silence within an answer that has begun.
pub(crate) const IDLE_TIMEOUT: Duration = Duration::from_secs(120);
/// The largest answer that is not a stream, in bytes.
const MAX_ANSWER: usize = 64 * 1024 * 1024;
/// How much of an error that is not in the API's shape is quoted, in characters.
const QUOTED: usize = 300;

/// Why an upstream gave no answer.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) failure: Failure,
    pub(crate) cause: Cause,
}

/// Whose fault it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The request is wrong: nobody else would take it either.
    Request,
    /// The upstream answered with this status.
    Status(StatusCode),
    /// It gave no answer, too late a one, or one that cannot be read.
    Upstream,
}

/// Where a request goes.
#[derive(Debug)]
pub(crate) struct Destination<'a> {
    pub(crate) remote: &'a Remote,
    pub(crate) transport: &'a Transport,
    /// The name that the model has there.
    pub(crate) model: &'a str,
    pub(crate) limits: Limits,
    /// Whether the tokens of its answers have to be known, those of streams included.
    pub(crate) counts_tokens: bool,
}

/// Sends requests to upstreams.
#[derive(Debug)]
pub(crate) struct Forwarder {
    seams: Seams,
    /// For names of the local node.
    near: reqwest::Client,
    /// For everything else, with what it was set up with.
    far: Mutex<(Transport, reqwest::Client)>,
}

impl Forwarder {
    pub(crate) fn new(seams: Seams, transport: &Transport) -> Result<Self, String> {
        let far = transport.far().or_else(|error| {
            // A machine without certificates can still ask upstreams that have none.
            tracing::warn!(
                error,
                "there are no trusted certificates, so that no upstream can be asked by HTTPS; set SSL_CERT_FILE"
            );
            Transport::near()
        })?;
        Ok(Self {
            seams,
            near: Transport::near()?,
            far: Mutex::new((transport.clone(), far)),
        })
    }

    /// The client for `url`, and where it is.
    fn client(&self, url: Url, transport: &Transport) -> (reqwest::Client, Url) {
        let located = self.seams.dialer.locate(&url);
        if located != url {
            return (self.near.clone(), located);
        }
        let mut far = self.far.lock().unwrap_or_else(PoisonError::into_inner);
        // The configuration has changed, which it rarely does.
        if far.0 != *transport
            && let Ok(client) = transport.far()
        {
            *far = (transport.clone(), client);
        }
        (far.1.clone(), located)
    }

    /// Sends `request` there and passes the answer on.
    pub(crate) async fn forward(
        &self,
        request: &Request<'_>,
        to: &Destination<'_>,
        watched: &mut Watched,
    ) -> Result<Response, Failed> {
        let Destination {
            remote,
            transport,
            model,
            limits,
            ..
        } = *to;
        let shows_usage = request.include_usage();
        let telling = (request.stream && to.counts_tokens && !shows_usage).then(|| request.telling_usage());
        let asked = telling.as_ref().unwrap_or(request);
        let call = remote.call(asked, model).map_err(|failure| Failed {
            failure,
            cause: Cause::Request,
        })?;
        let limit = if request.stream {
            limits.first
        } else {
            limits.whole
        };
        let attempt = Attempt {
            remote,
            request,
            host: host(&remote.base),
            limit,
            deadline: Instant::now() + limit,
        };
        let (client, url) = self.client(call.url, transport);
        let mut headers = call.headers;
        watched.inject(&mut headers);
        let sent = client.post(url).headers(headers).body(call.body).send();
        let answer = match timeout_at(attempt.deadline, sent).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => return Err(attempt.unreachable(error)),
            Err(_) => return Err(attempt.late("answer", attempt.limit)),
        };
        if !answer.status().is_success() {
            return Err(attempt.refused(answer).await);
        }
        let origin = || Origin {
            id: format!("{}-{}", request.operation.prefix(), self.seams.random.uuid()),
            created: self.seams.clock.now().as_second(),
            model: model.to_owned(),
        };
        let is_stream = content_type(answer.headers()).starts_with("text/event-stream");
        if is_stream && request.stream {
            let translator = remote.translator(origin);
            // What was not asked for is not passed on; an upstream that tells it all the same is left as it is.
            let hides_usage = !shows_usage && (telling.is_some() || translator.is_some());
            let form = Form {
                operation: request.operation,
                translator,
                hides_usage,
            };
            let (name, key) = (attempt.host.clone(), remote.key.clone());
            let mut passage = Passage::new(answer.bytes_stream(), name, key, form);
            // As long as nothing was passed on, somebody else can still be asked.
            match timeout_at(attempt.deadline, passage.begin()).await {
                Ok(Ok(())) => {}
                Ok(Err(said)) => {
                    return Err(attempt.failed(Failure::passed_on(StatusCode::BAD_GATEWAY, *said, None)));
                }
                Err(_) => return Err(attempt.late("begin to answer", attempt.limit)),
            }
            let context = watched.context();
            let frames = passage.frames(watched.streamed());
            return Ok(event_stream(Body::from_stream(context.attach(frames))));
        }
        let body = attempt.whole(answer).await?;
        let answer = remote.answer(request, origin, body.clone()).map_err(|error| {
            let found = ErrorResponse::describe(&body, QUOTED);
            let (host, what) = (&attempt.host, request.operation.answer());
            tracing::warn!(upstream = host, %error, "the upstream's answer is no {what}");
            attempt.failed(Failure::upstream(
                StatusCode::BAD_GATEWAY,
                format!("the upstream {host} answered with something that is no {what}: {found}"),
            ))
        })?;
        if let Some(tokens) = answer.usage {
            watched.tokens(tokens);
        }
        if request.stream {
            return one_chunk(request.operation, &answer.body).map_err(|failure| attempt.failed(failure));
        }
        Ok((
            StatusCode::OK,
            [(header::CONTENT_TYPE, "application/json")],
            answer.body,
        )
            .into_response())
    }
}

/// The answer of a server that does not stream, for a caller who asked for a stream.
fn one_chunk(operation: Operation, answer: &[u8]) -> Result<Response, Failure> {
    let written = |error: serde_json::Error| Failure::upstream(StatusCode::BAD_GATEWAY, error.to_string());
    let mut frames = match operation {
        Operation::Chat => {
            let answer: ChatResponse = serde_json::from_slice(answer).map_err(written)?;
            sse::frame(&ChatChunk::from(answer))
        }
        // A chunk of this API has the shape of the whole.
        Operation::Completions | Operation::Embeddings => {
            sse::frame(&serde_json::from_slice::<Value>(answer).map_err(written)?)
        }
    }
    .map_err(written)?;
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

struct Attempt<'a> {
    remote: &'a Remote,
    request: &'a Request<'a>,
    /// Host and port, for messages.
    host: String,
    limit: Duration,
    deadline: Instant,
}

impl Attempt<'_> {
    async fn whole(&self, mut answer: reqwest::Response) -> Result<Bytes, Failed> {
        // Most answers come in one piece, which is not copied.
        let mut first: Option<Bytes> = None;
        let mut body = Vec::new();
        loop {
            let silent = Instant::now() + IDLE_TIMEOUT;
            let chunk = timeout_at(silent.min(self.deadline), answer.chunk()).await;
            let chunk = match chunk {
                Ok(chunk) => chunk.map_err(|error| self.unreachable(error))?,
                Err(_) if silent < self.deadline => {
                    return Err(self.late("go on with its answer", IDLE_TIMEOUT));
                }
                Err(_) => return Err(self.late("finish its answer", self.limit)),
            };
            match chunk {
                None if body.is_empty() => return Ok(first.unwrap_or_default()),
                None => return Ok(body.into()),
                Some(chunk) => {
                    let known = first.as_ref().map_or(body.len(), Bytes::len);
                    if known + chunk.len() > MAX_ANSWER {
                        let limit = MAX_ANSWER / 1024 / 1024;
                        let message =
                            format!("the upstream {} answered with more than {limit} MiB", self.host);
                        return Err(self.failed(Failure::upstream(StatusCode::BAD_GATEWAY, message)));
                    }
                    match first.take() {
                        None if body.is_empty() => first = Some(chunk),
                        before => {
                            body.extend_from_slice(&before.unwrap_or_default());
                            body.extend_from_slice(&chunk);
                        }
                    }
                }
            }
        }
    }

    /// An upstream's error with its status, in the API's shape.
    async fn refused(&self, answer: reqwest::Response) -> Failed {
        let status = answer.status();
        let host = &self.host;
        if !status.is_client_error() && !status.is_server_error() {
            let message =
                format!("the upstream {host} answered with the status {status}; correct its api_base");
            return self.failed(Failure::upstream(StatusCode::BAD_GATEWAY, message));
        }
        let headers = answer.headers();
        let wait = headers.get(header::RETRY_AFTER).cloned().or_else(|| {
            let milliseconds: u64 = headers.get("retry-after-ms")?.to_str().ok()?.parse().ok()?;
            Some(HeaderValue::from(milliseconds.div_ceil(1000)))
        });
        let body = match self.whole(answer).await {
            Ok(body) => body,
            Err(failed) => return failed,
        };
        let text = String::from_utf8_lossy(&body);
        let text = self
            .remote
            .key
            .as_ref()
            .map_or_else(|| text.to_string(), |key| key.redact(&text));
        let said = self.remote.refusal(status, &text);
        let body = said.body.unwrap_or_else(|| {
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
            model = self.request.model,
            "the upstream refused"
        );
        Failed {
            failure: Failure::passed_on(said.status, body, wait.or(said.retry_after)),
            cause: Cause::Status(said.status),
        }
    }

    fn failed(&self, failure: Failure) -> Failed {
        Failed {
            failure,
            cause: Cause::Upstream,
        }
    }

    fn unreachable(&self, error: reqwest::Error) -> Failed {
        if error.is_timeout() {
            return self.late("accept a connection", CONNECT_TIMEOUT);
        }
        let host = &self.host;
        let what = if error.is_connect() {
            "cannot be reached"
        } else {
            "broke off"
        };
        // The URL is said once, and without what a query may carry.
        let error = error.without_url();
        let mut reason = error.to_string();
        let mut cause = std::error::Error::source(&error);
        while let Some(current) = cause {
            reason = current.to_string();
            cause = current.source();
        }
        tracing::warn!(upstream = host, reason, "the upstream {what}");
        self.failed(Failure::upstream(
            StatusCode::BAD_GATEWAY,
            format!("the upstream {host} {what}: {reason}"),
        ))
    }

    fn late(&self, what: &str, limit: Duration) -> Failed {
        let host = &self.host;
        let seconds = limit.as_secs_f64();
        let message = format!("the upstream {host} did not {what} within {seconds} s");
        tracing::warn!(upstream = host, seconds, "the upstream did not {what} in time");
        self.failed(Failure::upstream(StatusCode::GATEWAY_TIMEOUT, message))
    }
}

/// Host and port, for messages.
fn host(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port()
        .map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

fn content_type(headers: &HeaderMap) -> &str {
    headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default()
}
