//! The HTTP front: routes, limits, and what a request may say.

use std::{io, sync::Arc, time::Duration};

use axum::{
    Json, Router,
    body::{Body, Bytes},
    extract::{Request as HttpRequest, State},
    http::{HeaderMap, StatusCode, Uri, header},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use http_body_util::BodyExt;
use kaos_openai::{Model, ModelList};
use kaos_seams::Seams;
use kaos_serving::DRAIN;
use kaos_telemetry::Telemetry;
use serde_json::{Value, json};
use subtle::ConstantTimeEq;
use tokio::{net::TcpListener, sync::watch};
use tokio_util::sync::CancellationToken;
use url::{Host, Url};

use crate::{
    balance,
    config::{Config, Upstream},
    error::Failure,
    forward::Forwarder,
    live::{InForce, Live},
    request::{Operation, Request},
    watched::{Meters, Watched},
};

/// The largest request body in bytes; images travel in it.
const MAX_REQUEST: usize = 32 * 1024 * 1024;
/// The longest silence within a request's body.
const SLOWEST: Duration = Duration::from_secs(30);

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
    meters: Arc<Meters>,
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
/// changes, new requests are answered by what it says then. What happens is measured by `telemetry`.
///
/// A TLS provider must be installed before (`kaos_telemetry::install_crypto_provider`).
///
/// # Errors
/// When the listener fails.
pub async fn serve(
    config: Config,
    listener: TcpListener,
    seams: Seams,
    telemetry: Telemetry,
    shutdown: CancellationToken,
) -> Result<(), Error> {
    let forwarder = Forwarder::new(seams.clone(), &config.transport).map_err(Error::Client)?;
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
        meters: Arc::new(Meters::new(telemetry)),
        started,
    }));
    if address.ip().is_loopback() {
        app = app.layer(middleware::from_fn(refuse_pages));
    }
    tokio::select! {
        () = kaos_serving::serve(listener, app, shutdown.clone()) => {}
        () = following => {}
        () = kaos_serving::end_of_grace(&shutdown, DRAIN) => {
            tracing::warn!("answers were still being given at the end of the shutdown and are cut off");
        }
    }
    Ok(())
}

fn router(proxy: Arc<Proxy>) -> Router {
    Router::new()
        .route("/v1/chat/completions", post(chat))
        .route("/chat/completions", post(chat))
        .route("/v1/completions", post(completions))
        .route("/completions", post(completions))
        .route("/v1/embeddings", post(embeddings))
        .route("/embeddings", post(embeddings))
        .route("/v1/models", get(models))
        .route("/models", get(models))
        .route("/v1/model/info", get(model_info))
        .route("/model/info", get(model_info))
        // Whoever asks these may ask without a key: they tell nothing of the models.
        .route("/health/liveliness", get(healthy))
        .route("/health/liveness", get(healthy))
        .route("/health/readiness", get(ready))
        .route("/health", get(healthy))
        .route("/ready", get(ready))
        .route("/metrics", get(metrics))
        .fallback(unknown)
        .method_not_allowed_fallback(not_allowed)
        .with_state(proxy)
}

