//! The client against HTTP servers that behave in every way another agent may.

use std::{sync::Mutex as Shared, time::Duration};

use axum::{
    Router,
    body::{Body, to_bytes},
    extract::Request,
    response::{IntoResponse, Response},
};
use http::HeaderMap;
use kaos_seams::{FixedDialer, Seams};
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinHandle};

use super::*;
use crate::config::PeerAgent;

const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// An agent that answers everything the same, and remembers what it was asked.
struct Server {
    client: PeerClient,
    asked: Arc<Shared<Vec<(String, HeaderMap, Value)>>>,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn server(status: u16, body: impl Into<Vec<u8>>) -> Server {
    kaos_telemetry::install_crypto_provider();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let dialer = FixedDialer::default().with("agent-bob.default.svc", 8000, listener.local_addr().unwrap());
    let asked = Arc::new(Shared::new(Vec::new()));
    let (remember, body) = (asked.clone(), body.into());
    let router = Router::new().fallback(async move |request: Request| {
        let (parts, sent) = request.into_parts();
        let sent = to_bytes(sent, usize::MAX).await.unwrap();
        let sent = serde_json::from_slice(&sent).unwrap_or(Value::Null);
        remember
            .lock()
            .unwrap()
            .push((parts.uri.path().to_owned(), parts.headers, sent));
        answer(status, body)
    });
    let peer = PeerAgent {
        name: "bob".to_owned(),
        url: "http://agent-bob.default.svc:8000".parse().unwrap(),
    };
    let seams = Seams::simulated(1).with_dialer(Arc::new(dialer));
    Server {
        client: PeerClient::new(&peer, "me", seams).unwrap(),
        asked,
        task: tokio::spawn(async move { axum::serve(listener, router).await.unwrap() }),
    }
}

fn answer(status: u16, body: Vec<u8>) -> Response {
    Response::builder()
        .status(status)
        .body(Body::from(body))
        .unwrap()
        .into_response()
}

fn task() -> ChatRequest {
    ChatRequest {
        model: "bob".to_owned(),
        messages: vec![kaos_openai::Message::user("dig")],
        ..ChatRequest::default()
    }
}

const NAME: &str = "agent http://agent-bob.default.svc:8000/";

#[tokio::test]
async fn a_card_is_read_whatever_else_it_says() {
    let card = json!({"name": "bob", "description": "digs", "url": "x", "skills": [], "version": "2"});
    let server = server(200, card.to_string()).await;
    let read = server.client.card().await.unwrap();
    assert_eq!((read.name.as_str(), read.description.as_str()), ("bob", "digs"));
    assert_eq!(server.asked.lock().unwrap()[0].0, "/.well-known/agent");
    let bare = self::server(200, r#"{"name": "bob", "description": null}"#).await;
    assert_eq!(bare.client.card().await.unwrap().description, "");
}

#[tokio::test]
async fn a_task_is_posted_with_its_way_and_its_trace() {
    let said = json!({"choices": [{"message": {"role": "assistant", "content": "dug"}}]});
    let server = server(200, said.to_string()).await;
    let mut headers = HeaderMap::new();
    headers.insert("traceparent", TRACE.parse().unwrap());
    headers.insert("x-kaos-delegation-path", "zoe".parse().unwrap());
    headers.insert("cookie", "secret".parse().unwrap());
    let (hop, trace) = (Hop::of(&headers), TraceContext::of_headers(&headers));
    let answer = server.client.ask(&task(), &hop, &trace).await.unwrap();
    assert_eq!(answer, "dug");
    let (path, sent, body) = server.asked.lock().unwrap()[0].clone();
    assert_eq!(path, "/v1/chat/completions");
    assert_eq!(sent["content-type"], "application/json");
    assert_eq!(sent["traceparent"], TRACE);
    assert_eq!(sent["x-kaos-delegation-path"], "zoe,me");
    assert!(!sent.contains_key("cookie"));
    assert_eq!(body, serde_json::to_value(task()).unwrap());
}

#[tokio::test]
async fn answers_that_are_none_say_why() {
    let cases: [(u16, Vec<u8>, String); 6] = [
        (
            503,
            json!({"detail": "the agent is shutting down"}).to_string().into(),
            format!("{NAME} answered HTTP 503: the agent is shutting down"),
        ),
        (502, vec![b'x'; 1 << 20], format!("{NAME} answered HTTP 502")),
        (
            200,
            b"<html>".to_vec(),
            format!("{NAME} sent an answer that cannot be read: expected value at line 1 column 1"),
        ),
        (
            200,
            br#"{"choices": []}"#.to_vec(),
            format!("{NAME} sent an answer that cannot be read: it has no choices"),
        ),
        (
            200,
            vec![b' '; (8 << 20) + 1],
            format!("{NAME} sent an answer of more than 8388608 bytes"),
        ),
        (
            204,
            Vec::new(),
            format!("{NAME} sent an answer that cannot be read: EOF while parsing"),
        ),
    ];
    for (status, body, expected) in cases {
        let error = server(status, body)
            .await
            .client
            .ask(&task(), &Hop::default(), &TraceContext::default())
            .await;
        let error = error.unwrap_err().to_string();
        assert!(error.starts_with(&expected), "{error}");
    }
    let large = server(200, vec![b' '; (4 << 20) + 1]).await.client.card().await;
    assert!(matches!(large, Err(PeerError::TooLarge { .. })), "{large:?}");
}

#[tokio::test]
async fn a_peer_that_went_is_unreachable() {
    let server = server(200, "").await;
    server.task.abort();
    while !server.task.is_finished() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let error = server
        .client
        .ask(&task(), &Hop::default(), &TraceContext::default())
        .await
        .unwrap_err();
    assert!(matches!(&error, PeerError::Unreachable { .. }), "{error:?}");
    assert!(
        error
            .to_string()
            .starts_with(&format!("{NAME} is not reachable: ")),
        "{error}"
    );
}
