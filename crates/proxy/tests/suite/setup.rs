//! A proxy, and upstreams written as closures.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{Router, body::Body, extract::Request, response::Response};
use kaos_proxy::Config;
use kaos_seams::{FixedDialer, Seams};
use kaos_telemetry::Telemetry;
use serde_json::Value;
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_util::sync::CancellationToken;

/// Long enough for a loaded machine; nothing waits for it unless something is wrong.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// A request as an upstream saw it.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) path: String,
    pub(crate) authorization: Option<String>,
    pub(crate) trace: Option<String>,
    pub(crate) body: Value,
}

pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Upstream {
    /// Answers every request with what `answer` makes of its body.
    pub(crate) async fn start(answer: impl Fn(Value) -> Response + Clone + Send + Sync + 'static) -> Self {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let record = seen.clone();
        let app = Router::new().fallback(move |request: Request| {
            let (record, answer) = (record.clone(), answer.clone());
            async move {
                let (parts, body) = request.into_parts();
                let bytes = axum::body::to_bytes(body, usize::MAX).await.unwrap();
                let body: Value = serde_json::from_slice(&bytes).unwrap();
                let header = |name| {
                    parts
                        .headers
                        .get(name)
                        .map(|value| value.to_str().unwrap().to_owned())
                };
                record.lock().unwrap().push(Seen {
                    path: parts.uri.path().to_owned(),
                    authorization: header("authorization"),
                    trace: header("traceparent"),
                    body: body.clone(),
                });
                answer(body)
            }
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { address, seen }
    }

    /// How many requests came so far.
    pub(crate) fn asked(&self) -> usize {
        self.seen.lock().unwrap().len()
    }

    /// The only request so far.
    pub(crate) fn seen(&self) -> Seen {
        let seen = self.seen.lock().unwrap();
        assert_eq!(seen.len(), 1, "{seen:?}");
        seen[0].clone()
    }
}

pub(crate) struct Proxy {
    pub(crate) url: String,
    pub(crate) client: reqwest::Client,
    stop: CancellationToken,
    task: JoinHandle<Result<(), kaos_proxy::Error>>,
}

impl Proxy {
    /// A proxy of the mock and of `upstream`, which it reaches by the name of a Service and asks once only.
    pub(crate) async fn before(upstream: SocketAddr) -> Self {
        let config = r#"
model_list:
- model_name: "big"
  litellm_params:
    model: "openai/inner"
    api_base: "http://models.default.svc:8000/v1"
    api_key: "os.environ/KEY"
- model_name: "quickstart"
  litellm_params:
    model: "mock/quickstart"
litellm_settings: {num_retries: 0}
"#;
        let environment = [("KEY", "sk-very-secret")];
        let dialer = FixedDialer::default().with("models.default.svc", 8000, upstream);
        Self::start(config, &environment, dialer, Telemetry::off()).await
    }

    /// A proxy of a configuration without names of Services.
    pub(crate) async fn of(config: &str) -> Self {
        Self::start(config, &[], FixedDialer::default(), Telemetry::off()).await
    }

    pub(crate) async fn start(
        config: &str,
        environment: &[(&str, &str)],
        dialer: FixedDialer,
        telemetry: Telemetry,
    ) -> Self {
        kaos_telemetry::install_crypto_provider();
        let environment = environment
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let config = Config::parse(config, environment).unwrap();
        Self::serving(config, dialer, telemetry).await
    }

    /// A proxy of a configuration that has been read.
    pub(crate) async fn serving(config: Config, dialer: FixedDialer, telemetry: Telemetry) -> Self {
        let seams = Seams::simulated(1).with_dialer(Arc::new(dialer));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let stop = CancellationToken::new();
        let task = tokio::spawn(kaos_proxy::serve(
            config,
            listener,
            seams,
            telemetry,
            stop.clone(),
        ));
        let client = reqwest::Client::builder()
            .no_proxy()
            .timeout(LONG)
            .build()
            .unwrap();
        Self {
            url,
            client,
            stop,
            task,
        }
    }

    /// A proxy whose upstream refuses connections.
    pub(crate) async fn alone() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let closed = listener.local_addr().unwrap();
        drop(listener);
        Self::before(closed).await
    }

    pub(crate) async fn ask(&self, body: Value) -> reqwest::Response {
        self.post(body.to_string()).await
    }

    pub(crate) async fn post(&self, body: impl Into<reqwest::Body>) -> reqwest::Response {
        self.post_to("/v1/chat/completions", body).await
    }

    pub(crate) async fn post_to(&self, path: &str, body: impl Into<reqwest::Body>) -> reqwest::Response {
        let url = format!("{}{path}", self.url);
        self.client
            .post(url)
            .header("content-type", "application/json")
            .body(body)
            .send()
            .await
            .unwrap()
    }

    /// Begins the shutdown.
    pub(crate) fn begin_end(&self) {
        self.stop.cancel();
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.url.trim_start_matches("http://").parse().unwrap()
    }

    /// Status and body of a GET.
    pub(crate) async fn get(&self, path: &str) -> (u16, Value) {
        let response = self
            .client
            .get(format!("{}{path}", self.url))
            .send()
            .await
            .unwrap();
        (response.status().as_u16(), response.json().await.unwrap())
    }

    pub(crate) async fn end(self) {
        self.begin_end();
        tokio::time::timeout(LONG, self.task)
            .await
            .unwrap()
            .unwrap()
            .unwrap();
    }
}

/// Status and JSON body.
pub(crate) async fn read(response: reqwest::Response) -> (u16, Value) {
    (response.status().as_u16(), response.json().await.unwrap())
}

pub(crate) fn json_answer(status: u16, body: &Value) -> Response {
    Response::builder()
        .status(status)
        .header("content-type", "application/json")
        .body(Body::from(body.to_string()))
        .unwrap()
}
