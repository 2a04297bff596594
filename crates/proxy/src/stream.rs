//! An upstream's stream of events, passed on event by event as they arrive.
//!
//! Chunks are passed on as they were written. What can go wrong once the status is sent (silence, garbage, a
//! connection that ends in the middle) reaches the caller as an event with an error, in the API's shape, and
//! never as an answer that merely looks complete.

use std::{collections::VecDeque, convert::Infallible};

use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use kaos_openai::{
    ErrorResponse,
    sse::{self, Decoder, Event},
};
use serde_json::Value;

use crate::{error::UPSTREAM, forward::IDLE_TIMEOUT};

/// The largest event in bytes.
const MAX_EVENT: usize = 8 * 1024 * 1024;

struct Passage<S> {
    upstream: S,
    name: String,
    decoder: Decoder,
    ready: VecDeque<Bytes>,
    /// Some choice has said why it stopped: an end without `[DONE]` is an end all the same.
    finished: bool,
    over: bool,
}

/// The events of `upstream`, which messages call `name`. Dropping the stream drops the connection.
pub(crate) fn pass_on<S, E>(upstream: S, name: String) -> impl Stream<Item = Result<Bytes, Infallible>>
where
    S: Stream<Item = Result<Bytes, E>> + Send + 'static,
    E: std::fmt::Display,
{
    let passage = Passage {
        upstream: Box::pin(upstream),
        name,
        decoder: Decoder::new(MAX_EVENT),
        ready: VecDeque::new(),
        finished: false,
        over: false,
    };
    stream::unfold(passage, |mut passage| async move {
        let frame = passage.next().await?;
        Some((Ok(frame), passage))
    })
}

impl<S, E> Passage<S>
where
    S: Stream<Item = Result<Bytes, E>> + Unpin,
    E: std::fmt::Display,
{
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
                Ok(Some(Err(error))) => {
                    tracing::warn!(upstream = self.name, %error, "the upstream's stream broke");
                    self.fail("broke off in the middle of its answer".to_owned());
                }
                Ok(Some(Ok(bytes))) => self.feed(&bytes),
                Ok(None) => self.end(),
            }
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
        match serde_json::from_str::<Value>(&event.data) {
            Ok(value) if value.get("error").is_some_and(|error| !error.is_null()) => {
                self.pass_value(&event.data, &value);
                self.over = true;
            }
            Ok(value) if value.is_object() => {
                let choices = value.get("choices").and_then(Value::as_array);
                self.finished |= choices
                    .is_some_and(|choices| choices.iter().any(|choice| choice["finish_reason"].is_string()));
                self.pass_value(&event.data, &value);
            }
            _ => self.fail("sent an event that is not JSON".to_owned()),
        }
    }

    fn pass_value(&mut self, written: &str, value: &Value) {
        // JSON on several lines is legal in an event, yet few clients can read it.
        let frame = if written.contains('\n') {
            sse::frame(value).unwrap_or_default()
        } else {
            [b"data: ", written.as_bytes(), b"\n\n"].concat()
        };
        self.ready.push_back(frame.into());
    }

    fn end(&mut self) {
        let decoder = std::mem::replace(&mut self.decoder, Decoder::new(MAX_EVENT));
        let last = decoder.finish();
        // The last event may lack the empty line after it. One that cannot be read was cut off.
        if let Some(event) = last
            && (event.data.trim() == sse::DONE || serde_json::from_str::<Value>(&event.data).is_ok())
        {
            self.pass(&event);
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
        let frame = sse::frame(&ErrorResponse::new(UPSTREAM, message)).unwrap_or_default();
        self.ready.push_back(frame.into());
        self.over = true;
    }
}
