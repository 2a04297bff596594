//! Google's generateContent, streamGenerateContent and batchEmbedContents, <https://ai.google.dev/api>.

mod answer;
mod embeddings;
mod request;
mod stream;

use axum::http::{HeaderValue, StatusCode};
use kaos_openai::{ErrorResponse, Extra, FinishReason, Usage};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Call, Origin, Refusal, Remote};
use crate::{
    error::Failure,
    request::{Operation, Request},
};

pub(super) use answer::answer;
pub(super) use embeddings::answer as embeddings;
pub(super) use stream::Stream;

/// Where a tool call carries what the model signed: as in Google's own front that speaks OpenAI's API.
const EXTRA: &str = "extra_content";

pub(super) fn call(remote: &Remote, request: &Request<'_>, model: &str) -> Result<Call, Failure> {
    let (method, body) = match request.operation {
        Operation::Chat | Operation::Completions => {
            let body = request::body(remote, request.chat(&remote.defaults)?, model)?;
            let method = if request.stream {
                "streamGenerateContent"
            } else {
                "generateContent"
            };
            (method, body)
        }
        Operation::Embeddings => ("batchEmbedContents", embeddings::body(remote, request, model)?),
    };
    let mut url = remote.base.clone();
    if let Ok(mut segments) = url.path_segments_mut() {
        segments.pop_if_empty();
        // Tuned models say what they are themselves: tunedModels/NAME.
        if !model.contains('/') {
            segments.push("models");
        }
        segments.extend(format!("{model}:{method}").split('/'));
    }
    if method == "streamGenerateContent" {
        url.query_pairs_mut().append_pair("alt", "sse");
    }
    Ok(remote.json(url, body.to_string().into_bytes()))
}

/// `{"error": {"code": 429, "message": …, "status": "RESOURCE_EXHAUSTED", "details": […]}}`.
pub(super) fn refusal(status: StatusCode, body: &str) -> Refusal {
    let said: Value = serde_json::from_str(body).unwrap_or_default();
    // Some of its servers wrap the error into a list.
    let said = said.get(0).unwrap_or(&said);
    Refusal {
        status,
        body: error(&said["error"]),
        retry_after: said["error"]["details"].as_array().and_then(|details| {
            let delay = details.iter().find_map(|detail| detail["retryDelay"].as_str())?;
            let seconds: f64 = delay.strip_suffix('s')?.parse().ok()?;
            let seconds = seconds.clamp(0.0, 86_400.0).ceil();
            HeaderValue::from_str(&seconds.to_string()).ok()
        }),
    }
}

/// An error in OpenAI's words.
fn error(said: &Value) -> Option<ErrorResponse> {
    let message = said["message"].as_str().filter(|message| !message.is_empty())?;
    let status = said["status"].as_str().unwrap_or_default();
    let kind = match status {
        "INVALID_ARGUMENT" | "FAILED_PRECONDITION" | "OUT_OF_RANGE" => crate::error::INVALID,
        "UNAUTHENTICATED" => "authentication_error",
        "PERMISSION_DENIED" => "permission_error",
        "NOT_FOUND" => "not_found_error",
        "RESOURCE_EXHAUSTED" => "rate_limit_error",
        _ => crate::error::UPSTREAM,
    };
    let shaped = ErrorResponse::new(kind, message);
    Some(if status.is_empty() {
        shaped
    } else {
        shaped.code(status.to_lowercase())
    })
}

/// A whole answer, or one event of a stream.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Said {
    #[serde(default)]
    candidates: Vec<Candidate>,
    #[serde(default)]
    prompt_feedback: Value,
    #[serde(default)]
    usage_metadata: Option<Counts>,
    #[serde(default)]
    model_version: Option<String>,
    #[serde(default)]
    response_id: Option<String>,
    #[serde(default)]
    error: Value,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Candidate {
    #[serde(default)]
    index: u32,
    #[serde(default)]
    content: Parts,
    #[serde(default)]
    finish_reason: Option<String>,
    #[serde(default)]
    logprobs_result: Value,
    #[serde(default)]
    avg_logprobs: Option<Value>,
}

