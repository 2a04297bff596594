//! What comes from models and from their callers, nearly right.

use kaos_fuzz::Corpus;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{
    ChatChunk, ChatRequest, ChatResponse, ChunkAccumulator, ErrorResponse, ModelList, StreamEvent,
    sse::{Decoder, Event},
};

fn decoded<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<Event> {
    let mut decoder = Decoder::new(1 << 20);
    let mut events = Vec::new();
    for piece in pieces {
        events.extend(decoder.feed(piece).unwrap());
    }
    events.extend(decoder.finish());
    events
}

/// What is read is written so that the same is read again.
fn read_again<T: Serialize + DeserializeOwned>(text: &[u8]) -> Option<T> {
    let value: T = serde_json::from_slice(text).ok()?;
    let written = serde_json::to_vec(&value).unwrap();
    let again: T = serde_json::from_slice(&written).unwrap();
    assert_eq!(whole_numbers(&again), whole_numbers(&value));
    Some(value)
}

/// As JSON without numbers that are not whole: of those with more than 15 digits the last is not exact.
fn whole_numbers(value: &impl Serialize) -> Value {
    fn drop_others(value: &mut Value) {
        match value {
            Value::Number(number) if number.is_f64() => *value = Value::Null,
            Value::Array(items) => items.iter_mut().for_each(drop_others),
            Value::Object(fields) => fields.values_mut().for_each(drop_others),
            _ => {}
        }
    }
    let mut value = serde_json::to_value(value).unwrap();
    drop_others(&mut value);
    value
}

#[test]
fn events_are_the_same_however_they_are_cut() {
    let corpus = Corpus::of(concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/events"));
    let words = [
        "data: ",
        "data",
        "event: ",
        "\r",
        "[DONE]",
        "\"index\":",
        "\"delta\":",
        "\"tool_calls\":",
    ];
    corpus.with_words(&words).fuzz(|bytes| {
        let events = decoded([bytes]);
        assert_eq!(decoded(bytes.chunks(1)), events);
        assert_eq!(decoded(bytes.chunks(7)), events);
        let mut whole = ChunkAccumulator::new();
        for event in events {
            read_again::<ChatChunk>(event.data.as_bytes());
            if let Ok(StreamEvent::Chunk(chunk)) = StreamEvent::parse(&event.data) {
                whole.push(&chunk);
            }
        }
        let whole = whole.into_response();
        let chunk = ChatChunk::from(whole.clone());
        assert_eq!(chunk.choices.len(), whole.choices.len());
    });
}

#[test]
fn bodies_are_read_as_they_are_written() {
    let corpus = Corpus::of(concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/bodies"));
    let words = [
        "\"role\":",
        "\"content\":",
        "\"type\":",
        "\"usage\":",
        "\"finish_reason\":",
        "\"error\":",
    ];
    corpus.with_words(&words).fuzz(|bytes| {
        read_again::<ChatRequest>(bytes);
        read_again::<ModelList>(bytes);
        read_again::<ErrorResponse>(bytes);
        if let Some(response) = read_again::<ChatResponse>(bytes) {
            let chunk = ChatChunk::from(response.clone());
            let mut whole = ChunkAccumulator::new();
            whole.push(&chunk);
            let texts = |response: &ChatResponse| -> Vec<String> {
                response
                    .choices
                    .iter()
                    .map(|choice| choice.message.text())
                    .collect()
            };
            // Choices of the same index become one.
            if response.choices.len() < 2 {
                assert_eq!(texts(&whole.into_response()), texts(&response));
            }
        }
        assert!(ErrorResponse::describe(bytes, 40).chars().count() <= 41);
    });
}
