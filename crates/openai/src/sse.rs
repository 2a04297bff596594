//! Server-sent events: the frames a completion is streamed in.
//!
//! The decoder follows <https://html.spec.whatwg.org/multipage/server-sent-events.html> as far as data and
//! event names go; identifiers and reconnection times have no meaning in this API and are skipped.

use serde::Serialize;

/// The data of the last event of a completion.
pub const DONE: &str = "[DONE]";

/// The bytes of the last event of a completion.
pub const DONE_FRAME: &[u8] = b"data: [DONE]\n\n";

/// The frame that carries `value`: `data: {json}` and an empty line.
///
/// # Errors
/// If `value` cannot be written as JSON, which no type of this crate causes.
pub fn frame(value: &impl Serialize) -> Result<Vec<u8>, serde_json::Error> {
    let mut bytes = b"data: ".to_vec();
    // JSON text has no raw line breaks, so that one line always carries it.
    serde_json::to_writer(&mut bytes, value)?;
    bytes.extend_from_slice(b"\n\n");
    Ok(bytes)
}

/// One event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// Its name, where it has one.
    pub name: Option<String>,
    /// Its data; several lines are joined by a line feed.
    pub data: String,
}

/// An event that is larger than the decoder allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("server-sent event is larger than {limit} bytes")]
pub struct EventTooLarge {
    limit: usize,
}

/// Decodes a stream of events from bytes as they arrive, however they are split.
#[derive(Debug)]
pub struct Decoder {
    limit: usize,
    /// The current line, without its end.
    line: Vec<u8>,
    /// The last byte was a carriage return; a line feed that follows belongs to the same line end.
    after_return: bool,
    at_start: bool,
    event: Event,
    /// The event has a data field: one with empty data is an event, one without is not.
    has_data: bool,
}

