//! Answers to requests that are not served: `detail`, as callers of KAOS agents know it, and the `error` that
//! OpenAI's SDKs show.

use axum::{
    Json,
    response::{IntoResponse, Response},
};
use http::StatusCode;
use serde_json::json;

/// Why a request is not served.
#[derive(Debug)]
pub(crate) struct Refusal {
    status: StatusCode,
    detail: String,
}

impl Refusal {
    pub(crate) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self {
            status,
            detail: detail.into(),
        }
    }

    pub(crate) fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let kind = if self.status.is_server_error() {
            "server_error"
        } else {
            "invalid_request_error"
        };
        let error = json!({"message": self.detail, "type": kind, "param": null, "code": null});
        let body = json!({"detail": self.detail, "error": error});
        (self.status, Json(body)).into_response()
    }
}
