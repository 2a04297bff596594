//! The model as the agent sees it: asked with a request, it answers in chunks.

mod client;
pub(crate) mod mock;
#[cfg(test)]
mod tests;

use std::{pin::Pin, time::Duration};

use async_trait::async_trait;
use futures::Stream;
use kaos_openai::{ChatChunk, ChatRequest};
use kaos_telemetry::TraceContext;

pub(crate) use client::ModelClient;

/// The pieces of an answer as they arrive. It ends after an error.
pub(crate) type ChunkStream = Pin<Box<dyn Stream<Item = Result<ChatChunk, ModelError>> + Send>>;

/// What answers chat completions.
#[async_trait]
pub(crate) trait Model: Send + Sync {
    /// Asks for an answer, as part of `trace`.
    async fn ask(&self, request: ChatRequest, trace: &TraceContext) -> Result<ChunkStream, ModelError>;

    /// Whether it can be asked.
    async fn check(&self) -> Result<(), ModelError>;
}

/// Why there is no answer, or not all of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ModelError {
    /// No connection, or one that broke.
    #[error("model API {url} is not reachable: {reason}")]
    Unreachable { url: String, reason: String },
    /// It took a request, but stayed silent for too long.
    #[error("model API {url} sent nothing for {} s", .silence.as_secs_f64())]
    Silent { url: String, silence: Duration },
    /// It answered with an HTTP status that is not a success.
    #[error("model API {url} answered HTTP {status}{}{said}", if .said.is_empty() { "" } else { ": " })]
    Refused {
        url: String,
        status: u16,
        said: String,
        /// How long it asks to be left alone.
        retry_after: Option<Duration>,
    },
    /// It reported an error after it had begun to answer.
    #[error("model API {url} failed in its answer: {said}")]
    Failed { url: String, said: String },
    /// Its answer is not one.
    #[error("model API {url} sent an answer that cannot be read: {reason}")]
    Unreadable { url: String, reason: String },
    /// Its answer stopped in the middle.
    #[error("model API {url} ended its answer in the middle: {reason}")]
    CutOff { url: String, reason: String },
    /// Its answer is longer than is sensible.
    #[error("model API {url} sent an answer of more than {limit} bytes")]
    TooLarge { url: String, limit: usize },
    /// All the steps of an answer took too long.
    #[error("the answer took longer than {} s in all", .limit.as_secs_f64())]
    Late { limit: Duration },
}

impl ModelError {
    /// Which of few kinds of error it is, for those who count them.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Unreachable { .. } => "unreachable",
            Self::Silent { .. } => "timeout",
            Self::Refused { .. } => "refused",
            Self::Failed { .. } => "failed",
            Self::Unreadable { .. } => "unreadable",
            Self::CutOff { .. } => "cut_off",
            Self::TooLarge { .. } => "too_large",
            Self::Late { .. } => "timeout",
        }
    }

    /// Whether it refused a request for the tools in it, in the words of one of many servers: "does not support
    /// tools", "requires --enable-auto-tool-choice", "tools param requires --jinja flag".
    pub(crate) fn refuses_tools(&self) -> bool {
        let Self::Refused { status, said, .. } = self else {
            return false;
        };
        let said = said.to_lowercase();
        let about = [
            "support",
            "require",
            "enable",
            "unknown",
            "unrecognized",
            "not allowed",
        ];
        *status >= 400
            && !matches!(status, 401 | 403 | 429)
            && said.contains("tool")
            && about.iter().any(|word| said.contains(word))
    }
}
