//! From the events of streamGenerateContent, each of which is an answer of its own, to the chunks of a chat
//! completion.

use std::collections::{BTreeMap, btree_map::Entry};

use kaos_openai::{ChatChunk, Delta, ErrorResponse, Extra, FinishReason, FunctionDelta, ToolCallDelta};

use super::{Candidate, Counts, EXTRA, Said, error, finish, signed};
use crate::provider::{Origin, Piece, Translate};

/// One stream.
pub(in super::super) struct Stream {
    origin: Origin,
    counts: Option<Counts>,
    /// How many tools each choice has called so far. One that is here has begun.
    calls: BTreeMap<u32, usize>,
    finished: bool,
}

impl Stream {
    pub(in super::super) fn new(origin: Origin) -> Self {
        Self {
            origin,
            counts: None,
            calls: BTreeMap::new(),
            finished: false,
        }
    }

    fn chunk(&self, index: u32, delta: Delta, reason: Option<FinishReason>) -> Piece {
        self.chunk_with(index, delta, reason, &Extra::new())
    }

    /// A chunk whose choice says this, too.
    fn chunk_with(&self, index: u32, delta: Delta, reason: Option<FinishReason>, extra: &Extra) -> Piece {
        let Origin { id, created, model } = &self.origin;
        let mut chunk = ChatChunk::new(id, *created, model, delta, reason);
        for choice in &mut chunk.choices {
            choice.index = index;
            choice.extra.clone_from(extra);
        }
        Piece::Chunk(Box::new(chunk))
    }

    fn candidate(&mut self, candidate: Candidate) -> Vec<Piece> {
        let index = candidate.index;
        // With the first text that they are of.
        let mut probabilities = candidate.probabilities();
        let mut pieces = Vec::new();
        if let Entry::Vacant(first) = self.calls.entry(index) {
            first.insert(0);
            pieces.push(self.chunk(index, Delta::start(), None));
        }
        for part in candidate.content.parts {
            if let Some(text) = part.text.filter(|text| !text.is_empty()) {
                let mut delta = Delta::default();
                let mut beside = Extra::new();
                if part.thought {
                    delta.extra.insert("reasoning_content".to_owned(), text.into());
                } else {
                    delta.content = Some(text);
                    beside = std::mem::take(&mut probabilities);
                }
                pieces.push(self.chunk_with(index, delta, None, &beside));
            }
            if let Some(function) = part.function_call {
                let at = self.calls.get(&index).copied().unwrap_or_default();
                let mut call = ToolCallDelta {
                    index: u32::try_from(at).ok(),
                    id: Some(function.identifier(&self.origin, index, at)),
                    kind: Some("function".to_owned()),
                    function: FunctionDelta {
                        arguments: Some(function.arguments()),
                        name: Some(function.name),
                        ..FunctionDelta::default()
                    },
                    ..ToolCallDelta::default()
                };
                if let Some(signature) = &part.thought_signature {
                    call.extra.insert(EXTRA.to_owned(), signed(signature));
                }
                self.calls.insert(index, at + 1);
                let delta = Delta {
                    tool_calls: vec![call],
                    ..Delta::default()
                };
                pieces.push(self.chunk(index, delta, None));
            }
        }
        if let Some(reason) = candidate.finish_reason {
            self.finished = true;
            let calls = self.calls.get(&index).is_some_and(|calls| *calls > 0);
            let reason = Some(finish(&reason, calls));
            pieces.push(self.chunk_with(index, Delta::default(), reason, &probabilities));
        } else if !probabilities.is_empty() {
            pieces.push(self.chunk_with(index, Delta::default(), None, &probabilities));
        }
        pieces
    }
}

impl Translate for Stream {
    fn event(&mut self, data: &str) -> Result<Vec<Piece>, String> {
        let said: Said = serde_json::from_str(data)
            .map_err(|error| format!("an event that is none of generateContent: {error}"))?;
        if !said.error.is_null() {
            let shaped = error(&said.error)
                .unwrap_or_else(|| ErrorResponse::new(crate::error::UPSTREAM, said.error.to_string()));
            return Ok(vec![Piece::Error(Box::new(shaped))]);
        }
        // The identifiers of an answer stay what its first event said.
        if self.calls.is_empty() {
            if let Some(id) = said.response_id {
                self.origin.id = id;
            }
            if let Some(model) = said.model_version {
                self.origin.model = model;
            }
        }
        self.counts = said.usage_metadata.or(self.counts);
        let mut pieces = Vec::new();
        if said.candidates.is_empty() && said.prompt_feedback["blockReason"].is_string() {
            self.finished = true;
            pieces.push(self.chunk(0, Delta::start(), None));
            pieces.push(self.chunk(0, Delta::default(), Some(FinishReason::ContentFilter)));
        }
        for candidate in said.candidates {
            pieces.extend(self.candidate(candidate));
        }
        Ok(pieces)
    }

    /// Nothing but the end of the connection ends a stream of this API.
    fn end(&mut self) -> Vec<Piece> {
        if !self.finished {
            return Vec::new();
        }
        let Origin { id, created, model } = &self.origin;
        let usage = self.counts.unwrap_or_default().usage();
        let usage = ChatChunk::usage(id, *created, model, usage);
        vec![Piece::Chunk(Box::new(usage)), Piece::Done]
    }
}
