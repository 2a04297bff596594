//! Connections: what becomes of answers when the proxy is told to end, and of callers who do not finish asking.

use std::sync::{Arc, Mutex};

use axum::{body::Body, response::Response};
use bytes::Bytes;
use futures::StreamExt;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::mpsc::{self, UnboundedSender},
};
use tokio_stream::wrappers::UnboundedReceiverStream;

use crate::setup::{LONG, Proxy, Upstream};

type Sent = Result<Bytes, std::io::Error>;

const CHUNK: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\n";

fn question() -> Value {
    json!({"model": "big", "messages": [{"role": "user", "content": "hi"}], "stream": true})
}

/// A proxy before an upstream whose only answer is a stream of what is sent here.
async fn streaming() -> (Proxy, UnboundedSender<Sent>) {
    let (send, receive) = mpsc::unbounded_channel();
    let once = Arc::new(Mutex::new(Some(receive)));
    let upstream = Upstream::start(move |_| {
        let receive = once.lock().unwrap().take().unwrap();
        Response::builder()
            .header("content-type", "text/event-stream")
            .body(Body::from_stream(UnboundedReceiverStream::new(receive)))
            .unwrap()
    })
    .await;
    (Proxy::before(upstream.address).await, send)
}

#[tokio::test]
async fn a_stream_goes_on_to_its_end_after_the_shutdown_has_begun() {
    let (proxy, chunks) = streaming().await;
    chunks.send(Ok(CHUNK.into())).unwrap();
    let mut body = proxy.ask(question()).await.bytes_stream();
    body.next().await.unwrap().unwrap();
    proxy.begin_end();
    let address = proxy.address();
    tokio::time::timeout(LONG, async {
        while TcpStream::connect(address).await.is_ok() {
            tokio::task::yield_now().await;
        }
    })
    .await
    .expect("nobody new is let in");
    chunks.send(Ok(CHUNK.into())).unwrap();
    chunks.send(Ok("data: [DONE]\n\n".into())).unwrap();
    drop(chunks);
    let mut rest = String::new();
    while let Some(part) = body.next().await {
        rest.push_str(&String::from_utf8_lossy(&part.unwrap()));
    }
    assert!(
        rest.contains("\"a\"") && rest.ends_with("data: [DONE]\n\n"),
        "{rest}"
    );
    proxy.end().await;
}

/// On paused time, which moves on when nothing else is to be done.
#[tokio::test(start_paused = true)]
async fn a_caller_who_does_not_finish_the_head_of_a_request_is_let_go() {
    let proxy = Proxy::of("model_list: [{model_name: m, litellm_params: {model: mock}}]").await;
    let began = tokio::time::Instant::now();
    let mut slow = TcpStream::connect(proxy.address()).await.unwrap();
    slow.write_all(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nx-")
        .await
        .unwrap();
    let mut read = Vec::new();
    slow.read_to_end(&mut read).await.unwrap();
    assert_eq!((began.elapsed().as_secs(), read.len()), (95, 0));
    proxy.end().await;
}

#[tokio::test]
async fn an_answer_that_does_not_end_is_cut_off_at_the_end_of_the_shutdown() {
    let (proxy, chunks) = streaming().await;
    chunks.send(Ok(CHUNK.into())).unwrap();
    let mut body = proxy.ask(question()).await.bytes_stream();
    body.next().await.unwrap().unwrap();
    tokio::time::pause();
    let began = tokio::time::Instant::now();
    proxy.end().await;
    assert_eq!(began.elapsed().as_secs(), 20);
}