impl Decoder {
    /// A decoder that holds at most about `limit` bytes of one event.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            line: Vec::new(),
            after_return: false,
            at_start: true,
            event: Event::default(),
            has_data: false,
        }
    }

    /// Takes more bytes and returns the events that they complete. Bytes that are not UTF-8 become
    /// replacement characters.
    ///
    /// # Errors
    /// If an event is larger than the limit; the stream cannot be read further then.
    pub fn feed(&mut self, mut bytes: &[u8]) -> Result<Vec<Event>, EventTooLarge> {
        let mut events = Vec::new();
        if !bytes.is_empty() && std::mem::take(&mut self.after_return) && bytes[0] == b'\n' {
            bytes = &bytes[1..];
        }
        while let Some(end) = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            self.extend_line(&bytes[..end])?;
            events.extend(self.end_line());
            let returned = bytes[end] == b'\r';
            bytes = &bytes[end + 1..];
            if returned {
                match bytes.first() {
                    Some(b'\n') => bytes = &bytes[1..],
                    Some(_) => {}
                    None => self.after_return = true,
                }
            }
        }
        self.extend_line(bytes)?;
        Ok(events)
    }

    /// The event that the end of the stream completes: some servers leave out the empty line after the last.
    /// An event that was cut off in its middle is returned as well; its data will not be JSON.
    pub fn finish(mut self) -> Option<Event> {
        if !self.line.is_empty()
            && let Some(event) = self.end_line()
        {
            return Some(event);
        }
        self.end_event()
    }

    fn extend_line(&mut self, bytes: &[u8]) -> Result<(), EventTooLarge> {
        if self.line.len() + bytes.len() + self.event.data.len() > self.limit {
            return Err(EventTooLarge { limit: self.limit });
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    fn end_line(&mut self) -> Option<Event> {
        let line = std::mem::take(&mut self.line);
        let mut line = line.as_slice();
        if std::mem::take(&mut self.at_start) {
            line = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line);
        }
        if line.is_empty() {
            return self.end_event();
        }
        let (name, value) = match line.iter().position(|byte| *byte == b':') {
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (line, &[][..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match name {
            b"data" => {
                if self.has_data {
                    self.event.data.push('\n');
                }
                self.has_data = true;
                self.event.data.push_str(&String::from_utf8_lossy(value));
            }
            b"event" => self.event.name = Some(String::from_utf8_lossy(value).into_owned()),
            // Comments (an empty name), `id`, `retry` and fields that nobody defined.
            _ => {}
        }
        None
    }

    fn end_event(&mut self) -> Option<Event> {
        let event = std::mem::take(&mut self.event);
        std::mem::take(&mut self.has_data).then_some(event)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMIT: usize = 1 << 16;

    fn decode(pieces: &[&[u8]]) -> Vec<String> {
        let mut decoder = Decoder::new(LIMIT);
        let mut data: Vec<String> = Vec::new();
        for piece in pieces {
            data.extend(decoder.feed(piece).unwrap().into_iter().map(|event| event.data));
        }
        data.extend(decoder.finish().map(|event| event.data));
        data
    }

    #[test]
    fn frames_are_exact() {
        assert_eq!(
            frame(&serde_json::json!({"a": "x\ny"})).unwrap(),
            b"data: {\"a\":\"x\\ny\"}\n\n"
        );
        assert_eq!(DONE_FRAME, format!("data: {DONE}\n\n").as_bytes());
    }

    #[test]
    fn every_form_of_event_is_decoded() {
        let cases: [(&str, &[&str]); 14] = [
            ("data: a\n\ndata: b\n\n", &["a", "b"]),
            ("data: a\r\n\r\ndata: b\r\n\r\n", &["a", "b"]),
            ("data: a\r\rdata: b\r\r", &["a", "b"]),
            ("data:a\n\n", &["a"]),
            ("data:  a\n\n", &[" a"]),
            ("data: a\ndata: b\n\n", &["a\nb"]),
            (": ping\n\n:\n\ndata: a\n\n", &["a"]),
            ("event: x\nid: 7\nretry: 9\ndata: a\nunknown\n\n", &["a"]),
            ("event: x\n\ndata: a\n\n", &["a"]),
            ("data\n\n", &[""]),
            ("\u{feff}data: a\n\n", &["a"]),
            ("data: a\n\ndata: [DONE]", &["a", "[DONE]"]),
            ("\n\n\r\n", &[]),
            ("data: a\r\n\ndata: b\r\r\n", &["a", "b"]),
        ];
        for (stream, expected) in cases {
            assert_eq!(decode(&[stream.as_bytes()]), expected, "{stream:?}");
            let bytes: Vec<&[u8]> = stream.as_bytes().chunks(1).collect();
            assert_eq!(decode(&bytes), expected, "byte by byte: {stream:?}");
        }
    }

    #[test]
    fn an_event_keeps_its_name_to_itself() {
        let events = Decoder::new(LIMIT)
            .feed(b"event: error\ndata: a\n\ndata: b\n\n")
            .unwrap();
        assert_eq!(
            events[0],
            Event {
                name: Some("error".to_owned()),
                data: "a".to_owned()
            }
        );
        assert_eq!(events[1].name, None);
    }

    #[test]
    fn an_event_larger_than_the_limit_is_refused() {
        let mut one_line = Decoder::new(10);
        assert_eq!(
            one_line.feed(b"data: 0123456789"),
            Err(EventTooLarge { limit: 10 })
        );
        let mut many_lines = Decoder::new(10);
        let fed: Result<Vec<_>, _> = (0..9).map(|_| many_lines.feed(b"data: 1\n")).collect();
        assert_eq!(fed, Err(EventTooLarge { limit: 10 }));
        let mut endless = Decoder::new(10);
        for _ in 0..1_000 {
            assert_eq!(endless.feed(b": ping\n\n"), Ok(Vec::new()));
        }
    }

    proptest! {
        #[test]
        fn garbage_never_panics_and_splitting_changes_nothing(
            bytes in proptest::collection::vec(
                prop_oneof![Just(b'\n'), Just(b'\r'), Just(b':'), Just(b' '), Just(b'd'), any::<u8>()], 0..200),
            cut in 0usize..200,
        ) {
            let cut = cut.min(bytes.len());
            prop_assert_eq!(decode(&[&bytes]), decode(&[&bytes[..cut], &bytes[cut..]]));
        }

        #[test]
        fn what_is_encoded_is_decoded(values in proptest::collection::vec(".*", 0..8), size in 1usize..40) {
            let mut stream = Vec::new();
            for value in &values {
                stream.extend(frame(value).unwrap());
            }
            let pieces: Vec<&[u8]> = stream.chunks(size).collect();
            let read: Vec<String> =
                decode(&pieces).iter().map(|data| serde_json::from_str(data).unwrap()).collect();
            prop_assert_eq!(read, values);
        }
    }
}
