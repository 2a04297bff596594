//! Text completions and embeddings, for what asks for no conversation.

use axum::{
    Json,
    body::Body,
    response::{IntoResponse, Response},
};
use kaos_openai::{Usage, sse};
use kaos_seams::Seams;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{FINGERPRINT, count, repeat};
use crate::{
    embeddings::{self, Input},
    error::Failure,
    forward::event_stream,
    provider::Tokens,
    request::Request,
    watched::Watched,
};

/// How long the vectors are, unless the request says.
const DIMENSIONS: usize = 64;
/// The longest that are made.
const MOST_DIMENSIONS: u32 = 4096;

/// The text is repeated, as in a conversation without tools.
pub(super) fn completion(
    request: &Request<'_>,
    seams: &Seams,
    watched: &mut Watched,
) -> Result<Response, Failure> {
    #[derive(Deserialize)]
    struct Asked {
        prompt: Prompt,
    }
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "prompt is neither a text nor a list of texts")]
    enum Prompt {
        One(String),
        Many(Vec<String>),
    }
    let asked: Asked = request.typed(&[], "text completion request")?;
    let prompts = match asked.prompt {
        Prompt::One(prompt) => vec![prompt],
        Prompt::Many(prompts) => prompts,
    };
    let answers: Vec<String> = prompts
        .iter()
        .map(|prompt| format!("[mock] {}", repeat(prompt)))
        .collect();
    let sum = |texts: &[String]| texts.iter().map(|text| count(text)).sum();
    let usage = Usage::new(sum(&prompts), sum(&answers));
    watched.tokens((&usage).into());
    let choices = answers.into_iter().enumerate();
    let choices = choices.map(|(index, text)| json!({"index": index, "text": text, "finish_reason": "stop"}));
    let answer = json!({
        "id": format!("cmpl-{}", seams.random.hex(12)),
        "object": "text_completion",
        "created": seams.clock.now().as_second(),
        "model": request.model,
        "system_fingerprint": FINGERPRINT,
        "choices": choices.collect::<Vec<Value>>(),
        "usage": usage,
    });
    if request.stream {
        // A stream of this API has the shape of the whole answer.
        let mut frames = sse::frame(&answer).unwrap_or_default();
        frames.extend_from_slice(sse::DONE_FRAME);
        return Ok(event_stream(Body::from(frames)));
    }
    Ok(Json(answer).into_response())
}

/// Texts with the same words have vectors that point the same way.
pub(super) fn embeddings(request: &Request<'_>, watched: &mut Watched) -> Result<Response, Failure> {
    let asked: embeddings::Request = request.typed(&[], "embeddings request")?;
    let Input::Texts(texts) = asked.input else {
        let message = "the provider mock embeds texts; input is a list of tokens";
        return Err(Failure::parameter("input", message));
    };
    let dimensions = match asked.dimensions {
        None => DIMENSIONS,
        Some(dimensions @ 1..=MOST_DIMENSIONS) => dimensions as usize,
        Some(other) => {
            let message = format!("dimensions is {other}; the provider mock has 1 to {MOST_DIMENSIONS}");
            return Err(Failure::parameter("dimensions", message));
        }
    };
    let tokens = texts.iter().map(|text| count(text)).sum();
    watched.tokens(Tokens {
        prompt_tokens: tokens,
        completion_tokens: 0,
    });
    let vectors = texts.iter().map(|text| vector(text, dimensions));
    let list = embeddings::list(&request.model, vectors, request.encoding(), tokens);
    Ok(Json(list).into_response())
}

/// Counts words by their hash, as a vector of length 1.
fn vector(text: &str, dimensions: usize) -> Vec<f32> {
    let mut vector = vec![0.0_f32; dimensions];
    for word in text
        .split(|character: char| !character.is_alphanumeric())
        .filter(|word| !word.is_empty())
    {
        // FNV-1a: the same on every machine.
        let hash = word
            .to_lowercase()
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
            });
        let at = usize::try_from(hash % dimensions as u64).unwrap_or_default();
        vector[at] += 1.0;
    }
    let length = vector.iter().map(|number| number * number).sum::<f32>().sqrt();
    if length > 0.0 {
        vector.iter_mut().for_each(|number| *number /= length);
    }
    vector
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_with_the_same_words_are_near_each_other() {
        let near = |a: &str, b: &str| -> f32 {
            let (a, b) = (vector(a, 64), vector(b, 64));
            a.iter().zip(&b).map(|(a, b)| a * b).sum()
        };
        assert!((near("the red car", "Car, the RED!") - 1.0).abs() < 1e-6);
        assert!(near("the red car", "the blue car") > near("the red car", "fish swim"));
        assert!(vector("", 8).iter().all(|number| *number == 0.0));
    }
}
