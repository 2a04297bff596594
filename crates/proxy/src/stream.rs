//! An upstream's stream of events, passed on event by event as they arrive.
//!
//! Chunks of OpenAI's API are passed on as they were written, others are translated. What can go wrong once the
//! status is sent (silence, garbage, a connection that ends in the middle) reaches the caller as an event with an
//! error, in the API's shape, and never as an answer that merely looks complete.

use std::{collections::VecDeque, convert::Infallible};

use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use kaos_openai::{
    ErrorResponse,
    sse::{self, Decoder, Event},
};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::{Value, value::RawValue};

use crate::{
    completions,
    error::UPSTREAM,
    forward::IDLE_TIMEOUT,
    provider::{Piece, Tokens, Translate},
    request::Operation,
    secret::Secret,
    watched::Streamed,
};

/// The largest event in bytes.
const MAX_EVENT: usize = 8 * 1024 * 1024;

/// A stream on its way.
pub(crate) struct Passage<S> {
    upstream: S,
    name: String,
    key: Option<Secret>,
    form: Form,
    texts: completions::Writer,
    decoder: Decoder,
    ready: VecDeque<Bytes>,
    /// Some choice has said why it stopped: an end without `[DONE]` is an end all the same.
    finished: bool,
    over: bool,
    /// What it ended in, instead of an answer.
    failed: Option<Box<ErrorResponse>>,
    tokens: Option<Tokens>,
}

/// What comes and what is to become of it.
pub(crate) struct Form {
    /// What was asked for.
    pub(crate) operation: Operation,
    /// `None` where the events are OpenAI's.
    pub(crate) translator: Option<Box<dyn Translate>>,
    /// Whether the chunk that carries nothing but the usage is kept back.
    pub(crate) hides_usage: bool,
}

/// What matters of a chunk of OpenAI's API.
#[derive(Deserialize)]
struct Peek<'a> {
    error: Option<IgnoredAny>,
    #[serde(default)]
    choices: Option<Vec<PeekChoice>>,
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct PeekChoice {
    finish_reason: Option<IgnoredAny>,
}

impl<S, E> Passage<std::pin::Pin<Box<S>>>
where
    S: Stream<Item = Result<Bytes, E>> + Send + 'static,
    E: std::fmt::Display,
{
    /// Of the events of `upstream`, which messages call `name` and which may quote `key`.
    pub(crate) fn new(upstream: S, name: String, key: Option<Secret>, form: Form) -> Self {
        Self {
            upstream: Box::pin(upstream),
            name,
            key,
            form,
            texts: completions::Writer::default(),
            decoder: Decoder::new(MAX_EVENT),
            ready: VecDeque::new(),
            finished: false,
            over: false,
            failed: None,
            tokens: None,
        }
    }
}

