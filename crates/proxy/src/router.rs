//! The HTTP front: routes, limits, and what a request may say.

use std::{io, sync::Arc, time::Duration};

use axum::{
    Json, Router,
    body::Body,
    extract::{Request, State},
    http::{StatusCode, Uri, header},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use kaos_openai::{Model, ModelList};
use kaos_seams::Seams;
use serde_json::{Map, Value, json};
use tokio::{net::TcpListener, sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;
use url::{Host, Url};

use crate::{
    config::{Config, Target},
    error::Failure,
    forward::Forwarder,
    live::{InForce, Live},
    mock,
};

/// The largest request body in bytes; images travel in it.
const MAX_REQUEST: usize = 32 * 1024 * 1024;
/// How long answers that are being given may go on after the shutdown has begun; within the 30 s of a pod.
const DRAIN: Duration = Duration::from_secs(20);
/// With these LiteLLM lets a request choose its upstream and the credentials. Here only the file does.
const RESERVED: [&str; 10] = [
    "api_base",
    "api_key",
    "api_version",
    "base_url",
    "custom_llm_provider",
    "extra_headers",
    "fallbacks",
    "litellm_params",
    "model_list",
    "user_config",
];

/// Why the proxy ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The HTTP client for the upstreams cannot be set up.
    #[error("the proxy's HTTP client cannot be set up: {0}")]
    Client(String),
    /// The listener failed.
    #[error("the proxy cannot serve: {0}")]
    Serve(#[from] io::Error),
}

struct Proxy {
    config: watch::Receiver<InForce>,
    forwarder: Forwarder,
    seams: Seams,
    /// When the proxy started, in seconds since the epoch: the creation time of its models.
    started: i64,
}

impl Proxy {
    /// The configuration in force now.
    fn config(&self) -> Arc<Config> {
        self.config.borrow().config.clone()
    }
}

/// Serves `config` on `listener` until `shutdown`, then lets the answers that have begun end. When its file
/// changes, new requests are answered by what it says then.
///
/// A TLS provider must be installed before (`kaos_telemetry::install_crypto_provider`).
///
/// # Errors
/// When the listener fails.
pub async fn serve(
    config: Config,
    listener: TcpListener,
    seams: Seams,
    shutdown: CancellationToken,
) -> Result<(), Error> {
    let forwarder = Forwarder::new(seams.dialer.clone()).map_err(Error::Client)?;
    let address = listener.local_addr()?;
    tracing::info!(%address, models = config.names().collect::<Vec<_>>().join(", "), "serving models");
    let started = seams.clock.now().as_second();
    let (live, config) = Live::new(config);
    let following = async {
        live.follow().await;
        std::future::pending().await
    };
    let mut app = router(Arc::new(Proxy {
        config,
        forwarder,
        seams,
        started,
    }));
    if address.ip().is_loopback() {
        app = app.layer(middleware::from_fn(refuse_pages));
    }
    let serving = axum::serve(listener, app).with_graceful_shutdown(shutdown.clone().cancelled_owned());
    tokio::select! {
        result = serving => result?,
        () = following => {}
        () = async { shutdown.cancelled().await; tokio::time::sleep(DRAIN).await } => {
            tracing::warn!("answers were still being given at the end of the shutdown and are cut off");
        }
    }
    Ok(())
}

fn router(proxy: Arc<Proxy>) -> Router {
    Router::new()
        .route("/v1/chat/completions", post(completions))
        .route("/chat/completions", post(completions))
        .route("/v1/models", get(models))
        .route("/models", get(models))
        // The spellings of LiteLLM, which probes ask for.
        .route("/health/liveliness", get(healthy))
        .route("/health/liveness", get(healthy))
        .route("/health/readiness", get(ready))
        .route("/health", get(healthy))
        .route("/ready", get(ready))
        .fallback(unknown)
        .method_not_allowed_fallback(not_allowed)
        .with_state(proxy)
}

/// On a person's machine, the pages in their browser reach this address, too: one of them could spend their
/// credit, even without reading the answers, as a plain-text POST asks nobody's leave. Browsers name the
/// page's origin with every POST, and other programs do not. Pages of this machine itself are welcome.
async fn refuse_pages(request: Request, next: Next) -> Response {
    let Some(origin) = request.headers().get(header::ORIGIN) else {
        return next.run(request).await;
    };
    let url = origin.to_str().ok().and_then(|origin| Url::parse(origin).ok());
    let own = url.as_ref().and_then(Url::host).is_some_and(|host| match host {
        Host::Domain(name) => name == "localhost" || name.ends_with(".localhost"),
        Host::Ipv4(ip) => ip.is_loopback(),
        Host::Ipv6(ip) => ip.is_loopback(),
    });
    if own {
        return next.run(request).await;
    }
    let message = format!("requests of web pages from {origin:?} are not accepted");
    Failure::invalid(StatusCode::FORBIDDEN, message).into_response()
}

async fn healthy() -> Json<Value> {
    Json(json!({"status": "healthy"}))
}

/// Ready as soon as it serves: the configuration was read before. Upstreams are not asked, since one that is
/// down would take the others with it.
async fn ready(State(proxy): State<Arc<Proxy>>) -> Json<Value> {
    let mut answer = json!({"status": "ready"});
    if let Some(problem) = &proxy.config.borrow().problem {
        answer["configuration"] = json!(problem);
    }
    Json(answer)
}

async fn unknown(uri: Uri) -> Failure {
    Failure::invalid(
        StatusCode::NOT_FOUND,
        format!("there is nothing at {}", uri.path()),
    )
}

async fn not_allowed(uri: Uri) -> Failure {
    Failure::invalid(
        StatusCode::METHOD_NOT_ALLOWED,
        format!("{} does not take this method", uri.path()),
    )
}

async fn models(State(proxy): State<Arc<Proxy>>) -> Json<ModelList> {
    let config = proxy.config();
    let models = config.names().map(|name| Model::new(name, proxy.started, "kaos"));
    Json(ModelList::new(models.collect()))
}

async fn completions(State(proxy): State<Arc<Proxy>>, request: Request) -> Response {
    let began = Instant::now();
    let answered = complete(&proxy, request.into_body()).await;
    let (model, status) = match &answered {
        Ok((model, response)) => (model.as_str(), response.status()),
        Err(failure) => ("", failure.status()),
    };
    tracing::debug!(
        model,
        status = status.as_u16(),
        milliseconds = began.elapsed().as_millis(),
        "answered"
    );
    answered.map(|(_, response)| response).into_response()
}

async fn complete(proxy: &Proxy, body: Body) -> Result<(String, Response), Failure> {
    let request = read(body).await?;
    let model = match request.get("model") {
        Some(Value::String(model)) if !model.is_empty() => model.clone(),
        _ => {
            return Err(Failure::parameter(
                "model",
                "model is missing; name one of GET /v1/models",
            ));
        }
    };
    if !matches!(request.get("messages"), Some(Value::Array(messages)) if !messages.is_empty()) {
        return Err(Failure::parameter(
            "messages",
            "messages must be a list with at least one message",
        ));
    }
    if let Some(name) = RESERVED.iter().find(|name| request.contains_key(**name)) {
        let message = format!("{name} cannot be set by a request; it belongs in the proxy's configuration");
        return Err(Failure::parameter(name, message));
    }
    let config = proxy.config();
    let target = config.target(&model).ok_or_else(|| {
        let names: Vec<String> = config.names().collect();
        let message = format!(
            "the model {model:?} does not exist; the models are: {}",
            names.join(", ")
        );
        let failure = Failure::invalid(StatusCode::NOT_FOUND, message);
        failure.code("model_not_found")
    })?;
    let response = match target {
        Target::Mock => mock::respond(request, &proxy.seams)?,
        Target::OpenAi {
            completions,
            key,
            model,
        } => {
            proxy
                .forwarder
                .forward(request, &completions, key.as_ref(), model)
                .await?
        }
    };
    Ok((model, response))
}

async fn read(body: Body) -> Result<Map<String, Value>, Failure> {
    let bytes = axum::body::to_bytes(body, MAX_REQUEST).await.map_err(|error| {
        let source = std::error::Error::source(&error);
        if source.is_some_and(|source| source.is::<http_body_util::LengthLimitError>()) {
            let limit = MAX_REQUEST / 1024 / 1024;
            Failure::invalid(
                StatusCode::PAYLOAD_TOO_LARGE,
                format!("the body is larger than {limit} MiB"),
            )
        } else {
            Failure::invalid(StatusCode::BAD_REQUEST, "the body ended early")
        }
    })?;
    match serde_json::from_slice(&bytes) {
        Ok(Value::Object(request)) => Ok(request),
        Ok(_) => Err(Failure::invalid(
            StatusCode::BAD_REQUEST,
            "the body must be a JSON object",
        )),
        Err(error) => Err(Failure::invalid(
            StatusCode::BAD_REQUEST,
            format!("the body is not valid JSON: {error}"),
        )),
    }
}
