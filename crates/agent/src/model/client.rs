//! A server of the Chat Completions API, over HTTP.

use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures::{Stream, StreamExt, stream};
use kaos_openai::{ChatChunk, ChatRequest, ChatResponse, ErrorResponse, StreamEvent, sse};
use kaos_seams::Seams;
use kaos_telemetry::TraceContext;
use reqwest::{
    Client, Response,
    header::{self, HeaderMap},
};
use tokio::time::{sleep, timeout};
use url::Url;

use super::{ChunkStream, Model, ModelError};
use crate::http_client::{self, endpoint, innermost, without_password};

/// How long the server may take to say that it is there.
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);
/// How large an answer may be, in bytes on the wire: 32 000 tokens in frames of 250 bytes.
const ANSWER_LIMIT: usize = 8 << 20;
/// How much of an error's body is read, in bytes, and how much of it is quoted, in characters.
const ERROR_BODY_LIMIT: usize = 64 << 10;
const ERROR_QUOTE: usize = 300;
/// How often a server that is busy is asked again, and how long it may ask to be left alone for that; a caller
/// would not wait longer either.
const RETRIES: u32 = 2;
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a server that is busy is left alone where it does not say.
const PAUSE: Duration = Duration::from_secs(1);

/// Asks one server.
#[derive(Debug)]
pub(crate) struct ModelClient {
    http: Client,
    /// The server's URL as it is configured, without a password: what errors name.
    name: String,
    completions: Url,
    models: Url,
    silence: Duration,
    seams: Seams,
}

impl ModelClient {
    /// A client of the server at `base`, which may stay silent for `silence`.
    pub(crate) fn new(base: &Url, silence: Duration, seams: Seams) -> Result<Self, reqwest::Error> {
        Ok(Self {
            http: http_client::for_server(&seams.dialer.locate(base))?,
            name: without_password(base),
            completions: endpoint(base, "chat/completions"),
            models: endpoint(base, "models"),
            silence,
            seams,
        })
    }

    fn url(&self) -> String {
        self.name.clone()
    }

    fn unreachable(&self, error: &reqwest::Error) -> ModelError {
        ModelError::Unreachable {
            url: self.url(),
            reason: innermost(error),
        }
    }

    fn silent(&self) -> ModelError {
        ModelError::Silent {
            url: self.url(),
            silence: self.silence,
        }
    }

    /// The bytes of an answer, with its deadline between two pieces and its limit.
    fn pieces(&self, response: Response) -> impl Stream<Item = Result<Bytes, ModelError>> + Send + use<> {
        let (silence, url) = (self.silence, self.url());
        stream::try_unfold((response.bytes_stream(), 0), move |(mut pieces, read)| {
            let url = url.clone();
            async move {
                match timeout(silence, pieces.next()).await {
                    Err(_) => Err(ModelError::Silent { url, silence }),
                    Ok(None) => Ok(None),
                    Ok(Some(Err(error))) => Err(ModelError::CutOff {
                        url,
                        reason: innermost(&error),
                    }),
                    Ok(Some(Ok(piece))) if read + piece.len() > ANSWER_LIMIT => Err(ModelError::TooLarge {
                        url,
                        limit: ANSWER_LIMIT,
                    }),
                    Ok(Some(Ok(piece))) => {
                        let read = read + piece.len();
                        Ok(Some((piece, (pieces, read))))
                    }
                }
            }
        })
    }

    async fn refused(&self, response: Response) -> ModelError {
        let status = response.status().as_u16();
        let retry_after = retry_after(response.headers());
        let mut body = BytesMut::new();
        let mut pieces = Box::pin(self.pieces(response));
        while body.len() < ERROR_BODY_LIMIT
            && let Some(Ok(piece)) = pieces.next().await
        {
            body.extend_from_slice(&piece);
        }
        ModelError::Refused {
            url: self.url(),
            status,
            said: ErrorResponse::describe(&body, ERROR_QUOTE),
            retry_after,
        }
    }

    /// Sends a request once.
    async fn send(&self, request: &ChatRequest, trace: &TraceContext) -> Result<Response, ModelError> {
        // The address is looked up each time: a Service may move.
        let url = self.seams.dialer.locate(&self.completions);
        let sent = self
            .http
            .post(url)
            .headers(trace.headers())
            .header(header::ACCEPT, "text/event-stream")
            .json(request)
            .send();
        match timeout(self.silence, sent).await {
            Err(_) => Err(self.silent()),
            Ok(Err(error)) => Err(self.unreachable(&error)),
            Ok(Ok(response)) if !response.status().is_success() => Err(self.refused(response).await),
            Ok(Ok(response)) => Ok(response),
        }
    }

