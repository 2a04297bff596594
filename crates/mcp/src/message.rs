//! JSON-RPC messages as whoever stands between a client and a server sees them: who they are for, and one line of text that is passed on as it is.
//!
//! Only the envelope is read. What is in a message is between the client and the server, so that a field that
//! nobody here knows arrives all the same.

use std::borrow::Cow;

use serde::{Deserialize, de::IgnoredAny};
use serde_json::{Value, json};

/// Codes of JSON-RPC 2.0.
pub(crate) const PARSE_ERROR: i32 = -32700;
pub(crate) const INVALID_REQUEST: i32 = -32600;
/// The first of the codes that are left to servers: the bridge's own.
pub(crate) const BRIDGE_ERROR: i32 = -32000;
/// Of LSP, from which MCP has its cancellation.
pub(crate) const REQUEST_CANCELLED: i32 = -32800;

/// An id or a progress token as a key: its JSON, so that `1` and `"1"` differ.
pub(crate) type Key = String;

/// What a message is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Kind {
    /// Wants an answer.
    Request {
        id: Value,
        method: String,
        /// The token under which progress is told.
        progress: Option<Key>,
    },
    /// Wants none.
    Notification {
        method: String,
        /// The request that is told of: of `notifications/progress` its token, of `notifications/cancelled` its id.
        about: Option<Key>,
    },
    /// Answers a request of the other side.
    Response { id: Value },
}

/// A message and what it is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Message {
    pub(crate) kind: Kind,
    /// The JSON, on one line.
    pub(crate) text: String,
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    jsonrpc: Option<Cow<'a, str>>,
    id: Option<Value>,
    #[serde(borrow)]
    method: Option<Cow<'a, str>>,
    params: Option<Params>,
    result: Option<IgnoredAny>,
    error: Option<IgnoredAny>,
}

/// What of the parameters decides where a message goes; anything else is skipped without a copy.
#[derive(Deserialize)]
#[serde(untagged)]
enum Params {
    Named(Box<Named>),
    Other(IgnoredAny),
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Named {
    #[serde(rename = "_meta")]
    meta: Option<Meta>,
    progress_token: Option<Value>,
    request_id: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Meta {
    progress_token: Option<Value>,
}

/// Why a text is no message: a code of JSON-RPC and what is wrong.
#[derive(Debug, PartialEq, thiserror::Error)]
#[error("{what}")]
pub(crate) struct Malformed {
    pub(crate) code: i32,
    pub(crate) what: String,
}

impl Message {
    /// Reads one message.
    pub(crate) fn parse(text: &str) -> Result<Self, Malformed> {
        let malformed = |code, what: String| Err(Malformed { code, what });
        if text.trim_start().starts_with('[') {
            let what = "a batch of messages is not accepted; send each by itself".to_owned();
            return malformed(INVALID_REQUEST, what);
        }
        let envelope: Envelope<'_> = match serde_json::from_str(text) {
            Ok(envelope) => envelope,
            Err(error) if error.is_data() => {
                return malformed(INVALID_REQUEST, format!("no JSON-RPC message: {error}"));
            }
            Err(error) => return malformed(PARSE_ERROR, format!("no JSON: {error}")),
        };
        if envelope.jsonrpc.as_deref() != Some("2.0") {
            return malformed(INVALID_REQUEST, "the field jsonrpc is not \"2.0\"".to_owned());
        }
        if let Some(id) = &envelope.id
            && !(id.is_string() || id.is_i64() || id.is_u64())
        {
            return malformed(
                INVALID_REQUEST,
                "the id is neither a text nor a whole number".to_owned(),
            );
        }
        let params = match envelope.params {
            Some(Params::Named(named)) => *named,
            Some(Params::Other(_)) | None => Named::default(),
        };
        let key = |value: Option<Value>| value.map(|value| value.to_string());
        let kind = match (envelope.method, envelope.id) {
            (Some(method), Some(id)) => Kind::Request {
                id,
                method: method.into_owned(),
                progress: key(params.meta.and_then(|meta| meta.progress_token)),
            },
            (Some(method), None) => Kind::Notification {
                about: match &*method {
                    "notifications/progress" => key(params.progress_token),
                    "notifications/cancelled" => key(params.request_id),
                    _ => None,
                },
                method: method.into_owned(),
            },
            (None, Some(id)) if envelope.result.is_some() || envelope.error.is_some() => {
                Kind::Response { id }
            }
            (None, _) => {
                return malformed(
                    INVALID_REQUEST,
                    "neither a method nor an answer with its id".to_owned(),
                );
            }
        };
        Ok(Self {
            kind,
            text: one_line(text),
        })
    }
}

/// JSON on one line, as stdio wants it: line breaks can only stand between its tokens.
fn one_line(text: &str) -> String {
    text.trim().replace(['\n', '\r'], " ")
}

/// An error as the answer to the request with `id`; null where it is not known.
pub(crate) fn failure(id: &Value, code: i32, message: &str) -> String {
    json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}}).to_string()
}

