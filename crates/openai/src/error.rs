//! Errors as the API reports them.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Extra, lenient};

/// The body of an answer whose HTTP status is not a success.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ErrorResponse {
    /// The error.
    #[serde(deserialize_with = "body")]
    pub error: ErrorBody,
}

/// What went wrong.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// For people.
    #[serde(default, deserialize_with = "lenient::text")]
    pub message: String,
    /// The kind of error: `invalid_request_error`, `rate_limit_error`, `server_error`, …
    #[serde(rename = "type", default, deserialize_with = "lenient::optional_text")]
    pub kind: Option<String>,
    /// The parameter of the request that is wrong.
    #[serde(default, deserialize_with = "lenient::optional_text")]
    pub param: Option<String>,
    /// For programs: `model_not_found`, …
    #[serde(default, deserialize_with = "lenient::optional_text")]
    pub code: Option<String>,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}

impl ErrorResponse {
    /// An error of `kind` with a message for people.
    pub fn new(kind: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            error: ErrorBody {
                message: message.into(),
                kind: Some(kind.into()),
                ..ErrorBody::default()
            },
        }
    }

    /// Names the parameter of the request that is wrong.
    #[must_use]
    pub fn param(mut self, param: impl Into<String>) -> Self {
        self.error.param = Some(param.into());
        self
    }

    /// Sets the code for programs.
    #[must_use]
    pub fn code(mut self, code: impl Into<String>) -> Self {
        self.error.code = Some(code.into());
        self
    }

    /// What the body of a failed answer says, in at most `limit` characters of one line: the message of an
    /// error in the API's shape or in one of the shapes that other servers use, else the text itself.
    pub fn describe(body: &[u8], limit: usize) -> String {
        let text = serde_json::from_slice::<Value>(body)
            .ok()
            .and_then(|value| stated(&value))
            .unwrap_or_else(|| String::from_utf8_lossy(body).into_owned());
        let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
        match line.char_indices().nth(limit) {
            Some((end, _)) => format!("{}…", &line[..end]),
            None => line,
        }
    }
}

/// `error.message`, or the `error`, `message` or `detail` of servers that leave the shape of the API.
fn stated(value: &Value) -> Option<String> {
    [
        value.pointer("/error/message"),
        value.get("error"),
        value.get("message"),
        value.get("detail"),
    ]
    .into_iter()
    .flatten()
    .find_map(|found| found.as_str().filter(|text| !text.is_empty()))
    .map(str::to_owned)
}

/// An object as in the API, or just a message.
fn body<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<ErrorBody, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Shape {
        Object(ErrorBody),
        Message(String),
    }
    Ok(match Shape::deserialize(deserializer)? {
        Shape::Object(body) => body,
        Shape::Message(message) => ErrorBody {
            message,
            ..ErrorBody::default()
        },
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_error_writes_all_its_four_fields() {
        assert_eq!(
            serde_json::to_string(&ErrorResponse::new("invalid_request_error", "no such model")).unwrap(),
            r#"{"error":{"message":"no such model","type":"invalid_request_error","param":null,"code":null}}"#
        );
        let full = ErrorResponse::new("invalid_request_error", "no such model")
            .param("model")
            .code("model_not_found");
        assert_eq!(
            serde_json::to_value(&full).unwrap()["error"],
            json!({"message": "no such model", "type": "invalid_request_error", "param": "model", "code": "model_not_found"})
        );
    }

    #[test]
    fn other_shapes_are_read() {
        let read = |value| serde_json::from_value::<ErrorResponse>(value).map(|response| response.error);
        assert_eq!(read(json!({"error": "boom"})).unwrap().message, "boom");
        assert_eq!(
            read(json!({"error": {"message": "x", "code": 429}}))
                .unwrap()
                .code
                .as_deref(),
            Some("429")
        );
        assert!(read(json!({"error": 7})).is_err());
    }

    #[test]
    fn a_failed_answer_is_described_shortly() {
        let describe = |body: &str| ErrorResponse::describe(body.as_bytes(), 20);
        assert_eq!(describe(r#"{"error":{"message":"rate limit"}}"#), "rate limit");
        assert_eq!(describe(r#"{"error":"boom"}"#), "boom");
        assert_eq!(describe(r#"{"detail":"Not Found"}"#), "Not Found");
        assert_eq!(
            describe("<html>\n  <b>bad   gateway</b> of the proxy"),
            "<html> <b>bad gatewa…"
        );
        assert_eq!(describe(""), "");
        assert_eq!(ErrorResponse::describe(b"\xff\xfe", 20), "\u{fffd}\u{fffd}");
        assert_eq!(describe("ééééééééééééééééééééé"), "éééééééééééééééééééé…");
    }
}
