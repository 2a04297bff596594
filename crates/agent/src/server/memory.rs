//! What the agent remembers, for people who look for the reason of an answer. Whoever reaches the agent can
//! read it.

use axum::{
    Json,
    extract::{Query, State, rejection::QueryRejection},
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{App, refusal::Refusal};

/// How many events are shown where the request does not say, and at most.
const SHOWN: usize = 100;
const SHOWN_AT_MOST: usize = 1000;

#[derive(Debug, Deserialize)]
pub(crate) struct Choice {
    /// How many of the last events; 0: as many as are shown at most.
    #[serde(default)]
    limit: Option<usize>,
    /// Of which session; absent or empty: of all.
    #[serde(default)]
    session_id: Option<String>,
}

/// `GET /memory/events`: the last events, the oldest first.
pub(crate) async fn events(
    State(app): State<App>,
    choice: Result<Query<Choice>, QueryRejection>,
) -> Result<Json<Value>, Refusal> {
    let Query(choice) = choice.map_err(|rejection| Refusal::bad_request(rejection.body_text()))?;
    let limit = match choice.limit.unwrap_or(SHOWN) {
        0 => SHOWN_AT_MOST,
        limit => limit.min(SHOWN_AT_MOST),
    };
    let session = choice.session_id.as_deref().filter(|id| !id.is_empty());
    let events = match &app.memory {
        Some(memory) => memory.events(session, limit),
        None => Vec::new(),
    };
    let events: Vec<_> = events.iter().map(AsRef::as_ref).collect();
    Ok(Json(
        json!({"agent": app.config.name, "events": events, "total": events.len()}),
    ))
}

/// `GET /memory/sessions`: their names, the one used last at the end.
pub(crate) async fn sessions(State(app): State<App>) -> Json<Value> {
    let sessions = app
        .memory
        .as_ref()
        .map(|memory| memory.session_ids())
        .unwrap_or_default();
    Json(json!({"agent": app.config.name, "sessions": sessions, "total": sessions.len()}))
}
