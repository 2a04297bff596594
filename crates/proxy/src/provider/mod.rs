//! The APIs that upstreams speak, translated from OpenAI's and back. Pure: one module for each API turns a
//! request into a [`Call`], an answer into OpenAI's, and the events of a stream into OpenAI's chunks.

mod anthropic;
mod azure;
mod gemini;
mod images;
pub(crate) mod known;
mod parameters;
mod turns;

use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use bytes::Bytes;
use kaos_openai::{ChatChunk, ChatResponse, ErrorResponse, Usage};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::value::RawValue;
use url::Url;

use crate::{
    completions,
    error::Failure,
    request::{Operation, Request},
    secret::Secret,
};
use known::{Api, Known};
pub(crate) use parameters::OPENAI as DEFAULTS;

/// An upstream and what it has to be told.
#[derive(Clone, Debug)]
pub(crate) struct Remote {
    pub(crate) provider: &'static Known,
    /// What the paths of its API are added to; without a slash at its end.
    pub(crate) base: Url,
    pub(crate) key: Option<Secret>,
    /// Of Azure OpenAI.
    pub(crate) api_version: Option<String>,
    /// Sent with each request, the key included.
    pub(crate) headers: HeaderMap,
    /// Fields of requests that do not say them themselves.
    pub(crate) defaults: Vec<(String, Box<RawValue>)>,
    /// Whether parameters that its API has not are left out; otherwise they are an error.
    pub(crate) drop_params: bool,
}

/// One HTTP request to an upstream: a POST with a JSON body.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) url: Url,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

/// What an answer that is put together here says beside the model's words.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    /// For upstreams that name none.
    pub(crate) id: String,
    /// In seconds since the epoch.
    pub(crate) created: i64,
    pub(crate) model: String,
}

/// An answer in OpenAI's shape.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) body: Bytes,
    pub(crate) usage: Option<Tokens>,
}

/// How many tokens an answer took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct Tokens {
    #[serde(default)]
    pub(crate) prompt_tokens: u64,
    #[serde(default)]
    pub(crate) completion_tokens: u64,
}

impl From<&Usage> for Tokens {
    fn from(usage: &Usage) -> Self {
        Self {
            prompt_tokens: usage.prompt_tokens,
            completion_tokens: usage.completion_tokens,
        }
    }
}

/// What an upstream said instead of an answer.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    pub(crate) body: Option<ErrorResponse>,
    /// How long it asks to wait, where the body says so.
    pub(crate) retry_after: Option<HeaderValue>,
}

/// A part of a translated stream.
#[derive(Debug, PartialEq)]
pub(crate) enum Piece {
    Chunk(Box<ChatChunk>),
    /// The answer is complete.
    Done,
    Error(Box<ErrorResponse>),
}

/// Translates the events of one stream.
pub(crate) trait Translate: Send {
    /// What the data of an event says.
    ///
    /// # Errors
    /// What is wrong with it, after `sent `.
    fn event(&mut self, data: &str) -> Result<Vec<Piece>, String>;

    /// What the end of the stream says where no event has said it; nothing if the answer is not complete.
    fn end(&mut self) -> Vec<Piece>;
}

impl Remote {
    /// The request for the upstream's `model`.
    ///
    /// # Errors
    /// When its API cannot express what is asked, as the answer to give.
    pub(crate) fn call(&self, request: &Request<'_>, model: &str) -> Result<Call, Failure> {
        match self.provider.api {
            Api::Anthropic => anthropic::call(self, request, model),
            Api::Gemini => gemini::call(self, request, model),
            Api::Azure => Ok(azure::call(self, request, model)),
            Api::OpenAi | Api::Ollama | Api::Mock => Ok(self.json(
                self.at(request.operation.path()),
                request.body(Some(model), &self.defaults),
            )),
        }
    }

