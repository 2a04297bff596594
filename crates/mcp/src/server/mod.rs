//! Python functions served as MCP tools: the role `kaos serve tools`.
//!
//! Owns the HTTP front (`/mcp`, `/health`, `/ready`) and the Python workers behind it. Nothing depends on a
//! session: any replica answers any request, and a restart is not noticed by clients. Module state of the
//! Python source lives in each worker by itself and is lost with it.
//!
//! Never runs user code in this process, and never lets it write to the protocol: see `python/worker.py`.

mod cancel;
mod config;
mod handler;
mod pool;
mod source;
mod worker;

use std::{io, sync::Arc};

use axum::{
    Json, Router,
    extract::State,
    http::{HeaderMap, StatusCode, header},
    middleware,
    response::{IntoResponse, Response},
    routing,
};
use kaos_guard::HostPolicy;
use kaos_seams::Seams;
use kaos_serving::DRAIN;
use kaos_telemetry::Telemetry;
use rmcp::transport::streamable_http_server::{
    StreamableHttpServerConfig, StreamableHttpService, session::never::NeverSessionManager,
};
use serde_json::json;
use tokio::net::TcpListener;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use self::{cancel::Calls, handler::Tools, source::Current};
pub use self::{
    config::{
        ConfigError, FILE_VARIABLE, REQUIREMENTS_VARIABLE, SOURCE_VARIABLE, Source, ToolServerConfig,
        WORKERS_VARIABLE,
    },
    worker::StartError,
};

/// Why the tool server ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The tools could not be loaded.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The listener failed.
    #[error("the tool server cannot serve: {0}")]
    Serve(#[from] io::Error),
}

/// Tools that are loaded and not yet served.
pub struct ToolServer {
    current: Arc<Current>,
    hosts: HostPolicy,
    seams: Seams,
    telemetry: Telemetry,
}

impl ToolServer {
    /// Starts the workers and loads the source. Do this before the port is taken: whoever probes it by a
    /// connection alone would take a server that is about to refuse its source for a ready one.
    ///
    /// # Errors
    /// When there is no usable Python or the source cannot be loaded, with the place.
    pub async fn load(config: ToolServerConfig, seams: Seams) -> Result<Self, StartError> {
        let hosts = config.hosts.clone();
        let current = Arc::new(Current::load(config, seams.clone()).await?);
        let telemetry = Telemetry::off();
        Ok(Self {
            current,
            hosts,
            seams,
            telemetry,
        })
    }

    /// Has each call told to `telemetry`, which is left on in the end.
    #[must_use]
    pub fn with_telemetry(self, telemetry: Telemetry) -> Self {
        Self { telemetry, ..self }
    }

    /// Serves the tools on `listener` until `shutdown`, then lets running calls end.
    ///
    /// # Errors
    /// When the listener fails.
    pub async fn serve(self, listener: TcpListener, shutdown: CancellationToken) -> Result<(), Error> {
        let address = listener.local_addr()?;
        tracing::info!(%address, tools = self.current.pool().names(), "serving tools");

        let drained = CancellationToken::new();
        let guard = middleware::from_fn_with_state(self.hosts.on(address), kaos_guard::guard);
        let app = router(self.current.clone(), self.telemetry, self.seams, drained.clone()).layer(guard);
        let following = AbortOnDropHandle::new(tokio::spawn(self.current.follow()));
        tokio::select! {
            () = kaos_serving::serve(listener, app, shutdown.clone()) => {}
            () = kaos_serving::end_of_grace(&shutdown, DRAIN) => {
                tracing::warn!("calls were still running at the end of the shutdown and are stopped");
            }
        }
        drop(following);
        drained.cancel();
        Ok(())
    }
}

/// Loads the tools of `config` and serves them on `listener` until `shutdown`.
///
/// # Errors
/// As [`ToolServer::load`] and [`ToolServer::serve`].
pub async fn serve(
    config: ToolServerConfig,
    listener: TcpListener,
    seams: Seams,
    shutdown: CancellationToken,
) -> Result<(), Error> {
    let server = tokio::select! {
        server = ToolServer::load(config, seams) => server?,
        () = shutdown.cancelled() => return Ok(()),
    };
    server.serve(listener, shutdown).await
}

fn router(current: Arc<Current>, telemetry: Telemetry, seams: Seams, stop: CancellationToken) -> Router {
    let tools = current.clone();
    // The host check is ours, for this one knows no names below a domain; see `hosts`.
    let config = StreamableHttpServerConfig::default()
        .disable_allowed_hosts()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        .with_cancellation_token(stop);
    let sessions = Arc::new(NeverSessionManager::default());
    let (scraped, calls) = (telemetry.clone(), handler::measure(&telemetry));
    let mcp = StreamableHttpService::new(
        move || Ok(Tools::new(tools.pool(), telemetry.clone(), calls.clone())),
        sessions,
        config,
    );
    Router::new()
        .route(
            "/mcp",
            routing::post_service(mcp)
                .layer(middleware::from_fn_with_state(Calls::new(seams), cancel::layer))
                .get(no_stream),
        )
        .route(
            "/health",
            routing::get(|| async { Json(json!({"status": "healthy"})) }),
        )
        .route("/ready", routing::get(ready))
        .route("/metrics", routing::get(move || async move { scraped.scrape() }))
        .with_state(current)
}

/// There is nothing to stream outside of calls. Probes that send a bare GET hear that the endpoint is there.
async fn no_stream(headers: HeaderMap) -> Response {
    let streams = headers
        .get(header::ACCEPT)
        .and_then(|accept| accept.to_str().ok())
        .is_some_and(|accept| accept.contains("text/event-stream"));
    if streams {
        (
            StatusCode::METHOD_NOT_ALLOWED,
            [(header::ALLOW, "POST")],
            "this server opens no stream\n",
        )
            .into_response()
    } else {
        let error = json!({"code": -32600, "message": "send MCP requests by POST"});
        (
            StatusCode::NOT_ACCEPTABLE,
            Json(json!({"jsonrpc": "2.0", "id": null, "error": error})),
        )
            .into_response()
    }
}

async fn ready(State(current): State<Arc<Current>>) -> Response {
    let workers = current.pool().living();
    if workers == 0 {
        let body = json!({"status": "not ready", "reason": "no Python worker is running"});
        return (StatusCode::SERVICE_UNAVAILABLE, Json(body)).into_response();
    }
    Json(json!({"status": "ready", "workers": workers})).into_response()
}
