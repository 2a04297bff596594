//! Anthropic's Messages API, <https://docs.claude.com/en/api/messages>.

mod answer;
mod request;
mod stream;

use axum::http::{HeaderValue, StatusCode};
use kaos_openai::{ErrorResponse, FinishReason, Usage};
use serde::Deserialize;
use serde_json::json;

use super::{Call, Refusal, Remote, shaped};
use crate::{
    error::Failure,
    request::{Operation, Request},
};

pub(super) use answer::answer;
pub(super) use stream::Stream;

/// The version of the API that this module speaks.
const VERSION: &str = "2023-06-01";
/// What a server that is too busy answers; OpenAI's clients know it as 503.
const OVERLOADED: u16 = 529;

pub(super) fn call(remote: &Remote, request: &Request<'_>, model: &str) -> Result<Call, Failure> {
    if request.operation == Operation::Embeddings {
        return Err(remote.has_no(request.operation));
    }
    let body = request::body(remote, request.chat(&remote.defaults)?, model)?;
    // Both forms of the base are in use: with and without the version of the API.
    let path = match remote.base.path().trim_end_matches('/') {
        versioned if versioned.ends_with("/v1") => "/messages",
        _ => "/v1/messages",
    };
    let mut call = remote.json(remote.at(path), body.to_string().into_bytes());
    call.headers
        .entry("anthropic-version")
        .or_insert(HeaderValue::from_static(VERSION));
    Ok(call)
}

/// `{"type": "error", "error": {"type": …, "message": …}}`, which is nearly OpenAI's.
pub(super) fn refusal(status: StatusCode, body: &str) -> Refusal {
    let status = match status.as_u16() {
        OVERLOADED => StatusCode::SERVICE_UNAVAILABLE,
        _ => status,
    };
    Refusal {
        status,
        body: shaped(body).map(|said| plain(said.error.kind, said.error.message)),
        retry_after: None,
    }
}

fn plain(kind: Option<String>, message: String) -> ErrorResponse {
    ErrorResponse::new(kind.unwrap_or_else(|| crate::error::UPSTREAM.to_owned()), message)
}

fn finish(reason: &str) -> FinishReason {
    match reason {
        "max_tokens" | "model_context_window_exceeded" => FinishReason::Length,
        "tool_use" => FinishReason::ToolCalls,
        "refusal" => FinishReason::ContentFilter,
        // `end_turn`, `stop_sequence`, `pause_turn` and what may come.
        _ => FinishReason::Stop,
    }
}

/// Tokens as the API counts them: those of the cache are not in `input_tokens`.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
struct Counts {
    #[serde(default)]
    input_tokens: Option<u64>,
    #[serde(default)]
    output_tokens: Option<u64>,
    #[serde(default)]
    cache_creation_input_tokens: Option<u64>,
    #[serde(default)]
    cache_read_input_tokens: Option<u64>,
}

impl Counts {
    /// Takes over what `later` says: a stream tells some at its start and some at its end.
    fn update(&mut self, later: Self) {
        self.input_tokens = later.input_tokens.or(self.input_tokens);
        self.output_tokens = later.output_tokens.or(self.output_tokens);
        self.cache_creation_input_tokens = later
            .cache_creation_input_tokens
            .or(self.cache_creation_input_tokens);
        self.cache_read_input_tokens = later.cache_read_input_tokens.or(self.cache_read_input_tokens);
    }

    fn usage(self) -> Usage {
        let (written, read) = (
            self.cache_creation_input_tokens.unwrap_or_default(),
            self.cache_read_input_tokens.unwrap_or_default(),
        );
        let prompt = self
            .input_tokens
            .unwrap_or_default()
            .saturating_add(written)
            .saturating_add(read);
        let mut usage = Usage::new(prompt, self.output_tokens.unwrap_or_default());
        if written > 0 || read > 0 {
            let details = json!({"cached_tokens": read, "cache_creation_tokens": written});
            usage.extra.insert("prompt_tokens_details".to_owned(), details);
        }
        usage
    }
}

#[cfg(test)]
mod tests;