    /// A whole answer, from a server that does not stream although it was asked to.
    async fn whole(&self, response: Response) -> Result<ChatChunk, ModelError> {
        let mut body = BytesMut::new();
        let mut pieces = Box::pin(self.pieces(response));
        while let Some(piece) = pieces.next().await {
            body.extend_from_slice(&piece?);
        }
        let answer: ChatResponse = serde_json::from_slice(&body).map_err(|error| ModelError::Unreadable {
            url: self.url(),
            reason: error.to_string(),
        })?;
        Ok(answer.into())
    }

    fn chunks(&self, response: Response) -> ChunkStream {
        let url = self.url();
        let mut pieces = Box::pin(self.pieces(response));
        Box::pin(async_stream::try_stream! {
            let mut decoder = sse::Decoder::new(ANSWER_LIMIT);
            let mut stopped = false;
            loop {
                let piece = match pieces.next().await {
                    Some(Ok(piece)) => piece,
                    // The answer was complete; how the connection ends does not matter.
                    Some(Err(ModelError::CutOff { .. })) if stopped => return,
                    Some(Err(error)) => Err(error)?,
                    None => break,
                };
                let events = decoder
                    .feed(&piece)
                    .map_err(|error| ModelError::Unreadable { url: url.clone(), reason: error.to_string() })?;
                for event in events {
                    match read(&event, &url)? {
                        None => return,
                        Some(chunk) => {
                            stopped |= chunk.choices.iter().any(|choice| choice.finish_reason.is_some());
                            yield chunk;
                        }
                    }
                }
            }
            // Some servers leave out the end of the last frame, or the last frame.
            if let Some(event) = decoder.finish() {
                match read(&event, &url) {
                    Ok(None) => return,
                    Ok(Some(chunk)) => {
                        stopped |= chunk.choices.iter().any(|choice| choice.finish_reason.is_some());
                        yield chunk;
                    }
                    // Cut off in the middle.
                    Err(ModelError::Unreadable { .. }) => {}
                    Err(error) => Err(error)?,
                }
            }
            if !stopped {
                let reason = "the connection closed before the answer was complete".to_owned();
                Err(ModelError::CutOff { url, reason })?;
            }
        })
    }
}

#[async_trait]
impl Model for ModelClient {
    async fn ask(&self, request: ChatRequest, trace: &TraceContext) -> Result<ChunkStream, ModelError> {
        let mut asked = 0;
        let response = loop {
            match self.send(&request, trace).await {
                Ok(response) => break response,
                Err(error) => {
                    let Some(pause) = pause(&error).filter(|_| asked < RETRIES) else {
                        return Err(error);
                    };
                    asked += 1;
                    tracing::info!(%error, seconds = pause.as_secs_f64(), "the model is asked again");
                    sleep(pause).await;
                }
            }
        };
        let kind = response
            .headers()
            .get(header::CONTENT_TYPE)
            .and_then(|value| value.to_str().ok());
        if kind.is_some_and(|kind| kind.to_ascii_lowercase().starts_with("application/json")) {
            let chunk = self.whole(response).await?;
            return Ok(Box::pin(stream::iter([Ok(chunk)])));
        }
        Ok(self.chunks(response))
    }

    async fn check(&self) -> Result<(), ModelError> {
        let url = self.seams.dialer.locate(&self.models);
        match timeout(CHECK_TIMEOUT, self.http.get(url).send()).await {
            Err(_) => Err(ModelError::Silent {
                url: self.url(),
                silence: CHECK_TIMEOUT,
            }),
            Ok(Err(error)) => Err(self.unreachable(&error)),
            // Any answer that is not a failure of the server shows that it is there; not every server lists
            // its models, or to everyone.
            Ok(Ok(response)) if response.status().is_server_error() => Err(self.refused(response).await),
            Ok(Ok(_)) => Ok(()),
        }
    }
}

/// How long to wait before a request is worth sending again; `None`: it is not.
fn pause(error: &ModelError) -> Option<Duration> {
    match error {
        ModelError::Refused {
            status: 429 | 503,
            retry_after,
            ..
        } => Some(retry_after.unwrap_or(PAUSE)).filter(|pause| *pause <= PATIENCE),
        _ => None,
    }
}

/// The seconds of a `Retry-After`. One that is a date comes from servers that want to be left alone for longer.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim().parse();
    seconds.ok().map(Duration::from_secs)
}

/// The chunk of an event, or `None` for the end.
fn read(event: &sse::Event, url: &str) -> Result<Option<ChatChunk>, ModelError> {
    let url = url.to_owned();
    match StreamEvent::parse(&event.data) {
        Ok(StreamEvent::Chunk(chunk)) => Ok(Some(*chunk)),
        Ok(StreamEvent::Done) => Ok(None),
        Ok(StreamEvent::Error(error)) => Err(ModelError::Failed {
            url,
            said: error.message,
        }),
        Err(error) => Err(ModelError::Unreadable {
            url,
            reason: error.to_string(),
        }),
    }
}
