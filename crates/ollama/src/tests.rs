//! The client and the server over HTTP, before servers that behave well and badly.

use std::{sync::Arc, time::Duration};

use axum::{
    Json, Router,
    body::Body,
    extract::Request,
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use bytes::Bytes;
use futures::{StreamExt, stream};
use kaos_seams::{FixedDialer, Seams, SystemDialer};
use serde_json::json;
use tokio::{net::TcpListener, sync::mpsc, time::timeout};
use tokio_util::sync::CancellationToken;

use crate::{Error, ModelName, Ollama, State, progress, serve};

/// Long enough for a loaded machine; nothing waits for it unless something is wrong.
const LONG: Duration = Duration::from_secs(30);

async fn listening(app: Router) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    format!("http://{address}")
}

/// A client of a server that answers every request with what `answer` makes of it.
async fn ollama(answer: impl Fn() -> Response + Clone + Send + Sync + 'static) -> Ollama {
    kaos_telemetry::install_crypto_provider();
    let address = listening(Router::new().fallback(async move || answer())).await;
    Ollama::new(&address, Arc::new(SystemDialer)).unwrap()
}

fn name() -> ModelName {
    "smollm2:135m".parse().unwrap()
}

async fn pulled(body: &'static str) -> Result<Vec<String>, Error> {
    let client = ollama(move || body.into_response()).await;
    let mut seen = Vec::new();
    client
        .pull(&name(), |frame| seen.push(frame.status.clone()))
        .await?;
    Ok(seen)
}

#[tokio::test]
async fn a_pull_is_asked_for_by_name_and_read_line_by_line() {
    kaos_telemetry::install_crypto_provider();
    let (tell, mut told) = mpsc::unbounded_channel();
    let app = Router::new().route(
        "/api/pull",
        post(async move |request: Request| {
            let body = axum::body::to_bytes(request.into_body(), usize::MAX)
                .await
                .unwrap();
            tell.send(serde_json::from_slice::<serde_json::Value>(&body).unwrap())
                .unwrap();
            // Lines do not end where the parts of a stream do.
            let parts = [
                "{\"status\":\"pulling manifest\"}\n{\"sta",
                "tus\":\"success\"}\n",
            ];
            Body::from_stream(stream::iter(parts).map(|part| Ok::<_, std::io::Error>(Bytes::from(part))))
        }),
    );
    let client = Ollama::new(&listening(app).await, Arc::new(SystemDialer)).unwrap();
    let mut seen = Vec::new();
    client
        .pull(&name(), |frame| seen.push(frame.status.clone()))
        .await
        .unwrap();
    assert_eq!(seen, ["pulling manifest", "success"]);
    assert_eq!(
        told.recv().await.unwrap(),
        json!({"model": "smollm2:135m", "stream": true})
    );
}

#[tokio::test]
async fn a_pull_that_does_not_end_well_says_why() {
    assert_eq!(
        pulled("{\"status\":\"success\"}").await.unwrap(),
        ["success"],
        "the last line has no end"
    );
    for (body, said) in [
        (
            "{\"status\":\"pulling manifest\"}\n{\"error\":\"pull model manifest: file does not exist\"}\n",
            "pull model manifest: file does not exist",
        ),
        (
            "{\"status\":\"pulling manifest\"}\n{\"status\":\"succ",
            "the connection ended before the model was complete",
        ),
        ("", "the connection ended before the model was complete"),
        (
            "<html>hello</html>\n",
            "an answer that is not Ollama's: <html>hello</html>",
        ),
        ("[1]\n", "an answer that is not Ollama's: [1]"),
    ] {
        assert_eq!(pulled(body).await.unwrap_err().to_string(), said, "{body}");
    }
    let endless = ollama(|| Body::from("x".repeat(200_000)).into_response()).await;
    let error = endless.pull(&name(), |_| ()).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "an answer that is not Ollama's: a line of more than 65536 bytes"
    );
}

#[tokio::test]
async fn a_connection_that_breaks_within_a_pull_is_told() {
    let client = ollama(|| {
        let parts = [
            Ok(Bytes::from("{\"status\":\"pulling manifest\"}\n")),
            Err(std::io::Error::other("broken")),
        ];
        Body::from_stream(stream::iter(parts)).into_response()
    })
    .await;
    let error = client.pull(&name(), |_| ()).await.unwrap_err();
    assert!(matches!(error, Error::Unreachable(_)), "{error}");
}

