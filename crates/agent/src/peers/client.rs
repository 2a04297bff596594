//! Another agent, over HTTP.

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use kaos_openai::{ChatRequest, ChatResponse, ErrorResponse};
use kaos_seams::Seams;
use kaos_telemetry::TraceContext;
use reqwest::{Client, RequestBuilder, Response};
use serde::Deserialize;
use url::Url;

use super::{Card, Hop, PeerError, PeerSource};
use crate::{
    config::PeerAgent,
    http_client::{self, endpoint, innermost, without_password},
};

/// How large what a peer says of itself may be, in bytes. It lists the schemas of all its tools.
const CARD_LIMIT: usize = 4 << 20;
/// How large an answer may be, in bytes.
const ANSWER_LIMIT: usize = 8 << 20;
/// How much of an error's body is read, in bytes, and how much of it is quoted, in characters.
const ERROR_BODY_LIMIT: usize = 64 << 10;
const ERROR_QUOTE: usize = 300;

/// Asks one agent.
#[derive(Debug)]
pub(crate) struct PeerClient {
    http: Client,
    name: String,
    /// The name of the agent that asks.
    own: String,
    /// The peer's URL as it is configured, without a password: what errors name.
    url: String,
    card: Url,
    completions: Url,
    seams: Seams,
}

impl PeerClient {
    /// A client of `peer` for the agent `own`.
    pub(crate) fn new(peer: &PeerAgent, own: &str, seams: Seams) -> Result<Self, reqwest::Error> {
        let base = base(&peer.url);
        Ok(Self {
            http: http_client::for_server(&seams.dialer.locate(&base))?,
            name: peer.name.clone(),
            own: own.to_owned(),
            url: without_password(&base),
            card: below(&base, CARD_PATH),
            completions: endpoint(&base, "chat/completions"),
            seams,
        })
    }

    async fn send(&self, request: RequestBuilder) -> Result<Response, PeerError> {
        let response = request.send().await.map_err(|error| self.unreachable(&error))?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status().as_u16();
        // A body that cannot be read, or is no message for its size, leaves the status to tell.
        let body = self.body(response, ERROR_BODY_LIMIT).await.unwrap_or_default();
        Err(PeerError::Refused {
            url: self.url.clone(),
            status,
            said: ErrorResponse::describe(&body, ERROR_QUOTE),
        })
    }

    async fn body(&self, response: Response, limit: usize) -> Result<Bytes, PeerError> {
        let mut pieces = response.bytes_stream();
        let mut body = BytesMut::new();
        while let Some(piece) = pieces.next().await {
            body.extend_from_slice(&piece.map_err(|error| self.unreachable(&error))?);
            if body.len() > limit {
                let url = self.url.clone();
                return Err(PeerError::TooLarge { url, limit });
            }
        }
        Ok(body.freeze())
    }

    async fn json<T: for<'de> Deserialize<'de>>(
        &self,
        response: Response,
        limit: usize,
    ) -> Result<T, PeerError> {
        let body = self.body(response, limit).await?;
        serde_json::from_slice(&body).map_err(|error| self.unreadable(error.to_string()))
    }

    fn unreachable(&self, error: &reqwest::Error) -> PeerError {
        PeerError::Unreachable {
            url: self.url.clone(),
            reason: innermost(error),
        }
    }

    fn unreadable(&self, reason: String) -> PeerError {
        PeerError::Unreadable {
            url: self.url.clone(),
            reason,
        }
    }
}

#[async_trait]
impl PeerSource for PeerClient {
    fn name(&self) -> &str {
        &self.name
    }

    async fn card(&self) -> Result<Card, PeerError> {
        #[derive(Deserialize)]
        struct Read {
            name: String,
            #[serde(default)]
            description: Option<String>,
        }
        // The address is looked up each time: a Service may move.
        let url = self.seams.dialer.locate(&self.card);
        let response = self.send(self.http.get(url)).await?;
        let card: Read = self.json(response, CARD_LIMIT).await?;
        Ok(Card {
            name: card.name,
            description: card.description.unwrap_or_default(),
        })
    }

    async fn ask(&self, request: &ChatRequest, hop: &Hop, trace: &TraceContext) -> Result<String, PeerError> {
        let url = self.seams.dialer.locate(&self.completions);
        let sent = self
            .http
            .post(url)
            .headers(hop.headers(&self.own))
            .headers(trace.headers())
            .json(request);
        let response = self.send(sent).await?;
        let answer: ChatResponse = self.json(response, ANSWER_LIMIT).await?;
        let choice = answer.choices.into_iter().next();
        choice
            .map(|choice| choice.message.text())
            .ok_or_else(|| self.unreadable("it has no choices".to_owned()))
    }
}

const CARD_PATH: &str = "/.well-known/agent";

/// The URL of an agent, which may be given as that of its card.
fn base(url: &Url) -> Url {
    let mut base = url.clone();
    let path = url.path().trim_end_matches('/');
    let path = path.strip_suffix(".json").unwrap_or(path);
    if let Some(prefix) = path.strip_suffix(CARD_PATH) {
        base.set_path(prefix);
    }
    base
}

fn below(base: &Url, path: &str) -> Url {
    let mut url = base.clone();
    url.set_path(&format!("{}{path}", base.path().trim_end_matches('/')));
    url
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_is_found_by_its_url_or_that_of_its_card() {
        for given in [
            "http://a:8000",
            "http://a:8000/",
            "http://a:8000/.well-known/agent",
            "http://a:8000/.well-known/agent.json",
        ] {
            let base = base(&Url::parse(given).unwrap());
            assert_eq!(
                below(&base, CARD_PATH).as_str(),
                "http://a:8000/.well-known/agent",
                "{given}"
            );
            assert_eq!(
                endpoint(&base, "chat/completions").as_str(),
                "http://a:8000/v1/chat/completions",
                "{given}"
            );
        }
        let base = base(&Url::parse("http://gw/agents/a").unwrap());
        assert_eq!(
            below(&base, CARD_PATH).as_str(),
            "http://gw/agents/a/.well-known/agent"
        );
    }
}
