//! The step beside a running Ollama: has it pull one model, looks that it stays, and tells how far it is.

use std::time::Duration;

use axum::{Json, Router, extract::State as Shared, http::StatusCode, routing::get};
use kaos_seams::Seams;
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::watch};
use tokio_util::sync::CancellationToken;

use crate::{
    client::Ollama,
    keeper::Keeper,
    name::ModelName,
    progress::{Progress, State},
};

/// How long an answer that is being given at the end may take.
const DRAIN: Duration = Duration::from_secs(1);

type Told = watch::Receiver<Progress>;

/// Has `ollama` pull `model` whenever it is not there, and serves on `listener` until `shutdown`:
/// `/ready` (200 only while the model is there), `/progress` ([`Progress`] as JSON) and `/health`.
/// What goes wrong with Ollama is told at `/progress` and tried again.
pub async fn serve(
    model: ModelName,
    ollama: Ollama,
    listener: TcpListener,
    seams: Seams,
    shutdown: CancellationToken,
) {
    let (tell, told) = watch::channel(Progress {
        model: model.to_string(),
        ..Progress::default()
    });
    let app = Router::new()
        .route("/ready", get(ready))
        .route("/progress", get(progress))
        .route("/health", get(healthy))
        .with_state(told);
    let keeper = Keeper {
        model,
        source: ollama,
        tell,
        random: seams.random,
    };
    tokio::select! {
        () = kaos_serving::serve(listener, app, shutdown.clone()) => {}
        never = keeper.keep() => match never {},
        // A caller who holds a connection does not hold up the end: answers here are short.
        () = kaos_serving::end_of_grace(&shutdown, DRAIN) => {}
    }
}

async fn healthy() -> Json<Value> {
    Json(json!({"status": "healthy"}))
}

async fn progress(Shared(told): Shared<Told>) -> Json<Progress> {
    Json(told.borrow().clone())
}

async fn ready(Shared(told): Shared<Told>) -> (StatusCode, Json<Progress>) {
    let progress = told.borrow().clone();
    let code = match progress.state {
        State::Pulled => StatusCode::OK,
        State::Waiting | State::Pulling | State::Failed => StatusCode::SERVICE_UNAVAILABLE,
    };
    (code, Json(progress))
}
