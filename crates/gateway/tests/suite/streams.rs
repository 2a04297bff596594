//! Bodies in pieces, timeouts, clients that leave or dawdle, and a stop in the middle.

use std::{net::SocketAddr, time::Duration};

use axum::{Router, body::Body, extract::Request};
use bytes::Bytes;
use futures::StreamExt;
use kaos_testkit::{PATIENCE, eventually};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::mpsc,
    time::timeout,
};
use tokio_stream::wrappers::ReceiverStream;

use tokio_util::sync::CancellationToken;

use crate::support::{GRACE, backend, named, rule, start};

/// A backend that answers at once with a stream of what is sent into the channel.
async fn stream_of() -> (SocketAddr, mpsc::Sender<Result<Bytes, std::io::Error>>) {
    let (sender, receiver) = mpsc::channel(1);
    let receiver = std::sync::Arc::new(std::sync::Mutex::new(Some(receiver)));
    let router = Router::new().fallback(move || async move {
        let receiver = receiver.lock().unwrap().take().unwrap();
        (
            [("content-type", "text/event-stream")],
            Body::from_stream(ReceiverStream::new(receiver)),
        )
    });
    (backend(router).await, sender)
}

#[tokio::test]
async fn an_answer_arrives_piece_by_piece() {
    let (address, pieces) = stream_of().await;
    let world = start(&[("a", address)]).await;
    world.route("r", &json!([rule("/", "a")])).await;
    let mut answer = world.asked("/").await.bytes_stream();
    for piece in ["data: one\n\n", "data: two\n\n"] {
        // The next piece is sent only when this one has arrived.
        pieces.send(Ok(piece.into())).await.unwrap();
        let arrived = timeout(PATIENCE, answer.next()).await.unwrap().unwrap().unwrap();
        assert_eq!(arrived, piece);
    }
    drop(pieces);
    assert!(answer.next().await.is_none());
}

#[tokio::test]
async fn a_request_body_arrives_piece_by_piece() {
    let (seen, mut arrived) = mpsc::channel::<Bytes>(4);
    let router = Router::new().fallback(move |request: Request| async move {
        let mut body = request.into_body().into_data_stream();
        while let Some(piece) = body.next().await {
            seen.send(piece.unwrap()).await.unwrap();
        }
        "whole"
    });
    let world = start(&[("a", backend(router).await)]).await;
    world.route("r", &json!([rule("/", "a")])).await;
    let (pieces, receiver) = mpsc::channel::<Result<Bytes, std::io::Error>>(1);
    let body = reqwest::Body::wrap_stream(ReceiverStream::new(receiver));
    let request = tokio::spawn(world.http.post(world.url("/")).body(body).send());
    for piece in ["one", "two"] {
        pieces.send(Ok(piece.into())).await.unwrap();
        assert_eq!(timeout(PATIENCE, arrived.recv()).await.unwrap().unwrap(), piece);
    }
    drop(pieces);
    assert_eq!(request.await.unwrap().unwrap().text().await.unwrap(), "whole");
}

#[tokio::test]
async fn a_client_that_leaves_ends_the_backends_work() {
    let (address, pieces) = stream_of().await;
    let world = start(&[("a", address)]).await;
    world.route("r", &json!([rule("/", "a")])).await;
    let mut answer = world.asked("/").await.bytes_stream();
    pieces.send(Ok("first".into())).await.unwrap();
    answer.next().await.unwrap().unwrap();
    drop(answer);
    drop(world.http);
    timeout(PATIENCE, pieces.closed())
        .await
        .expect("the backend's stream is dropped");
}

#[tokio::test]
async fn a_client_that_leaves_before_the_answer_ends_the_backends_work() {
    let (began, dropped) = (CancellationToken::new(), CancellationToken::new());
    let tokens = (began.clone(), dropped.clone());
    let router = Router::new().fallback(move || async move {
        let (began, dropped) = tokens;
        let _guard = dropped.drop_guard();
        began.cancel();
        std::future::pending::<&str>().await
    });
    let world = start(&[("a", backend(router).await)]).await;
    world.route("r", &json!([rule("/", "a")])).await;
    let mut client = TcpStream::connect(world.address).await.unwrap();
    client
        .write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .await
        .unwrap();
    timeout(PATIENCE, began.cancelled())
        .await
        .expect("the request arrives");
    assert!(!dropped.is_cancelled());
    drop(client);
    timeout(PATIENCE, dropped.cancelled())
        .await
        .expect("the backend's request is dropped");
}

