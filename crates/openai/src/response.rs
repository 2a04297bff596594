//! The answer of a chat completion that is not streamed.

use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

use crate::{Extra, Message, lenient};

/// The body of the answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChatResponse {
    /// Identifies the completion: `chatcmpl-…`.
    #[serde(default, deserialize_with = "lenient::null_as_default")]
    pub id: String,
    /// `chat.completion`.
    #[serde(default = "object")]
    pub object: String,
    /// When it was made, in seconds since the epoch.
    #[serde(default, deserialize_with = "lenient::null_as_default")]
    pub created: i64,
    /// The model that answered.
    #[serde(default, deserialize_with = "lenient::null_as_default")]
    pub model: String,
    /// The answers: one, unless the request asked for more.
    pub choices: Vec<Choice>,
    /// The tokens it took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}

impl ChatResponse {
    /// A completion with one answer.
    pub fn new(
        id: impl Into<String>,
        created: i64,
        model: impl Into<String>,
        message: Message,
        finish_reason: FinishReason,
        usage: Usage,
    ) -> Self {
        Self {
            id: id.into(),
            object: object(),
            created,
            model: model.into(),
            choices: vec![Choice {
                index: 0,
                message,
                finish_reason: Some(finish_reason),
                extra: Extra::new(),
            }],
            usage: Some(usage),
            extra: Extra::new(),
        }
    }
}

/// One answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Choice {
    /// Its place among the answers.
    #[serde(default, deserialize_with = "lenient::null_as_default")]
    pub index: u32,
    /// What the model said.
    pub message: Message,
    /// Why it stopped.
    #[serde(default)]
    pub finish_reason: Option<FinishReason>,
    /// Everything else, such as `logprobs`.
    #[serde(flatten)]
    pub extra: Extra,
}

/// Why the model stopped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// It was done.
    Stop,
    /// The limit on tokens was reached.
    Length,
    /// It calls tools.
    ToolCalls,
    /// The content was withheld.
    ContentFilter,
    /// A reason that the API does not define.
    #[serde(untagged)]
    Other(String),
}

/// Tokens counted by the model's server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens read.
    #[serde(default, deserialize_with = "lenient::null_as_default")]
    pub prompt_tokens: u64,
    /// Tokens written.
    #[serde(default, deserialize_with = "lenient::null_as_default")]
    pub completion_tokens: u64,
    /// Both.
    #[serde(default, deserialize_with = "lenient::null_as_default")]
    pub total_tokens: u64,
    /// Everything else: details by kind of token.
    #[serde(flatten)]
    pub extra: Extra,
}

impl Usage {
    /// `prompt` tokens read and `completion` tokens written.
    pub fn new(prompt: u64, completion: u64) -> Self {
        Self {
            prompt_tokens: prompt,
            completion_tokens: completion,
            total_tokens: prompt.saturating_add(completion),
            extra: Extra::new(),
        }
    }
}

/// Sums the counts; the details are those of neither, because not every server gives them.
impl AddAssign<&Usage> for Usage {
    fn add_assign(&mut self, other: &Usage) {
        self.prompt_tokens = self.prompt_tokens.saturating_add(other.prompt_tokens);
        self.completion_tokens = self.completion_tokens.saturating_add(other.completion_tokens);
        self.total_tokens = self.total_tokens.saturating_add(other.total_tokens);
        self.extra.clear();
    }
}

fn object() -> String {
    "chat.completion".to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_answer_has_the_shape_of_the_api() {
        let response = ChatResponse::new(
            "chatcmpl-1",
            7,
            "m",
            Message::assistant("hi"),
            FinishReason::Stop,
            Usage::new(2, 3),
        );
        assert_eq!(
            serde_json::to_value(&response).unwrap(),
            json!({
                "id": "chatcmpl-1", "object": "chat.completion", "created": 7, "model": "m",
                "choices": [
                    {"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"},
                ],
                "usage": {"prompt_tokens": 2, "completion_tokens": 3, "total_tokens": 5},
            })
        );
    }

    #[test]
    fn unknown_fields_and_reasons_are_carried_along() {
        let value = json!({
            "id": "x", "object": "chat.completion", "created": 1, "model": "m", "system_fingerprint": "fp",
            "choices": [{
                "index": 0, "message": {"role": "assistant", "content": "a", "refusal": null},
                "finish_reason": "eos", "logprobs": null,
            }],
            "usage": {
                "prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2,
                "prompt_tokens_details": {"cached_tokens": 0},
            },
        });
        let response: ChatResponse = serde_json::from_value(value.clone()).unwrap();
        assert_eq!(
            response.choices[0].finish_reason,
            Some(FinishReason::Other("eos".to_owned()))
        );
        assert_eq!(serde_json::to_value(&response).unwrap(), value);
    }

    #[test]
    fn usage_is_summed() {
        let mut sum = Usage::default();
        sum += &Usage::new(2, 3);
        sum += &Usage::new(u64::MAX, 1);
        assert_eq!(
            (sum.prompt_tokens, sum.completion_tokens, sum.total_tokens),
            (u64::MAX, 4, u64::MAX)
        );
    }
}
