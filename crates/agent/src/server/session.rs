//! Which session a request belongs to.

use http::{HeaderMap, HeaderName};
use kaos_openai::Extra;
use serde_json::Value;

use super::refusal::Refusal;
use crate::memory::{InvalidSession, SessionId};

/// The header that names a session, in requests and answers.
pub(super) const SESSION_HEADER: HeaderName = HeaderName::from_static("x-session-id");
/// The field that does so in a body.
pub(super) const SESSION_FIELD: &str = "session_id";

/// Takes the session out of a request: that of its body, else that of its header. An empty name is none, as
/// clients send it before they have one.
pub(super) fn named(headers: &HeaderMap, body: &mut Extra) -> Result<Option<SessionId>, Refusal> {
    let refused = |error: InvalidSession| Refusal::bad_request(error.to_string());
    let in_body = match body.remove(SESSION_FIELD) {
        None | Some(Value::Null) => None,
        Some(Value::String(id)) if id.is_empty() => None,
        Some(Value::String(id)) => Some(SessionId::parse(&id).map_err(refused)?),
        Some(other) => {
            let detail = format!("session_id is {other}, which is not a string");
            return Err(Refusal::bad_request(detail));
        }
    };
    let in_header = match headers.get(SESSION_HEADER) {
        None => None,
        Some(value) if value.is_empty() => None,
        Some(value) => {
            let id = String::from_utf8_lossy(value.as_bytes());
            Some(SessionId::parse(&id).map_err(refused)?)
        }
    };
    match (in_body, in_header) {
        (Some(body), Some(header)) if body != header => Err(Refusal::bad_request(format!(
            "session_id is {:?} in the body and {:?} in the header X-Session-ID: give one",
            body.as_str(),
            header.as_str()
        ))),
        (body, header) => Ok(body.or(header)),
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_request_names_a_session_none_or_a_wrong_one(
            header in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..140)),
            body in proptest::option::of(prop_oneof![".{0,140}", "[!-~]{1,128}"]),
        ) {
            let header = header.and_then(|bytes| HeaderValue::from_bytes(&bytes).ok());
            let headers = header.iter().map(|value| (SESSION_HEADER, value.clone())).collect();
            let named_in_body = body.clone();
            let mut extra: Extra = body.map(|id| (SESSION_FIELD.to_owned(), id.into())).into_iter().collect();
            if let Ok(Some(session)) = named(&headers, &mut extra) {
                let in_header = header.as_ref().and_then(|value| value.to_str().ok());
                let id = Some(session.as_str());
                prop_assert!(id == in_header || id == named_in_body.as_deref());
            }
            prop_assert!(extra.is_empty(), "models know no sessions");
        }
    }
}