#[tokio::test]
async fn a_backend_that_takes_too_long_is_answered_for() {
    let silent = backend(Router::new().fallback(async || std::future::pending::<&str>().await)).await;
    let world = start(&[("silent", silent), ("quick", named("quick").await)]).await;
    let timed = |path: &str, service: &str, timeouts: serde_json::Value| {
        let mut timed = rule(path, service);
        timed["timeouts"] = timeouts;
        timed
    };
    world
        .route(
            "r",
            &json!([
                timed("/request", "silent", json!({"request": "50ms"})),
                timed(
                    "/backend",
                    "silent",
                    json!({"request": "10s", "backendRequest": "50ms"})
                ),
                timed("/quick", "quick", json!({"request": "10s"})),
                timed("/never", "quick", json!({"request": "0s"})),
            ]),
        )
        .await;
    for (path, field) in [
        ("/request", "timeouts.request"),
        ("/backend", "timeouts.backendRequest"),
    ] {
        let (status, text) = world.get(path).await;
        assert_eq!(status, 504, "{text}");
        assert!(
            text.contains("50ms") && text.contains(field) && text.contains("silent"),
            "{text}"
        );
    }
    assert_eq!(world.get("/quick").await, (200, "quick".to_owned()));
    assert_eq!(world.get("/never").await, (200, "quick".to_owned()));
}

#[tokio::test]
async fn a_stream_that_outlasts_its_timeout_breaks_off() {
    let (address, pieces) = stream_of().await;
    let world = start(&[("a", address)]).await;
    let mut timed = rule("/", "a");
    timed["timeouts"] = json!({"request": "300ms"});
    world.route("r", &json!([timed])).await;
    let mut answer = world.asked("/").await.bytes_stream();
    pieces.send(Ok("first".into())).await.unwrap();
    assert_eq!(answer.next().await.unwrap().unwrap(), "first");
    let end = timeout(PATIENCE, answer.next()).await.unwrap();
    assert!(
        end.is_some_and(|piece| piece.is_err()),
        "the caller sees that the answer is not whole"
    );
}

#[tokio::test]
async fn slow_clients_hold_up_nobody_and_no_stop() {
    let world = start(&[("a", named("a").await)]).await;
    world.route("r", &json!([rule("/", "a")])).await;
    let mut slow = Vec::new();
    for _ in 0..20 {
        let mut client = TcpStream::connect(world.address).await.unwrap();
        client.write_all(b"GET / HTTP/1.1\r\nHost: local").await.unwrap();
        slow.push(client);
    }
    assert_eq!(world.get("/").await.1, "a");
    world.stop.cancel();
    timeout(GRACE + Duration::from_secs(10), world.running)
        .await
        .expect("the stop does not wait for them")
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn a_stop_lets_running_answers_end_and_takes_no_new_ones() {
    let (address, pieces) = stream_of().await;
    let world = start(&[("a", address)]).await;
    world.route("r", &json!([rule("/", "a")])).await;
    let mut answer = world.asked("/").await.bytes_stream();
    pieces.send(Ok("first".into())).await.unwrap();
    assert_eq!(answer.next().await.unwrap().unwrap(), "first");
    world.stop.cancel();
    eventually("nobody listens", PATIENCE, async || {
        TcpStream::connect(world.address).await.is_err()
    })
    .await;
    pieces.send(Ok("last".into())).await.unwrap();
    drop(pieces);
    assert_eq!(answer.next().await.unwrap().unwrap(), "last");
    assert!(answer.next().await.is_none(), "whole");
    world.running.await.unwrap().unwrap();
}

#[tokio::test]
async fn an_answer_that_never_ends_is_cut_off_after_the_grace_period() {
    let (address, pieces) = stream_of().await;
    let world = start(&[("a", address)]).await;
    world.route("r", &json!([rule("/", "a")])).await;
    let mut client = TcpStream::connect(world.address).await.unwrap();
    client
        .write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .await
        .unwrap();
    pieces.send(Ok("first".into())).await.unwrap();
    client.read_u8().await.unwrap();
    world.stop.cancel();
    timeout(PATIENCE, world.running)
        .await
        .expect("it ends")
        .unwrap()
        .unwrap();
    timeout(PATIENCE, pieces.closed())
        .await
        .expect("and so does the backend's work");
}
