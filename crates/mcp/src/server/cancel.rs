//! Calls that their clients take back: `notifications/cancelled` reaches the call it names.
//!
//! Requests carry no session that anything depends on, and ids are each client's own. So every client gets a name
//! with the answer to `initialize`, in the header for sessions, by which its cancellations find its calls, and for
//! nothing else: a name that this process has not given is as good as any. With several replicas a cancellation
//! may meet another one than its call, which then runs to its end.
//!
//! A call that is taken back is dropped, as one whose connection is gone; the pool then stops its worker.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use axum::{
    body::Body,
    extract::{Request, State},
    http::{HeaderName, HeaderValue, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use kaos_seams::Seams;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::message::{INVALID_REQUEST, Kind, Message, REQUEST_CANCELLED, failure};

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");

/// A client's name, and the id of a request as JSON.
type Key = (String, String);

/// The calls under way that may be taken back.
#[derive(Clone)]
pub(super) struct Calls {
    table: Arc<Mutex<HashMap<Key, CancellationToken>>>,
    seams: Seams,
}

impl Calls {
    pub(super) fn new(seams: Seams) -> Self {
        Self {
            table: Arc::default(),
            seams,
        }
    }

    fn table(&self) -> MutexGuard<'_, HashMap<Key, CancellationToken>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, key: Key) -> Call {
        let token = CancellationToken::new();
        self.table().insert(key.clone(), token.clone());
        Call {
            calls: self.clone(),
            key,
            token,
        }
    }
}

/// A call, in the table until it ends.
struct Call {
    calls: Calls,
    key: Key,
    token: CancellationToken,
}

impl Drop for Call {
    fn drop(&mut self) {
        self.calls.table().remove(&self.key);
    }
}

/// Stands in front of `/mcp`.
pub(super) async fn layer(State(calls): State<Calls>, request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    let bytes = match crate::body::read(body).await {
        Ok(bytes) => bytes,
        Err((status, said)) => {
            let body = failure(&Value::Null, INVALID_REQUEST, &said);
            return (status, [(header::CONTENT_TYPE, "application/json")], body).into_response();
        }
    };
    // What is no message is refused behind us.
    let message = std::str::from_utf8(&bytes)
        .ok()
        .and_then(|text| Message::parse(text).ok());
    let client = parts
        .headers
        .get(SESSION)
        .and_then(|value| value.to_str().ok())
        .map(str::to_owned);
    let request = Request::from_parts(parts, Body::from(bytes));
    match (message.map(|message| message.kind), client) {
        (Some(Kind::Request { method, .. }), None) if method == "initialize" => {
            let mut response = next.run(request).await;
            if response.status() == StatusCode::OK
                && let Ok(name) = HeaderValue::from_str(&calls.seams.random.uuid())
            {
                response.headers_mut().insert(SESSION, name);
            }
            response
        }
        (Some(Kind::Request { id, .. }), Some(client)) => {
            let call = calls.begin((client, id.to_string()));
            tokio::select! {
                response = next.run(request) => response,
                () = call.token.cancelled() => {
                    let body = failure(&id, REQUEST_CANCELLED, "the request was cancelled by its client");
                    ([(header::CONTENT_TYPE, "application/json")], body).into_response()
                }
            }
        }
        (
            Some(Kind::Notification {
                about: Some(id),
                method,
            }),
            Some(client),
        ) if method == "notifications/cancelled" => {
            if let Some(token) = calls.table().get(&(client, id)) {
                token.cancel();
            }
            StatusCode::ACCEPTED.into_response()
        }
        _ => next.run(request).await,
    }
}
