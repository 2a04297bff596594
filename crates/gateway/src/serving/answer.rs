//! Answers of the gateway itself, in the shape of the OpenAI API's errors: most callers read those.

use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use serde_json::json;

use super::Body;

/// How many paths are listed for somebody who missed them.
const LISTED: usize = 20;

/// An error with its status and message.
pub(super) fn error(status: StatusCode, message: &str) -> Response<Body> {
    let kind = if status.is_client_error() {
        "invalid_request_error"
    } else {
        "gateway_error"
    };
    let text = json!({ "error": { "message": message, "type": kind, "code": status.as_u16() } }).to_string();
    let mut response = Response::new(Full::from(text).map_err(|never| match never {}).boxed_unsync());
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// No route fits: says which paths there are.
pub(super) fn no_route(path: &str, paths: &[&str]) -> Response<Body> {
    let message = match paths {
        [] => format!("no route for {path}: there is no accepted HTTPRoute yet"),
        _ => {
            let listed = paths.iter().take(LISTED).copied().collect::<Vec<_>>().join(", ");
            let more = match paths.len().saturating_sub(LISTED) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            format!("no route for {path}: a path is, or begins with, one of {listed}{more}")
        }
    };
    error(StatusCode::NOT_FOUND, &message)
}