impl<S, E> Passage<S>
where
    S: Stream<Item = Result<Bytes, E>> + Unpin + Send + 'static,
    E: std::fmt::Display,
{
    /// Waits for the first event, for as long as the caller likes.
    ///
    /// # Errors
    /// When the upstream begins with an error or cannot be read.
    pub(crate) async fn begin(&mut self) -> Result<(), Box<ErrorResponse>> {
        while self.ready.is_empty() && !self.over {
            let next = self.upstream.next().await;
            self.take(next);
        }
        match self.failed.take() {
            Some(said) if self.ready.len() <= 1 => Err(said),
            other => {
                self.failed = other;
                Ok(())
            }
        }
    }

    /// The events to pass on. Dropping the stream drops the connection.
    pub(crate) fn frames(self, watched: Streamed) -> impl Stream<Item = Result<Bytes, Infallible>> + Send {
        stream::unfold((self, watched), |(mut passage, mut watched)| async move {
            let Some(frame) = passage.next().await else {
                watched.ended(passage.tokens, passage.failed.as_deref());
                return None;
            };
            Some((Ok(frame), (passage, watched)))
        })
    }

    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(frame) = self.ready.pop_front() {
                return Some(frame);
            }
            if self.over {
                return None;
            }
            match tokio::time::timeout(IDLE_TIMEOUT, self.upstream.next()).await {
                Err(_) => self.fail(format!("sent nothing for {} s", IDLE_TIMEOUT.as_secs())),
                Ok(next) => self.take(next),
            }
        }
    }

    fn take(&mut self, next: Option<Result<Bytes, E>>) {
        match next {
            Some(Err(error)) => {
                tracing::warn!(upstream = self.name, %error, "the upstream's stream broke");
                self.fail("broke off in the middle of its answer".to_owned());
            }
            Some(Ok(bytes)) => self.feed(&bytes),
            None => self.end(),
        }
    }

    fn feed(&mut self, bytes: &[u8]) {
        match self.decoder.feed(bytes) {
            Ok(events) => events.iter().for_each(|event| self.pass(event)),
            Err(error) => self.fail(format!("sent too much at once: {error}")),
        }
    }

    fn pass(&mut self, event: &Event) {
        if self.over {
            return;
        }
        if event.data.trim() == sse::DONE {
            self.finish();
            return;
        }
        if let Some(translator) = &mut self.form.translator {
            match translator.event(&event.data) {
                Ok(pieces) => self.pieces(pieces),
                Err(problem) => self.fail(format!("sent {problem}")),
            }
            return;
        }
        let Ok(peek) = serde_json::from_str::<Peek<'_>>(&event.data) else {
            // Fields of other types than the API's are the caller's to judge, as long as it is an object.
            match serde_json::from_str::<Value>(&event.data) {
                Ok(value) if value.is_object() => self.pass_value(&event.data),
                _ => self.fail("sent an event that is not JSON".to_owned()),
            }
            return;
        };
        if peek.error.is_some() {
            let said = self.key.as_ref().map(|key| key.redact(&event.data));
            let said = said.as_deref().unwrap_or(&event.data);
            let shaped = serde_json::from_str(said);
            let shaped = shaped.unwrap_or_else(|_| ErrorResponse::new(UPSTREAM, said));
            self.pass_value(said);
            self.failed = Some(Box::new(shaped));
            self.over = true;
            return;
        }
        let choices = peek.choices.unwrap_or_default();
        self.finished |= choices.iter().any(|choice| choice.finish_reason.is_some());
        if let Some(usage) = peek.usage
            && let Ok(tokens) = serde_json::from_str(usage.get())
        {
            self.tokens = Some(tokens);
            if choices.is_empty() && self.form.hides_usage {
                return;
            }
        }
        self.pass_value(&event.data);
    }

    fn pieces(&mut self, pieces: Vec<Piece>) {
        for piece in pieces {
            match piece {
                Piece::Chunk(chunk) => {
                    if let Some(usage) = &chunk.usage {
                        self.tokens = Some(usage.into());
                        if chunk.choices.is_empty() && self.form.hides_usage {
                            continue;
                        }
                    }
                    let frame = match self.form.operation {
                        Operation::Completions => sse::frame(&self.texts.write(*chunk)),
                        Operation::Chat | Operation::Embeddings => sse::frame(&*chunk),
                    };
                    self.ready.push_back(frame.unwrap_or_default().into());
                }
                Piece::Done => self.finish(),
                Piece::Error(mut said) => {
                    if let Some(key) = &self.key {
                        said.error.message = key.redact(&said.error.message);
                    }
                    self.ready
                        .push_back(sse::frame(&*said).unwrap_or_default().into());
                    self.failed = Some(said);
                    self.over = true;
                }
            }
        }
    }

    fn pass_value(&mut self, written: &str) {
        // JSON on several lines is legal in an event, yet few clients can read it. Lines end between its tokens only.
        let frame = ["data: ", &written.trim().replace('\n', " "), "\n\n"].concat();
        self.ready.push_back(frame.into());
    }

    fn end(&mut self) {
        let decoder = std::mem::replace(&mut self.decoder, Decoder::new(MAX_EVENT));
        let last = decoder.finish();
        // The last event may lack the empty line after it. One that cannot be read was cut off.
        if let Some(event) = last
            && (event.data.trim() == sse::DONE || serde_json::from_str::<IgnoredAny>(&event.data).is_ok())
        {
            self.pass(&event);
        }
        if let Some(translator) = &mut self.form.translator
            && !self.over
        {
            let pieces = translator.end();
            self.pieces(pieces);
        }
        if self.over {
            return;
        }
        if self.finished {
            self.finish();
        } else {
            self.fail("ended its stream before the answer was complete".to_owned());
        }
    }

    fn finish(&mut self) {
        self.ready.push_back(Bytes::from_static(sse::DONE_FRAME));
        self.over = true;
    }

    fn fail(&mut self, what: String) {
        let message = format!("the upstream {} {what}", self.name);
        tracing::warn!("{message}");
        let said = ErrorResponse::new(UPSTREAM, message);
        self.ready.push_back(sse::frame(&said).unwrap_or_default().into());
        self.failed = Some(Box::new(said));
        self.over = true;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::*;

    const CHUNK: &str =
        r#"{"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}],"odd":1.50}"#;
    const LAST: &str = r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#;

    type Sent = Result<&'static str, &'static str>;

    /// Everything that is passed on of `sent`, after which the upstream closes or, with `stall`, is silent.
    async fn passed(sent: Vec<Sent>, stall: bool) -> String {
        let sent = stream::iter(sent).map(|piece| piece.map(Bytes::from));
        let upstream = if stall {
            sent.chain(stream::pending()).boxed()
        } else {
            sent.boxed()
        };
        let form = Form {
            operation: Operation::Chat,
            translator: None,
            hides_usage: false,
        };
        let passage = Passage::new(upstream, "models:8000".to_owned(), None, form);
        let frames = passage.frames(Streamed::default());
        let bytes: Vec<u8> = frames
            .map(|frame| frame.unwrap_or_default().to_vec())
            .concat()
            .await;
        String::from_utf8(bytes).unwrap()
    }

    fn failed(what: &str) -> String {
        format!(
            "data: {{\"error\":{{\"message\":\"the upstream models:8000 {what}\",\"type\":\"upstream_error\",\
             \"param\":null,\"code\":null}}}}\n\n"
        )
    }

    #[tokio::test]
    async fn events_are_passed_on_as_they_were_written() {
        let sent = vec![
            Ok("data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"},\"finish"),
            Ok("_reason\":null}],"),
            Ok("\"odd\":1.50}\n\n: ping\n\ndata: [DONE]\n\nafter"),
        ];
        assert_eq!(
            passed(sent, false).await,
            format!("data: {CHUNK}\n\ndata: [DONE]\n\n")
        );
    }

    #[tokio::test]
    async fn the_end_is_said_even_where_the_upstream_does_not() {
        let sent = vec![Ok("data: "), Ok(LAST), Ok("\n\n")];
        assert_eq!(
            passed(sent, false).await,
            format!("data: {LAST}\n\ndata: [DONE]\n\n")
        );
        let without_last_line = vec![Ok("data: "), Ok(LAST)];
        assert_eq!(
            passed(without_last_line, false).await,
            format!("data: {LAST}\n\ndata: [DONE]\n\n")
        );
    }

    #[tokio::test]
    async fn an_event_on_several_lines_becomes_one() {
        let sent = vec![Ok("data: {\"choices\":\ndata: []}\n\ndata: [DONE]\n\n")];
        assert_eq!(
            passed(sent, false).await,
            "data: {\"choices\": []}\n\ndata: [DONE]\n\n"
        );
    }

    #[tokio::test]
    async fn an_answer_that_is_cut_off_ends_in_an_error() {
        let cut = failed("ended its stream before the answer was complete");
        assert_eq!(
            passed(vec![Ok("data: "), Ok(CHUNK), Ok("\n\n")], false).await,
            format!("data: {CHUNK}\n\n{cut}")
        );
        assert_eq!(passed(vec![Ok("data: {\"choi")], false).await, cut);
        assert_eq!(passed(vec![], false).await, cut);
        let broken = failed("broke off in the middle of its answer");
        assert_eq!(passed(vec![Ok("data: "), Err("reset")], false).await, broken);
    }

    #[tokio::test]
    async fn garbage_ends_in_an_error() {
        let garbage = failed("sent an event that is not JSON");
        assert_eq!(
            passed(vec![Ok("data: <html>\n\ndata: [DONE]\n\n")], false).await,
            garbage
        );
        assert_eq!(passed(vec![Ok("data: 7\n\n")], false).await, garbage);
    }

    #[tokio::test]
    async fn an_error_of_the_upstream_is_the_end() {
        let sent = vec![Ok(
            "data: {\"error\":{\"message\":\"overloaded\"}}\n\ndata: [DONE]\n\n",
        )];
        assert_eq!(
            passed(sent, false).await,
            "data: {\"error\":{\"message\":\"overloaded\"}}\n\n"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn silence_ends_in_an_error_at_the_limit() {
        let began = Instant::now();
        let silent = failed("sent nothing for 120 s");
        let sent = vec![Ok("data: "), Ok(CHUNK), Ok("\n\n")];
        assert_eq!(passed(sent, true).await, format!("data: {CHUNK}\n\n{silent}"));
        assert_eq!(began.elapsed().as_secs(), Duration::from_secs(120).as_secs());
    }
}