impl Candidate {
    /// What a choice says beside its message: the log probabilities as OpenAI has them. Their average, of which
    /// OpenAI has none, is called as here.
    fn probabilities(&self) -> Extra {
        let token = |said: &Value| {
            let text = said["token"].as_str()?;
            Some(json!({"token": text, "logprob": said["logProbability"], "bytes": text.as_bytes()}))
        };
        let mut extra = Extra::new();
        if let Some(chosen) = self.logprobs_result["chosenCandidates"].as_array() {
            let content = chosen.iter().enumerate().filter_map(|(at, chosen)| {
                let mut token_said = token(chosen)?;
                let others = self.logprobs_result["topCandidates"][at]["candidates"].as_array();
                let others: Vec<Value> = others.into_iter().flatten().filter_map(token).collect();
                token_said["top_logprobs"] = others.into();
                Some(token_said)
            });
            let content: Vec<Value> = content.collect();
            extra.insert(
                "logprobs".to_owned(),
                json!({"content": content, "refusal": null}),
            );
        }
        if let Some(average) = &self.avg_logprobs {
            extra.insert("avg_logprobs".to_owned(), average.clone());
        }
        extra
    }
}

#[derive(Default, Deserialize)]
struct Parts {
    #[serde(default)]
    parts: Vec<Part>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Part {
    #[serde(default)]
    text: Option<String>,
    /// The text is what the model thought.
    #[serde(default)]
    thought: bool,
    #[serde(default)]
    thought_signature: Option<String>,
    #[serde(default)]
    function_call: Option<FunctionCall>,
}

#[derive(Deserialize)]
struct FunctionCall {
    #[serde(default)]
    id: Option<String>,
    name: String,
    #[serde(default)]
    args: Option<Value>,
}

impl FunctionCall {
    fn arguments(&self) -> String {
        self.args
            .as_ref()
            .map_or_else(|| "{}".to_owned(), Value::to_string)
    }

    /// The call's identifier. Most models name none: then it is put together from the answer's.
    fn identifier(&self, origin: &Origin, choice: u32, at: usize) -> String {
        let own = self.id.clone().filter(|id| !id.is_empty());
        own.unwrap_or_else(|| format!("call_{}_{choice}_{at}", origin.id))
    }
}

/// The field of a tool call that carries the model's signature back.
fn signed(signature: &str) -> Value {
    json!({"google": {"thought_signature": signature}})
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Counts {
    #[serde(default)]
    prompt_token_count: u64,
    #[serde(default)]
    candidates_token_count: u64,
    #[serde(default)]
    thoughts_token_count: u64,
    #[serde(default)]
    tool_use_prompt_token_count: u64,
    #[serde(default)]
    cached_content_token_count: u64,
}

impl Counts {
    fn usage(self) -> Usage {
        let mut usage = Usage::new(
            self.prompt_token_count
                .saturating_add(self.tool_use_prompt_token_count),
            self.candidates_token_count
                .saturating_add(self.thoughts_token_count),
        );
        if self.cached_content_token_count > 0 {
            let details = json!({"cached_tokens": self.cached_content_token_count});
            usage.extra.insert("prompt_tokens_details".to_owned(), details);
        }
        if self.thoughts_token_count > 0 {
            let details = json!({"reasoning_tokens": self.thoughts_token_count});
            usage
                .extra
                .insert("completion_tokens_details".to_owned(), details);
        }
        usage
    }
}

/// Why a candidate ended; a call of a tool is no reason of its own in this API.
fn finish(reason: &str, calls: bool) -> FinishReason {
    match reason {
        "STOP" | "" if calls => FinishReason::ToolCalls,
        "MAX_TOKENS" => FinishReason::Length,
        "SAFETY" | "RECITATION" | "BLOCKLIST" | "PROHIBITED_CONTENT" | "SPII" | "IMAGE_SAFETY"
        | "LANGUAGE" => FinishReason::ContentFilter,
        // Told as they are: nothing was said, and not because all was.
        "MALFORMED_FUNCTION_CALL" | "UNEXPECTED_TOOL_CALL" | "TOO_MANY_TOOL_CALLS" => {
            FinishReason::Other(reason.to_lowercase())
        }
        _ => FinishReason::Stop,
    }
}

#[cfg(test)]
mod tests;
