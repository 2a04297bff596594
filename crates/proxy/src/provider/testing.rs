//! Upstreams and requests for the tests of translations.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Origin, Piece, Remote, Translate, known::provider};
use crate::{request::Operation, secret::Secret};

/// An upstream of this provider, with a key.
pub(crate) fn remote(name: &str, base: &str) -> Remote {
    let provider = provider(name).unwrap();
    let key = Secret::new("sk-1".to_owned());
    Remote {
        provider,
        base: base.parse().unwrap(),
        headers: super::key_header(provider.api, &key).into_iter().collect(),
        key: Some(key),
        api_version: None,
        defaults: Vec::new(),
        drop_params: false,
    }
}

pub(crate) fn origin() -> Origin {
    Origin {
        id: "own-id".to_owned(),
        created: 7,
        model: "asked".to_owned(),
    }
}

/// URL, headers beside the content type, and body of the call for `request`, or the refusal's message.
pub(super) fn call(
    remote: &Remote,
    operation: Operation,
    request: &Value,
) -> Result<(String, BTreeMap<String, String>, Value), String> {
    let body = request.to_string();
    let request = crate::request::Request::read(operation, body.as_bytes()).unwrap();
    let call = remote
        .call(&request, "inner")
        .map_err(|failure| failure.message().to_owned())?;
    let headers = call.headers.iter().filter(|(name, _)| *name != "content-type");
    let headers = headers.map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()));
    Ok((
        call.url.to_string(),
        headers.collect(),
        serde_json::from_slice(&call.body).unwrap(),
    ))
}

/// The body of the call for a chat of `request`.
pub(super) fn chat(remote: &Remote, request: Value) -> Result<Value, String> {
    let mut request = request;
    request["model"] = "public".into();
    call(remote, Operation::Chat, &request).map(|(_, _, body)| body)
}

/// What a chat's answer becomes.
pub(super) fn answer(remote: &Remote, body: &Value) -> Result<Value, String> {
    let request = serde_json::json!({"model": "public", "messages": [1]}).to_string();
    let request = crate::request::Request::read(Operation::Chat, request.as_bytes()).unwrap();
    let answer = remote.answer(&request, origin, body.to_string().into())?;
    Ok(serde_json::from_slice(&answer.body).unwrap())
}

/// The pieces of a stream of these events and its end: chunks as JSON, and what ends it.
pub(super) fn stream(translator: &mut dyn Translate, events: &[Value]) -> (Vec<Value>, Option<String>) {
    let mut chunks = Vec::new();
    let mut end = None;
    let pieces = events
        .iter()
        .flat_map(|event| translator.event(&event.to_string()).unwrap());
    let mut pieces: Vec<Piece> = pieces.collect();
    if pieces.last() != Some(&Piece::Done) {
        pieces.extend(translator.end());
    }
    for piece in pieces {
        assert_eq!(end, None, "nothing follows the end");
        match piece {
            Piece::Chunk(chunk) => chunks.push(serde_json::to_value(chunk).unwrap()),
            Piece::Done => end = Some("done".to_owned()),
            Piece::Error(said) => end = Some(said.error.message),
        }
    }
    (chunks, end)
}

/// The whole answer that chunks are the pieces of: message, reason and usage.
pub(super) fn folded(chunks: &[Value]) -> (Value, Value, Value) {
    let mut accumulator = kaos_openai::ChunkAccumulator::new();
    for chunk in chunks {
        accumulator.push(&serde_json::from_value(chunk.clone()).unwrap());
    }
    let whole = serde_json::to_value(accumulator.into_response()).unwrap();
    let choice = &whole["choices"][0];
    (
        choice["message"].clone(),
        choice["finish_reason"].clone(),
        whole["usage"].clone(),
    )
}
