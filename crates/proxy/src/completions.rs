//! OpenAI's text completions, for those whose API has chats only: the prompt is what the user says, and the
//! completion is what the model answers. As LiteLLM does it.

use std::collections::BTreeMap;

use kaos_openai::{ChatChunk, ChatRequest, ChatResponse, Extra, FinishReason, Message, StreamOptions, Usage};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::error::Failure;

/// What is asked for.
#[derive(Deserialize)]
pub(crate) struct Request {
    model: String,
    prompt: Value,
    #[serde(default)]
    stream: bool,
    #[serde(default)]
    stream_options: Option<StreamOptions>,
    #[serde(flatten)]
    extra: Extra,
}

/// The chat that asks for the same.
///
/// # Errors
/// When no chat does.
pub(crate) fn chat(request: Request) -> Result<ChatRequest, Failure> {
    let mut extra = request.extra;
    let alternatives = extra.shift_remove("logprobs").filter(|value| !value.is_null());
    if let Some(alternatives) = alternatives {
        let Some(count) = alternatives.as_u64() else {
            return Err(Failure::parameter("logprobs", "logprobs must be a whole number"));
        };
        extra.insert("logprobs".to_owned(), true.into());
        if count > 0 {
            extra.insert("top_logprobs".to_owned(), count.into());
        }
    }
    Ok(ChatRequest {
        model: request.model,
        messages: vec![Message::user(prompt(request.prompt)?)],
        stream: request.stream,
        stream_options: request.stream_options,
        extra,
        ..ChatRequest::default()
    })
}

fn prompt(prompt: Value) -> Result<String, Failure> {
    match prompt {
        Value::String(text) => Ok(text),
        Value::Array(mut items) if items.len() == 1 && items[0].is_string() => self::prompt(items.remove(0)),
        _ => Err(Failure::parameter(
            "prompt",
            "prompt must be one text: the model's provider has chats only, which take neither several prompts at \
             once nor tokens",
        )),
    }
}

/// A whole answer, or a chunk of one: both have the same shape.
#[derive(Debug, Serialize)]
pub(crate) struct Completion {
    id: String,
    object: &'static str,
    created: i64,
    model: String,
    choices: Vec<Choice>,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Usage>,
}

#[derive(Debug, Serialize)]
struct Choice {
    index: u32,
    text: String,
    logprobs: Option<Value>,
    finish_reason: Option<FinishReason>,
}

/// Makes completions of the answers to a chat.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    /// How many characters each choice has so far, by its index.
    written: BTreeMap<u32, usize>,
}

impl Writer {
    /// The completion that an answer, or a chunk of one, is.
    pub(crate) fn write(&mut self, chunk: ChatChunk) -> Completion {
        let choices = chunk.choices.into_iter().map(|choice| {
            let written = self.written.entry(choice.index).or_default();
            let text = choice.delta.content.unwrap_or_default();
            let logprobs = choice
                .extra
                .get("logprobs")
                .and_then(|said| log_probabilities(said, *written));
            *written += text.chars().count();
            Choice {
                index: choice.index,
                text,
                logprobs,
                finish_reason: choice.finish_reason,
            }
        });
        Completion {
            id: chunk.id,
            object: "text_completion",
            created: chunk.created,
            model: chunk.model,
            choices: choices.collect(),
            usage: chunk.usage,
        }
    }
}

/// The completion that a whole answer is.
pub(crate) fn answer(response: ChatResponse) -> Completion {
    Writer::default().write(ChatChunk::from(response))
}

/// A chat's log probabilities in the form that text completions have them; the first token begins after
/// `offset` characters.
fn log_probabilities(said: &Value, mut offset: usize) -> Option<Value> {
    let (mut tokens, mut own, mut others, mut offsets) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for token in said["content"].as_array()? {
        let text = token["token"].as_str().unwrap_or_default();
        let alternatives = token["top_logprobs"].as_array().into_iter().flatten();
        let alternatives: Map<String, Value> = alternatives
            .filter_map(|other| Some((other["token"].as_str()?.to_owned(), other["logprob"].clone())))
            .collect();
        offsets.push(offset);
        offset += text.chars().count();
        tokens.push(text);
        own.push(&token["logprob"]);
        others.push(alternatives);
    }
    Some(json!({"tokens": tokens, "token_logprobs": own, "top_logprobs": others, "text_offset": offsets}))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(request: Value) -> Result<Value, String> {
        let chat = chat(serde_json::from_value(request).unwrap());
        chat.map(|chat| serde_json::to_value(chat).unwrap())
            .map_err(|failure| failure.message().to_owned())
    }

    #[test]
    fn a_prompt_is_what_the_user_says() {
        for prompt in [json!("Once upon"), json!(["Once upon"])] {
            let request = json!({"model": "m", "prompt": prompt, "max_tokens": 5, "logprobs": 2, "own": [1]});
            assert_eq!(
                asked(request).unwrap(),
                json!({
                    "model": "m", "messages": [{"role": "user", "content": "Once upon"}], "stream": false,
                    "max_tokens": 5, "own": [1], "logprobs": true, "top_logprobs": 2,
                })
            );
        }
        for prompt in [
            json!(["a", "b"]),
            json!([1, 2]),
            json!([]),
            json!({}),
            json!([[1]]),
        ] {
            let message = asked(json!({"model": "m", "prompt": prompt})).unwrap_err();
            assert!(message.starts_with("prompt must be one text"), "{message}");
        }
        let message = asked(json!({"model": "m", "prompt": "a", "logprobs": true})).unwrap_err();
        assert_eq!(message, "logprobs must be a whole number");
    }

    #[test]
    fn the_tokens_of_chunks_go_on_where_the_chunk_before_ended() {
        let chunk = |text: &str| {
            let token =
                json!({"token": text, "logprob": -0.5, "top_logprobs": [{"token": "x", "logprob": -2}]});
            serde_json::from_value(json!({
                "id": "c", "created": 1, "model": "m",
                "choices": [{"index": 0, "delta": {"content": text}, "logprobs": {"content": [token]}}],
            }))
            .unwrap()
        };
        let mut writer = Writer::default();
        let first = serde_json::to_value(writer.write(chunk("né"))).unwrap();
        assert_eq!(
            first,
            json!({
                "id": "c", "object": "text_completion", "created": 1, "model": "m",
                "choices": [{"index": 0, "text": "né", "finish_reason": null, "logprobs": {
                    "tokens": ["né"], "token_logprobs": [-0.5], "top_logprobs": [{"x": -2}], "text_offset": [0],
                }}],
            })
        );
        let second = serde_json::to_value(writer.write(chunk("b"))).unwrap();
        assert_eq!(second["choices"][0]["logprobs"]["text_offset"], json!([2]));
    }
}