/// On a person's machine, the pages in their browser reach this address, too: one of them could spend their
/// credit, even without reading the answers, as a plain-text POST asks nobody's leave. Browsers name the
/// page's origin with every POST, and other programs do not. Pages of this machine itself are welcome.
async fn refuse_pages(request: HttpRequest, next: Next) -> Response {
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

async fn metrics(State(proxy): State<Arc<Proxy>>) -> Response {
    proxy.meters.telemetry().scrape().map(Body::from)
}

async fn models(State(proxy): State<Arc<Proxy>>, headers: HeaderMap) -> Result<Json<ModelList>, Failure> {
    let config = proxy.config();
    admit(&config, &headers)?;
    let models = config.names().map(|name| Model::new(name, proxy.started, "kaos"));
    Ok(Json(ModelList::new(models.collect())))
}

/// What the file tells of its models, without addresses and keys.
async fn model_info(State(proxy): State<Arc<Proxy>>, headers: HeaderMap) -> Result<Json<Value>, Failure> {
    let config = proxy.config();
    admit(&config, &headers)?;
    let models = config.deployments().map(|(name, deployment)| {
        let provider = match &deployment.upstream {
            Upstream::Mock => "mock",
            Upstream::Remote(remote) => remote.provider.name,
        };
        let mut info = json!({"id": deployment.id});
        if let (Some(Value::Object(more)), Some(info)) = (&deployment.info, info.as_object_mut()) {
            info.extend(more.clone());
        }
        json!({
            "model_name": name,
            "litellm_params": {"model": format!("{provider}/{}", deployment.model)},
            "model_info": info,
        })
    });
    Ok(Json(json!({"data": models.collect::<Vec<_>>()})))
}

async fn chat(State(proxy): State<Arc<Proxy>>, request: HttpRequest) -> Response {
    answer(&proxy, Operation::Chat, "/v1/chat/completions", request).await
}

async fn completions(State(proxy): State<Arc<Proxy>>, request: HttpRequest) -> Response {
    answer(&proxy, Operation::Completions, "/v1/completions", request).await
}

async fn embeddings(State(proxy): State<Arc<Proxy>>, request: HttpRequest) -> Response {
    answer(&proxy, Operation::Embeddings, "/v1/embeddings", request).await
}

async fn answer(proxy: &Proxy, operation: Operation, route: &'static str, request: HttpRequest) -> Response {
    let (parts, body) = request.into_parts();
    let mut watched = Watched::new(&proxy.meters, operation, route, &parts.headers);
    let config = proxy.config();
    let context = watched.context();
    let answering = async {
        admit(&config, &parts.headers)?;
        let body = read(body).await?;
        let request = Request::read(operation, &body)?;
        balance::answer(&config, &proxy.forwarder, &proxy.seams, &request, &mut watched).await
    };
    let answered = context.attach(answering).await;
    watched.answered(answered.as_ref().err());
    answered.into_response()
}

/// Refuses who has not the key that the configuration asks for.
fn admit(config: &Config, headers: &HeaderMap) -> Result<(), Failure> {
    let Some(key) = &config.master_key else {
        return Ok(());
    };
    let given = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let bearer =
        given(header::AUTHORIZATION.as_str()).map(|value| value.strip_prefix("Bearer ").unwrap_or(value));
    // The headers of the clients of other APIs, as LiteLLM takes them.
    let shown = bearer.or_else(|| given("x-api-key")).or_else(|| given("api-key"));
    match shown {
        Some(shown) if bool::from(shown.trim().as_bytes().ct_eq(key.reveal().as_bytes())) => Ok(()),
        Some(_) => Err(refused(
            "the key is wrong; use the master_key of the proxy's configuration",
        )),
        None => Err(refused(
            "a key is missing; send Authorization: Bearer KEY with the proxy's master_key",
        )),
    }
}

fn refused(message: &str) -> Failure {
    Failure::invalid(StatusCode::UNAUTHORIZED, message).code("invalid_api_key")
}

async fn read(mut body: Body) -> Result<Bytes, Failure> {
    // Most bodies come in one piece, which is not copied.
    let mut whole = Bytes::new();
    loop {
        let frame = tokio::time::timeout(SLOWEST, body.frame()).await.map_err(|_| {
            let message = format!("nothing of the body came for {} s", SLOWEST.as_secs());
            Failure::invalid(StatusCode::REQUEST_TIMEOUT, message)
        })?;
        let piece = match frame {
            None => return Ok(whole),
            Some(Err(_)) => return Err(Failure::invalid(StatusCode::BAD_REQUEST, "the body ended early")),
            Some(Ok(frame)) => match frame.into_data() {
                Ok(piece) => piece,
                Err(_) => continue,
            },
        };
        if whole.len() + piece.len() > MAX_REQUEST {
            let limit = MAX_REQUEST / 1024 / 1024;
            let message = format!("the body is larger than {limit} MiB");
            return Err(Failure::invalid(StatusCode::PAYLOAD_TOO_LARGE, message));
        }
        whole = if whole.is_empty() {
            piece
        } else {
            let mut joined = match whole.try_into_mut() {
                Ok(joined) => joined,
                Err(whole) => whole.as_ref().into(),
            };
            joined.extend_from_slice(&piece);
            joined.freeze()
        };
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures::{StreamExt, stream};
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_caller_who_stops_in_the_middle_is_not_waited_for() {
        let began = Instant::now();
        let pieces = stream::iter([Ok::<_, Infallible>("{\"model\":")]).chain(stream::pending());
        let failure = read(Body::from_stream(pieces)).await.unwrap_err();
        assert_eq!(
            (failure.status(), failure.message()),
            (StatusCode::REQUEST_TIMEOUT, "nothing of the body came for 30 s")
        );
        assert_eq!(began.elapsed(), SLOWEST);
    }

    #[tokio::test]
    async fn pieces_are_put_together() {
        let pieces = stream::iter(["a", "", "b", "c"].map(Ok::<_, Infallible>));
        assert_eq!(read(Body::from_stream(pieces)).await.unwrap(), "abc");
    }
}
