//! The agent's HTTP server: the Chat Completions API, what the agent is, whether it is ready, and what it
//! remembers.

mod chat;
mod frames;
mod info;
mod memory;
mod refusal;
mod session;
#[cfg(test)]
mod tests;

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::{
    Router,
    extract::{DefaultBodyLimit, Request},
    middleware::{self, Next},
    response::Response,
    routing::{get, post},
};
use http::StatusCode;
use kaos_seams::Seams;
use kaos_telemetry::Telemetry;
use tokio::{net::TcpListener, time::sleep};
use tokio_util::sync::CancellationToken;

use crate::{
    config::{Config, ToolCalls},
    dependencies::Dependencies,
    drive::Means,
    memory::Memory,
    operations::Operations,
    pace::Pace,
    peers::Hop,
    run::Calling,
    server::refusal::Refusal,
};

/// How large a request may be, in bytes.
const BODY_LIMIT: usize = 4 << 20;
/// How long connections may take to close once all answers have been cut off.
const CLOSING: Duration = Duration::from_secs(1);

/// What the handlers share.
#[derive(Clone)]
pub(crate) struct App {
    config: Arc<Config>,
    dependencies: Arc<Dependencies>,
    memory: Option<Arc<Memory>>,
    operations: Arc<Operations>,
    telemetry: Telemetry,
    seams: Seams,
    /// Whether the model has refused tools.
    takes_no_tools: Arc<AtomicBool>,
    /// When the agent began, in seconds since the epoch.
    started: i64,
    /// Ends the answers that are still going on.
    cut: CancellationToken,
}

impl App {
    pub(crate) fn new(
        config: Config,
        dependencies: Arc<Dependencies>,
        seams: Seams,
        telemetry: Telemetry,
    ) -> Self {
        let started = seams.clock.now().as_second();
        let memory = config.memory.map(|limits| Arc::new(Memory::new(limits, &seams)));
        let operations = Arc::new(Operations::new(telemetry.clone(), &config.name));
        Self {
            config: Arc::new(config),
            dependencies,
            memory,
            operations,
            telemetry,
            seams,
            takes_no_tools: Arc::default(),
            started,
            cut: CancellationToken::new(),
        }
    }

    fn means(&self, hop: Hop) -> Means {
        Means {
            model: self.dependencies.model.clone(),
            tools: self.dependencies.tools.clone(),
            peers: self.dependencies.peers.clone(),
            operations: self.operations.clone(),
            hop,
            tool_timeout: self.config.tool_timeout,
            delegation_timeout: self.config.delegation_timeout,
            request_timeout: self.config.request_timeout,
            takes_no_tools: match self.config.tool_calls {
                ToolCalls::Auto => Some(self.takes_no_tools.clone()),
                ToolCalls::Native | ToolCalls::Text => None,
            },
        }
    }

    /// How the model calls tools, as far as is known.
    fn calling(&self) -> Calling {
        match self.config.tool_calls {
            ToolCalls::Text => Calling::Text,
            ToolCalls::Auto if self.takes_no_tools.load(Ordering::Relaxed) => Calling::Text,
            ToolCalls::Auto | ToolCalls::Native => Calling::Native,
        }
    }

    fn now(&self) -> i64 {
        self.seams.clock.now().as_second()
    }
}

/// The routes.
pub(crate) fn router(app: App) -> Router {
    let shown = if app.config.memory_endpoints {
        Router::new()
            .route("/memory/events", get(memory::events))
            .route("/memory/sessions", get(memory::sessions))
    } else {
        Router::new()
    };
    shown
        .route("/health", get(info::health))
        .route("/ready", get(info::ready))
        .route("/metrics", get(info::metrics))
        .route("/.well-known/agent", get(info::card))
        .route("/v1/models", get(info::models))
        .route("/v1/chat/completions", post(chat::completions))
        .fallback(async || Refusal::new(StatusCode::NOT_FOUND, "Not Found"))
        .method_not_allowed_fallback(async || {
            Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed")
        })
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
        .with_state(app)
}

/// Answers a request, and writes a line of the log about it. The query is left out: it may name a session.
async fn logged(request: Request, next: Next) -> Response {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let response = next.run(request).await;
    tracing::info!(%method, path, status = response.status().as_u16(), "request");
    response
}

/// Serves until `shutdown`, then for as long as answers that have begun may take.
pub(crate) async fn serve(app: App, listener: TcpListener, shutdown: CancellationToken) -> io::Result<()> {
    let (cut, grace) = (app.cut.clone(), app.config.shutdown_grace);
    let pace = Pace::new(app.seams.random.clone());
    let dependencies = app.dependencies.clone();
    let guard = app.config.hosts.clone().on_loopback(listener.local_addr()?);
    let access_log = app.config.access_log;
    let mut routes = router(app);
    if let Some(guard) = guard {
        routes = routes.layer(middleware::from_fn_with_state(guard, kaos_guard::guard));
    }
    if access_log {
        routes = routes.layer(middleware::from_fn(logged));
    }
    let listening = kaos_serving::serve(listener, routes, shutdown.clone());
    let serving = async { tokio::join!(listening, dependencies.watch(&pace, &shutdown)) };
    let deadline = async {
        kaos_serving::end_of_grace(&shutdown, grace).await;
        tracing::warn!(
            grace_seconds = grace.as_secs_f64(),
            "answers that have not ended are cut off"
        );
        cut.cancel();
        sleep(CLOSING).await;
    };
    tokio::select! {
        _ = serving => {}
        () = deadline => {}
    }
    Ok(())
}
