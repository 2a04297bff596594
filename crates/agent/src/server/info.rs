//! What the agent is and how it is.

use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use http::StatusCode;
use kaos_openai::{Model, ModelList};
use serde_json::{Value, json};

use super::App;

/// `GET /health`: the process answers.
pub(crate) async fn health(State(app): State<App>) -> Json<Value> {
    Json(json!({"status": "healthy", "name": app.config.name, "timestamp": app.now()}))
}

/// `GET /ready`: everything is there that an answer needs, or what is missing.
pub(crate) async fn ready(State(app): State<App>) -> Response {
    let missing = app.dependencies.missing();
    let (name, timestamp) = (&app.config.name, app.now());
    if missing.is_empty() {
        return Json(json!({"status": "ready", "name": name, "timestamp": timestamp})).into_response();
    }
    let body = json!({"status": "not ready", "name": name, "timestamp": timestamp, "missing": missing});
    (StatusCode::SERVICE_UNAVAILABLE, Json(body)).into_response()
}

/// `GET /metrics`: what was measured, for Prometheus.
pub(crate) async fn metrics(State(app): State<App>) -> http::Response<String> {
    app.telemetry.scrape()
}

/// `GET /.well-known/agent`: what the agent can do, for other agents. Capabilities are those it is set up
/// with, skills are the tools that are there now. Peers are not asked for theirs: they would ask back.
pub(crate) async fn card(State(app): State<App>) -> Json<Value> {
    let tools = &app.dependencies.tools;
    let skills: Vec<Value> = tools
        .offered()
        .into_iter()
        .map(|tool| {
            json!({
                "name": tool.info.name,
                "description": tool.info.description,
                "inputSchema": tool.info.input_schema,
            })
        })
        .collect();
    let mut capabilities = vec!["message_processing", "task_execution"];
    if !tools.is_empty() {
        capabilities.push("tool_execution");
    }
    if !app.dependencies.peers.is_empty() {
        capabilities.push("task_delegation");
    }
    Json(json!({
        "name": app.config.name,
        "description": app.config.description,
        "url": format!("http://localhost:{}", app.config.port),
        "skills": skills,
        "capabilities": capabilities,
    }))
}

/// `GET /v1/models`: the agent itself, for clients that let people choose.
pub(crate) async fn models(State(app): State<App>) -> Json<ModelList> {
    Json(ModelList::new(vec![Model::new(
        &app.config.name,
        app.started,
        "kaos",
    )]))
}