#[tokio::test]
async fn a_refusal_is_given_in_ollamas_words() {
    let refusing = ollama(|| {
        (
            StatusCode::BAD_REQUEST,
            Json(json!({"error": "invalid model name"})),
        )
            .into_response()
    })
    .await;
    assert_eq!(
        refusing.pull(&name(), |_| ()).await.unwrap_err().to_string(),
        "invalid model name"
    );
    assert_eq!(
        refusing.tags().await.unwrap_err().to_string(),
        "invalid model name"
    );
    let other = ollama(|| (StatusCode::NOT_FOUND, "no such page").into_response()).await;
    assert_eq!(
        other.tags().await.unwrap_err().to_string(),
        "an answer that is not Ollama's: 404 Not Found no such page"
    );
}

#[tokio::test]
async fn a_server_without_models_lists_none() {
    for body in [json!({"models": null}), json!({"models": []})] {
        let client = ollama(move || Json(body.clone()).into_response()).await;
        assert!(client.tags().await.unwrap().is_empty());
    }
}

#[tokio::test]
async fn an_address_that_is_none_is_refused() {
    kaos_telemetry::install_crypto_provider();
    for address in ["127.0.0.1:11434", "ftp://x", ""] {
        let error = Ollama::new(address, Arc::new(SystemDialer))
            .unwrap_err()
            .to_string();
        assert!(error.ends_with("write http://HOST:PORT"), "{error}");
    }
}

#[tokio::test]
async fn the_step_is_ready_only_with_its_model_and_tells_how_far_it_is() {
    kaos_telemetry::install_crypto_provider();
    let (send, receive) = mpsc::unbounded_channel::<Bytes>();
    let receive = Arc::new(tokio::sync::Mutex::new(receive));
    let app = Router::new()
        .route(
            "/api/tags",
            get(async || Json(json!({"models": [{"name": "other:latest"}]}))),
        )
        .route(
            "/api/pull",
            post(async move || {
                Body::from_stream(stream::unfold(receive, async |receive| {
                    let line = receive.lock().await.recv().await?;
                    Some((Ok::<_, std::io::Error>(line), receive))
                }))
            }),
        );
    let client = Ollama::new(&listening(app).await, Arc::new(SystemDialer)).unwrap();

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    // The controllers know the step by the name of its Service.
    let dialer = FixedDialer::default().with("pull-m.team.svc", 11435, listener.local_addr().unwrap());
    let url = format!("http://{}", listener.local_addr().unwrap());
    let stop = CancellationToken::new();
    let step = tokio::spawn(serve(name(), client, listener, Seams::simulated(1), stop.clone()));
    let status = async |path: &str| {
        reqwest::get(format!("{url}{path}"))
            .await
            .unwrap()
            .status()
            .as_u16()
    };
    let asked = async || {
        progress("http://pull-m.team.svc:11435", &dialer, LONG)
            .await
            .unwrap()
    };

    assert_eq!(status("/health").await, 200);
    assert_eq!(status("/ready").await, 503);
    let line = json!({"status": "pulling 1", "digest": "sha256:1", "total": 136, "completed": 61});
    send.send(format!("{line}\n").into()).unwrap();
    let pulling = timeout(LONG, async {
        loop {
            let progress = asked().await;
            if progress.total > 0 {
                return progress;
            }
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
    assert_eq!(
        (pulling.model.as_str(), pulling.state),
        ("smollm2:135m", State::Pulling)
    );
    assert_eq!(
        (pulling.completed, pulling.total, pulling.percent),
        (61, 136, Some(44))
    );
    assert_eq!(status("/ready").await, 503);

    send.send("{\"status\":\"success\"}\n".into()).unwrap();
    drop(send);
    timeout(LONG, async {
        while asked().await.state != State::Pulled {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
    assert_eq!(status("/ready").await, 200);

    stop.cancel();
    timeout(LONG, step).await.unwrap().unwrap();
    let gone = progress("http://pull-m.team.svc:11435", &dialer, LONG).await;
    assert!(matches!(gone, Err(Error::Unreachable(_))), "{gone:?}");
}