    /// The upstream's answer as OpenAI's.
    ///
    /// # Errors
    /// Why it is none.
    pub(crate) fn answer(
        &self,
        request: &Request<'_>,
        origin: impl FnOnce() -> Origin,
        body: Bytes,
    ) -> Result<Answer, String> {
        let whole_chat = |response: ChatResponse| -> Result<Answer, String> {
            let usage = response.usage.as_ref().map(Tokens::from);
            let body = match request.operation {
                Operation::Completions => serde_json::to_vec(&completions::answer(response)),
                Operation::Chat | Operation::Embeddings => serde_json::to_vec(&response),
            };
            let body = body.map_err(|error| error.to_string())?.into();
            Ok(Answer { body, usage })
        };
        match self.provider.api {
            Api::Anthropic => anthropic::answer(&origin(), &body).and_then(whole_chat),
            Api::Gemini if request.operation == Operation::Embeddings => {
                gemini::embeddings(request, &origin(), &body)
            }
            Api::Gemini => gemini::answer(&origin(), &body).and_then(whole_chat),
            Api::OpenAi | Api::Azure | Api::Ollama | Api::Mock => {
                let usage = whole(request.operation, &body)?;
                Ok(Answer { body, usage })
            }
        }
    }

    /// What translates its streams; `None` where they are OpenAI's already. The last chunk carries the usage.
    pub(crate) fn translator(&self, origin: impl FnOnce() -> Origin) -> Option<Box<dyn Translate>> {
        match self.provider.api {
            Api::Anthropic => Some(Box::new(anthropic::Stream::new(origin()))),
            Api::Gemini => Some(Box::new(gemini::Stream::new(origin()))),
            Api::OpenAi | Api::Azure | Api::Ollama | Api::Mock => None,
        }
    }

    /// The upstream's error as OpenAI's.
    pub(crate) fn refusal(&self, status: StatusCode, body: &str) -> Refusal {
        match self.provider.api {
            Api::Gemini => gemini::refusal(status, body),
            Api::Anthropic => anthropic::refusal(status, body),
            Api::OpenAi | Api::Azure | Api::Ollama | Api::Mock => Refusal {
                status,
                body: shaped(body),
                retry_after: None,
            },
        }
    }

    /// The base with a path after it.
    fn at(&self, path: &str) -> Url {
        let mut url = self.base.clone();
        url.set_path(&format!("{}{path}", self.base.path().trim_end_matches('/')));
        url
    }

    fn json(&self, url: Url, body: Vec<u8>) -> Call {
        let mut headers = self.headers.clone();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Call { url, headers, body }
    }

    /// What its API has not.
    fn has_no(&self, operation: Operation) -> Failure {
        Failure::invalid(
            StatusCode::BAD_REQUEST,
            format!(
                "the provider {} has no {}; ask a model of another one",
                self.provider.name,
                operation.what()
            ),
        )
    }
}

/// The header that carries a key to this API.
pub(crate) fn key_header(api: Api, key: &Secret) -> Option<(HeaderName, HeaderValue)> {
    let (name, value) = match api {
        Api::OpenAi | Api::Ollama | Api::Mock => (header::AUTHORIZATION, format!("Bearer {}", key.reveal())),
        Api::Azure => (HeaderName::from_static("api-key"), key.reveal().to_owned()),
        Api::Anthropic => (HeaderName::from_static("x-api-key"), key.reveal().to_owned()),
        Api::Gemini => (HeaderName::from_static("x-goog-api-key"), key.reveal().to_owned()),
    };
    let mut value = HeaderValue::from_str(&value).ok()?;
    value.set_sensitive(true);
    Some((name, value))
}

/// An error that is in OpenAI's shape, with a message.
fn shaped(body: &str) -> Option<ErrorResponse> {
    serde_json::from_str::<ErrorResponse>(body)
        .ok()
        .filter(|shaped| !shaped.error.message.is_empty())
}

/// Whether a body is an answer of OpenAI's API, and the tokens it took. Only as much of it is read.
fn whole(operation: Operation, body: &[u8]) -> Result<Option<Tokens>, String> {
    #[derive(Deserialize)]
    struct Whole<'a> {
        #[serde(default)]
        choices: Option<Vec<IgnoredAny>>,
        #[serde(default)]
        data: Option<Vec<IgnoredAny>>,
        #[serde(borrow)]
        usage: Option<&'a RawValue>,
    }
    // What is not looked at is passed on, and has to be a text, too.
    let body = std::str::from_utf8(body).map_err(|error| error.to_string())?;
    let answer: Whole<'_> = serde_json::from_str(body).map_err(|error| error.to_string())?;
    let (list, name) = match operation {
        Operation::Chat | Operation::Completions => (answer.choices, "choices"),
        Operation::Embeddings => (answer.data, "data"),
    };
    if list.is_none() {
        return Err(format!("it has no {name}"));
    }
    // Counts of another form are the caller's to read.
    Ok(answer
        .usage
        .and_then(|usage| serde_json::from_str(usage.get()).ok()))
}

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