#[cfg(test)]
mod tests {
    use kaos_fuzz::Corpus;

    use super::*;

    fn kind(text: &str) -> Kind {
        Message::parse(text).unwrap().kind
    }

    #[test]
    fn each_kind_of_message_is_told_by_its_envelope() {
        let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"progressToken":7},"name":"a"}}"#;
        assert_eq!(
            kind(call),
            Kind::Request {
                id: 1.into(),
                method: "tools/call".to_owned(),
                progress: Some("7".to_owned())
            }
        );
        let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"a"}}"#;
        assert_eq!(
            kind(cancel),
            Kind::Notification {
                method: "notifications/cancelled".to_owned(),
                about: Some("\"a\"".to_owned())
            }
        );
        for answer in [
            r#"{"jsonrpc":"2.0","id":"a","result":{}}"#,
            r#"{"error":{"code":1,"message":"x"},"id":"a","jsonrpc":"2.0"}"#,
        ] {
            assert_eq!(kind(answer), Kind::Response { id: "a".into() });
        }
        let positional = r#"{"jsonrpc":"2.0","method":"x","params":[1]}"#;
        assert!(matches!(kind(positional), Kind::Notification { about: None, .. }));
    }

    #[test]
    fn the_text_is_kept_but_for_line_breaks() {
        let text = "{\"jsonrpc\": \"2.0\",\r\n \"id\": 1, \"method\": \"a\\nb\", \"unknown\": 1.50}\n";
        let message = Message::parse(text).unwrap();
        assert_eq!(
            message.text,
            "{\"jsonrpc\": \"2.0\",   \"id\": 1, \"method\": \"a\\nb\", \"unknown\": 1.50}"
        );
    }

    #[test]
    fn what_is_no_message_is_told() {
        for (text, code, what) in [
            (
                "",
                PARSE_ERROR,
                "no JSON: EOF while parsing a value at line 1 column 0",
            ),
            ("hello", PARSE_ERROR, "no JSON: expected value at line 1 column 1"),
            (
                "[]",
                INVALID_REQUEST,
                "a batch of messages is not accepted; send each by itself",
            ),
            ("{}", INVALID_REQUEST, "the field jsonrpc is not \"2.0\""),
            (
                r#"{"jsonrpc":"2.0","id":1.5,"method":"a"}"#,
                INVALID_REQUEST,
                "the id is neither a text nor a whole number",
            ),
            (
                r#"{"jsonrpc":"2.0","id":1}"#,
                INVALID_REQUEST,
                "neither a method nor an answer with its id",
            ),
        ] {
            let error = Message::parse(text).unwrap_err();
            assert_eq!((error.code, error.what.as_str()), (code, what), "{text}");
        }
        assert!(Message::parse(&"[".repeat(100_000)).is_err());
    }

    #[test]
    fn fuzzed_messages_are_passed_on_as_the_same_on_one_line() {
        let corpus = Corpus::of(concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/messages"));
        let words = [
            "\"jsonrpc\":",
            "\"2.0\"",
            "\"id\":",
            "\"method\":",
            "\"params\":",
            "\"_meta\":",
            "\r",
            "\u{2028}",
        ];
        corpus
            .with_words(&words)
            .fuzz_text(|text| match Message::parse(text) {
                Ok(message) => {
                    assert!(!message.text.contains(['\n', '\r']));
                    assert_eq!(Message::parse(&message.text), Ok(message.clone()));
                    // Lines end between tokens only.
                    let tokens = |text: &str| text.replace([' ', '\n', '\r'], "");
                    assert_eq!(tokens(text.trim()), tokens(&message.text));
                }
                Err(Malformed { code, what }) => {
                    let answer: Value = serde_json::from_str(&failure(&Value::Null, code, &what)).unwrap();
                    assert_eq!(answer["error"]["message"], what);
                }
            });
    }
}
