//! Connections: what becomes of them when the proxy is told to end, and of those on which nothing comes.

use std::sync::{Arc, Mutex};

use axum::{body::Body, response::Response};
use bytes::Bytes;
use futures::StreamExt;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::mpsc::{self, UnboundedReceiver, UnboundedSender},
};
use tokio_stream::wrappers::UnboundedReceiverStream;

use crate::setup::{LONG, Proxy, Upstream};

type Sent = Result<Bytes, std::io::Error>;
/// Taken by the first request.
type Once = Arc<Mutex<Option<UnboundedReceiver<Sent>>>>;

const CHUNK: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\n";

fn question(stream: bool) -> String {
    let body = json!({"model": "big", "messages": [{"role": "user", "content": "hi"}], "stream": stream})
        .to_string();
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// An answer that is given as it is sent here.
fn answers() -> (UnboundedSender<Sent>, Once) {
    let (send, receive) = mpsc::unbounded_channel();
    (send, Arc::new(Mutex::new(Some(receive))))
}

/// A new connection on which this was sent.
async fn connect(proxy: &Proxy, sent: &str) -> TcpStream {
    let mut connection = TcpStream::connect(proxy.address()).await.unwrap();
    connection.write_all(sent.as_bytes()).await.unwrap();
    connection
}

/// What comes until there is `end` in it.
async fn until(connection: &mut TcpStream, end: &str) -> String {
    let mut read = Vec::new();
    let reading = async {
        while !String::from_utf8_lossy(&read).contains(end) {
            assert!(
                connection.read_buf(&mut read).await.unwrap() > 0,
                "it ended before {end:?}"
            );
        }
    };
    tokio::time::timeout(LONG, reading).await.expect(end);
    String::from_utf8(read).unwrap()
}

/// What comes until the other side closes.
async fn rest(mut connection: TcpStream) -> String {
    let mut read = String::new();
    tokio::time::timeout(LONG, connection.read_to_string(&mut read))
        .await
        .expect("it is closed")
        .unwrap();
    read
}

#[tokio::test]
async fn idle_connections_are_closed_and_answers_go_on_to_their_end() {
    let ((chunks, stream), (whole, once)) = (answers(), answers());
    let upstream = Upstream::start(move |body: Value| {
        let (of, kind) = if body["stream"] == true {
            (&stream, "text/event-stream")
        } else {
            (&once, "application/json")
        };
        let receive = of.lock().unwrap().take().unwrap();
        Response::builder()
            .header("content-type", kind)
            .body(Body::from_stream(UnboundedReceiverStream::new(receive)))
            .unwrap()
    })
    .await;
    let proxy = Proxy::before(upstream.address).await;

    let mut idle = connect(&proxy, "GET /health HTTP/1.1\r\nhost: x\r\n\r\n").await;
    let kept = until(&mut idle, "healthy\"}").await;
    assert!(!kept.to_lowercase().contains("connection: close"), "{kept}");
    let unused = connect(&proxy, "").await;
    let mut streamed = connect(&proxy, &question(true)).await;
    chunks.send(Ok(CHUNK.into())).unwrap();
    until(&mut streamed, "data: ").await;
    let waiting = connect(&proxy, &question(false)).await;
    tokio::time::timeout(LONG, async {
        while upstream.asked() < 2 {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();

    proxy.begin_end();
    assert_eq!(
        (rest(idle).await, rest(unused).await),
        (String::new(), String::new())
    );
    let address = proxy.address();
    tokio::time::timeout(LONG, async {
        while TcpStream::connect(address).await.is_ok() {
            tokio::task::yield_now().await;
        }
    })
    .await
    .expect("nobody new is let in");

    chunks.send(Ok(CHUNK.into())).unwrap();
    until(&mut streamed, "data: ").await;
    chunks.send(Ok("data: [DONE]\n\n".into())).unwrap();
    let end = rest(streamed).await;
    assert!(
        end.contains("data: [DONE]\n\n") && end.ends_with("0\r\n\r\n"),
        "{end}"
    );
    whole.send(Ok(r#"{"choices":[]}"#.into())).unwrap();
    drop(whole);
    let answer = rest(waiting).await;
    assert!(
        answer.starts_with("HTTP/1.1 200") && answer.ends_with(r#"{"choices":[]}"#),
        "{answer}"
    );
    assert!(
        answer.to_lowercase().contains("\r\nconnection: close\r\n"),
        "{answer}"
    );
    proxy.end().await;
}

/// On paused time, which moves on when nothing else is to be done.
#[tokio::test(start_paused = true)]
async fn a_caller_who_does_not_finish_the_head_of_a_request_is_let_go() {
    let proxy = Proxy::of("model_list: [{model_name: m, litellm_params: {model: mock}}]").await;
    let began = tokio::time::Instant::now();
    let mut slow = connect(&proxy, "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nx-").await;
    let mut read = Vec::new();
    slow.read_to_end(&mut read).await.unwrap();
    assert_eq!((began.elapsed().as_secs(), read.len()), (95, 0));
    proxy.end().await;
}

#[tokio::test]
async fn an_answer_that_does_not_end_is_cut_off_at_the_end_of_the_shutdown() {
    let (chunks, stream) = answers();
    let upstream = Upstream::start(move |_| {
        let receive = stream.lock().unwrap().take().unwrap();
        Response::builder()
            .header("content-type", "text/event-stream")
            .body(Body::from_stream(UnboundedReceiverStream::new(receive)))
            .unwrap()
    })
    .await;
    let proxy = Proxy::before(upstream.address).await;
    chunks.send(Ok(CHUNK.into())).unwrap();
    let request = serde_json::from_str(question(true).split("\r\n\r\n").nth(1).unwrap()).unwrap();
    let mut body = proxy.ask(request).await.bytes_stream();
    body.next().await.unwrap().unwrap();
    tokio::time::pause();
    let began = tokio::time::Instant::now();
    proxy.end().await;
    assert_eq!(began.elapsed().as_secs(), 20);
}
