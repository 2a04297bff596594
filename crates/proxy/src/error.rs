//! Errors as answers in the shape of the OpenAI API.

use axum::{
    Json,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use kaos_openai::ErrorResponse;

/// Of a request that is wrong.
pub(crate) const INVALID: &str = "invalid_request_error";
/// Of an upstream that failed.
pub(crate) const UPSTREAM: &str = "upstream_error";

/// An answer that says what went wrong.
#[derive(Debug)]
pub(crate) struct Failure {
    status: StatusCode,
    /// Boxed: an error is rare, and every fallible function returns room for one.
    body: Box<ErrorResponse>,
    /// Passed on where the upstream asks to wait.
    retry_after: Option<HeaderValue>,
}

impl Failure {
    /// The request is wrong.
    pub(crate) fn invalid(status: StatusCode, message: impl Into<String>) -> Self {
        Self {
            status,
            body: Box::new(ErrorResponse::new(INVALID, message)),
            retry_after: None,
        }
    }

    /// The parameter `name` of the request is wrong.
    pub(crate) fn parameter(name: &str, message: impl Into<String>) -> Self {
        let failure = Self::invalid(StatusCode::BAD_REQUEST, message);
        Self {
            body: Box::new(failure.body.param(name)),
            ..failure
        }
    }

    /// The upstream failed.
    pub(crate) fn upstream(status: StatusCode, message: impl Into<String>) -> Self {
        Self {
            status,
            body: Box::new(ErrorResponse::new(UPSTREAM, message)),
            retry_after: None,
        }
    }

    /// The upstream answered with an error of its own.
    pub(crate) fn passed_on(
        status: StatusCode,
        body: ErrorResponse,
        retry_after: Option<HeaderValue>,
    ) -> Self {
        Self {
            status,
            body: Box::new(body),
            retry_after,
        }
    }

    pub(crate) fn code(self, code: &str) -> Self {
        Self {
            body: Box::new(self.body.code(code)),
            ..self
        }
    }

    /// What the upstream said of when to come again.
    pub(crate) fn retry_after(&self) -> Option<&HeaderValue> {
        self.retry_after.as_ref()
    }

    /// For people.
    pub(crate) fn message(&self) -> &str {
        &self.body.error.message
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.body)).into_response();
        if let Some(wait) = self.retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, wait);
        }
        response
    }
}
