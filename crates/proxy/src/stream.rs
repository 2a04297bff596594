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
        let frames = pass_on(upstream, "models:8000".to_owned());
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
            "data: {\"choices\":[]}\n\ndata: [DONE]\n\n"
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
