//! A server of the Chat Completions API, over HTTP.

use std::{error::Error as _, time::Duration};

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures::{Stream, StreamExt, stream};
use kaos_openai::{ChatChunk, ChatRequest, ChatResponse, ErrorResponse, StreamEvent, sse};
use kaos_seams::Seams;
use reqwest::{Client, Response, header};
use tokio::time::timeout;
use url::Url;

use super::{ChunkStream, Model, ModelError};

/// How long a connection may take to be established.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the server may take to say that it is there.
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);
/// How large an answer may be, in bytes on the wire: 32 000 tokens in frames of 250 bytes.
const ANSWER_LIMIT: usize = 8 << 20;
/// How much of an error's body is read, in bytes, and how much of it is quoted, in characters.
const ERROR_BODY_LIMIT: usize = 64 << 10;
const ERROR_QUOTE: usize = 300;

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
        let mut http = Client::builder().connect_timeout(CONNECT_TIMEOUT);
        if is_near(&seams.dialer.locate(base)) {
            http = http.no_proxy();
        }
        Ok(Self {
            http: http.build()?,
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
    async fn ask(&self, request: ChatRequest) -> Result<ChunkStream, ModelError> {
        // The address is looked up each time: a Service may move.
        let url = self.seams.dialer.locate(&self.completions);
        let sent = self
            .http
            .post(url)
            .header(header::ACCEPT, "text/event-stream")
            .json(&request)
            .send();
        let response = match timeout(self.silence, sent).await {
            Err(_) => return Err(self.silent()),
            Ok(Err(error)) => return Err(self.unreachable(&error)),
            Ok(Ok(response)) => response,
        };
        if !response.status().is_success() {
            return Err(self.refused(response).await);
        }
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

/// `path` below the `/v1` of `base`, whether or not `base` ends with it.
fn endpoint(base: &Url, path: &str) -> Url {
    let mut url = base.clone();
    let prefix = base.path().trim_end_matches('/');
    let version = if prefix.ends_with("/v1") { "" } else { "/v1" };
    url.set_path(&format!("{prefix}{version}/{path}"));
    url
}

fn without_password(url: &Url) -> String {
    let mut url = url.clone();
    // Both only fail for URLs that have no host, which cannot have a password either.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.to_string()
}

/// Whether a server is on this machine or in this cluster, where the proxy of the environment, which leads to
/// the internet, does not reach it.
fn is_near(url: &Url) -> bool {
    match url.host() {
        Some(url::Host::Ipv4(address)) => address.is_loopback() || address.is_private(),
        Some(url::Host::Ipv6(address)) => address.is_loopback() || address.is_unique_local(),
        Some(url::Host::Domain(name)) => {
            !name.contains('.') || name.ends_with(".svc") || name.contains(".svc.")
        }
        None => false,
    }
}

/// What reqwest's errors hide behind "error sending request".
fn innermost(error: &reqwest::Error) -> String {
    if error.is_connect() && error.is_timeout() {
        return format!("no connection within {} s", CONNECT_TIMEOUT.as_secs());
    }
    let mut cause = error.source();
    let mut text = error.to_string();
    while let Some(inner) = cause {
        text = inner.to_string();
        cause = inner.source();
    }
    text
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn the_version_is_in_the_path_once() {
        let endpoint = |base: &str| endpoint(&Url::parse(base).unwrap(), "models").to_string();
        assert_eq!(endpoint("http://m:8000"), "http://m:8000/v1/models");
        assert_eq!(endpoint("http://m:8000/"), "http://m:8000/v1/models");
        assert_eq!(endpoint("http://m:8000/v1"), "http://m:8000/v1/models");
        assert_eq!(
            endpoint("http://m:8000/openai/v1/"),
            "http://m:8000/openai/v1/models"
        );
        assert_eq!(endpoint("http://m:8000/api"), "http://m:8000/api/v1/models");
    }

    #[test]
    fn errors_name_the_server_without_its_password() {
        let url = Url::parse("https://me:secret@models.example.com/v1").unwrap();
        assert_eq!(without_password(&url), "https://models.example.com/v1");
    }

    #[test]
    fn servers_nearby_are_reached_without_a_proxy() {
        let near = |url: &str| is_near(&Url::parse(url).unwrap());
        for url in [
            "http://127.0.0.1:1",
            "http://[::1]:1",
            "http://localhost",
            "http://m.default.svc.example.org:8000",
        ] {
            assert!(near(url), "{url}");
        }
        for url in ["https://api.openai.com/v1", "http://8.8.8.8"] {
            assert!(!near(url), "{url}");
        }
    }
}
