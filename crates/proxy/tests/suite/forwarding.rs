//! Requests that go to an upstream.

use std::time::Duration;

use axum::{body::Body, response::Response};
use bytes::Bytes;
use futures::{StreamExt, stream};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    sync::mpsc,
};
use tokio_stream::wrappers::UnboundedReceiverStream;

use crate::setup::{LONG, Proxy, Upstream, json_answer, read};

fn question(stream: bool) -> Value {
    json!({
        "model": "big",
        "messages": [{"role": "user", "content": "hi"}],
        "stream": stream,
        "temperature": 0.25,
        "provider_option": {"kept": [1, null]},
    })
}

fn completion() -> Value {
    json!({
        "id": "c", "object": "chat.completion", "created": 1, "model": "inner", "extra": "kept",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "hello"}, "finish_reason": "stop"}],
    })
}

#[tokio::test]
async fn a_request_arrives_with_the_upstreams_model_and_key_and_all_it_said() {
    let upstream = Upstream::start(|_| json_answer(200, &completion())).await;
    let proxy = Proxy::before(upstream.address).await;
    let request = proxy.client.post(format!("{}/v1/chat/completions", proxy.url));
    let response = request
        .bearer_auth("the caller's own")
        .json(&question(false))
        .send()
        .await
        .unwrap();
    assert_eq!(read(response).await, (200, completion()));

    let seen = upstream.seen();
    assert_eq!(seen.path, "/v1/chat/completions");
    assert_eq!(seen.authorization.as_deref(), Some("Bearer sk-very-secret"));
    let mut expected = question(false);
    expected["model"] = json!("inner");
    assert_eq!(seen.body, expected);
    proxy.end().await;
}

#[tokio::test]
async fn an_upstreams_error_keeps_its_status_and_loses_the_key() {
    let limited =
        json!({"error": {"message": "slow down, sk-very-secret", "type": "rate_limit_error", "code": 7}});
    for (status, sent, kind, message) in [
        (
            429,
            limited.to_string(),
            "rate_limit_error",
            "slow down, [redacted]",
        ),
        (
            500,
            "<html>oh no</html>".to_owned(),
            "upstream_error",
            "the upstream models.default.svc:8000 answered 500 Internal Server Error: <html>oh no</html>",
        ),
        (
            503,
            String::new(),
            "upstream_error",
            "the upstream models.default.svc:8000 answered 503 Service Unavailable: without a message",
        ),
    ] {
        let upstream = Upstream::start(move |_| {
            Response::builder()
                .status(status)
                .header("retry-after", "7")
                .body(Body::from(sent.clone()))
                .unwrap()
        })
        .await;
        let proxy = Proxy::before(upstream.address).await;
        let response = proxy.ask(question(true)).await;
        assert_eq!(response.headers()["retry-after"], "7");
        let (found, answer) = read(response).await;
        assert_eq!(
            (
                found,
                answer["error"]["type"].as_str(),
                answer["error"]["message"].as_str()
            ),
            (status, Some(kind), Some(message))
        );
        proxy.end().await;
    }
}

#[tokio::test]
async fn an_answer_that_is_none_is_a_bad_gateway() {
    for (status, body) in [(200, "<html>login</html>"), (200, "{\"choices\":"), (302, "")] {
        let upstream = Upstream::start(move |_| {
            Response::builder()
                .status(status)
                .header("location", "/")
                .body(Body::from(body))
                .unwrap()
        })
        .await;
        let proxy = Proxy::before(upstream.address).await;
        let (found, answer) = read(proxy.ask(question(false)).await).await;
        assert_eq!(
            (found, &answer["error"]["type"]),
            (502, &json!("upstream_error")),
            "{answer}"
        );
        proxy.end().await;
    }
}

#[tokio::test]
async fn an_upstream_that_is_not_there_is_a_bad_gateway() {
    let proxy = Proxy::alone().await;
    let (status, answer) = read(proxy.ask(question(false)).await).await;
    assert_eq!(
        (status, answer["error"]["message"].as_str()),
        (
            502,
            Some("the upstream models.default.svc:8000 cannot be reached: Connection refused (os error 111)")
        )
    );
    proxy.end().await;
}

#[tokio::test]
async fn chunks_arrive_as_they_are_sent() {
    let (sender, receiver) = mpsc::unbounded_channel::<Result<Bytes, std::io::Error>>();
    let receiver = std::sync::Arc::new(std::sync::Mutex::new(Some(receiver)));
    let upstream = Upstream::start(move |_| {
        let receiver = receiver.lock().unwrap().take().unwrap();
        let body = Body::from_stream(UnboundedReceiverStream::new(receiver));
        Response::builder()
            .header("content-type", "text/event-stream; charset=utf-8")
            .body(body)
            .unwrap()
    })
    .await;
    let proxy = Proxy::before(upstream.address).await;
    let first = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\n";
    sender.send(Ok(first.into())).unwrap();
    let mut body = proxy.ask(question(true)).await.bytes_stream();
    // The first chunk is here although the upstream has not sent, nor closed, anything after it.
    assert_eq!(body.next().await.unwrap().unwrap(), first);
    sender.send(Ok("data: [DONE]\n\n".into())).unwrap();
    assert_eq!(body.next().await.unwrap().unwrap(), "data: [DONE]\n\n");
    assert!(body.next().await.is_none());
    proxy.end().await;
}

#[tokio::test]
async fn the_upstream_is_let_go_when_the_caller_leaves() {
    let (sender, receiver) = mpsc::unbounded_channel::<Result<Bytes, std::io::Error>>();
    let receiver = std::sync::Arc::new(std::sync::Mutex::new(Some(receiver)));
    let upstream = Upstream::start(move |_| {
        let body = Body::from_stream(UnboundedReceiverStream::new(
            receiver.lock().unwrap().take().unwrap(),
        ));
        Response::builder()
            .header("content-type", "text/event-stream")
            .body(body)
            .unwrap()
    })
    .await;
    let proxy = Proxy::before(upstream.address).await;
    sender.send(Ok("data: {\"choices\":[]}\n\n".into())).unwrap();
    let mut body = proxy.ask(question(true)).await.bytes_stream();
    body.next().await.unwrap().unwrap();
    drop(body);
    tokio::time::timeout(LONG, sender.closed())
        .await
        .expect("the upstream's response is dropped");
    proxy.end().await;
}

#[tokio::test]
async fn a_whole_answer_becomes_a_stream_for_who_asked_for_one() {
    let upstream = Upstream::start(|_| json_answer(200, &completion())).await;
    let proxy = Proxy::before(upstream.address).await;
    let response = proxy.ask(question(true)).await;
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let body = response.text().await.unwrap();
    let (chunk, end) = body.split_once("\n\n").unwrap();
    let chunk: Value = serde_json::from_str(chunk.trim_start_matches("data: ")).unwrap();
    assert_eq!(chunk["choices"][0]["delta"]["content"], "hello");
    assert_eq!(end, "data: [DONE]\n\n");
    proxy.end().await;
}

/// An upstream at the level of TCP: reads a request, writes `answer` and closes.
async fn raw_upstream(answer: &'static str) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            let mut request = vec![0; 64 * 1024];
            let _ = connection.read(&mut request).await;
            let _ = connection.write_all(answer.as_bytes()).await;
            // Let the answer arrive before the connection is gone.
            let _ = connection.shutdown().await;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    address
}

#[tokio::test]
async fn a_connection_that_ends_within_a_frame_is_an_error_in_the_stream() {
    let address = raw_upstream(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n\
         23\r\ndata: {\"choices\":[{\"index\":0}]}\n\nda\r\n",
    )
    .await;
    let proxy = Proxy::before(address).await;
    let body = proxy.ask(question(true)).await.text().await.unwrap();
    let (first, error) = body.split_once("\n\n").unwrap();
    assert_eq!(first, "data: {\"choices\":[{\"index\":0}]}");
    assert!(error.contains("broke off in the middle of its answer"), "{error}");
    assert!(!error.contains("[DONE]"));
    proxy.end().await;
}

#[tokio::test]
async fn an_answer_of_ten_megabytes_is_passed_on_and_one_without_end_is_not() {
    let megabyte = "x".repeat(1 << 20);
    let upstream = Upstream::start(move |body| {
        let megabytes = body["megabytes"].as_u64().unwrap();
        let text = megabyte.clone();
        let pieces = stream::iter(0..megabytes).map(move |_| Ok::<_, std::io::Error>(text.clone()));
        let head = stream::iter([Ok(r#"{"choices":[],"x":""#.to_owned())]);
        let end = stream::iter([Ok("\"}".to_owned())]);
        Response::new(Body::from_stream(head.chain(pieces).chain(end)))
    })
    .await;
    let proxy = Proxy::before(upstream.address).await;
    let mut asked = question(false);
    asked["megabytes"] = json!(10);
    let (status, answer) = read(proxy.ask(asked.clone()).await).await;
    assert_eq!((status, answer["x"].as_str().unwrap().len()), (200, 10 << 20));
    asked["megabytes"] = json!(70);
    let (status, answer) = read(proxy.ask(asked).await).await;
    assert_eq!(
        (status, answer["error"]["message"].as_str()),
        (
            502,
            Some("the upstream models.default.svc:8000 answered with more than 64 MiB")
        )
    );
    proxy.end().await;
}

#[tokio::test]
async fn an_event_of_ten_megabytes_ends_the_stream() {
    let upstream = Upstream::start(|_| {
        let text = "x".repeat(10 << 20);
        Response::builder()
            .header("content-type", "text/event-stream")
            .body(Body::from(format!(
                "data: {{\"choices\":[]}}\n\ndata: {{\"x\":\"{text}\"}}\n\n"
            )))
            .unwrap()
    })
    .await;
    let proxy = Proxy::before(upstream.address).await;
    let body = proxy.ask(question(true)).await.text().await.unwrap();
    assert!(
        body.starts_with("data: {\"choices\":[]}\n\n"),
        "what came before is passed on"
    );
    assert!(
        body.contains("sent too much at once") && !body.contains("[DONE]"),
        "{} bytes",
        body.len()
    );
    proxy.end().await;
}

#[tokio::test]
async fn a_connection_that_ends_without_an_answer_is_a_bad_gateway() {
    for answer in [
        "",
        "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"choi",
        "no http at all\r\n\r\n",
    ] {
        let proxy = Proxy::before(raw_upstream(answer).await).await;
        let (status, body) = read(proxy.ask(question(false)).await).await;
        let message = body["error"]["message"].as_str().unwrap();
        assert_eq!(status, 502);
        assert!(
            message.starts_with("the upstream models.default.svc:8000 broke off: "),
            "{message}"
        );
        proxy.end().await;
    }
}

#[tokio::test]
async fn an_upstream_that_stalls_in_the_middle_is_given_up_in_time() {
    let head = "HTTP/1.1 200 OK\r\ncontent-length: 100\r\ncontent-type: ";
    for (stream, answer, problem) in [
        (
            false,
            format!("{head}application/json\r\n\r\n{{\"choi"),
            "did not finish its answer within 0.2 s",
        ),
        (
            true,
            format!("{head}text/event-stream\r\n\r\ndata: {{\"choi"),
            "did not begin to answer within 0.1 s",
        ),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stalling = tokio::spawn(async move {
            let mut kept = Vec::new();
            while let Ok((mut connection, _)) = listener.accept().await {
                connection.write_all(answer.as_bytes()).await.unwrap();
                kept.push(connection);
            }
        });
        let proxy = Proxy::of(&format!(
            "model_list:\n- model_name: big\n  litellm_params: {{model: openai/x, api_base: 'http://{address}', api_key: k, \
             timeout: 0.2, stream_timeout: 0.1}}\nlitellm_settings: {{num_retries: 0}}\n"
        ))
        .await;
        let (status, body) = read(proxy.ask(question(stream)).await).await;
        let message = body["error"]["message"].as_str().unwrap();
        assert_eq!((status, &body["error"]["type"]), (504, &json!("upstream_error")));
        assert!(message.ends_with(problem), "{message}");
        proxy.end().await;
        stalling.abort();
    }
}

#[tokio::test]
async fn garbage_in_a_stream_ends_it_with_an_error() {
    for garbage in [
        "data: <html>\n\n",
        "data: [1]\n\n",
        "data: \u{fffd}{\n\n",
        "data: {\"choices\":\n\n",
    ] {
        let upstream = Upstream::start(move |_| {
            Response::builder()
                .header("content-type", "text/event-stream")
                .body(Body::from(format!(
                    "data: {{\"choices\":[]}}\n\n{garbage}data: [DONE]\n\n"
                )))
                .unwrap()
        })
        .await;
        let proxy = Proxy::before(upstream.address).await;
        let response = proxy.ask(question(true)).await;
        assert_eq!(response.status(), 200);
        let body = response.text().await.unwrap();
        let (first, error) = body.split_once("\n\n").unwrap();
        assert_eq!(first, "data: {\"choices\":[]}");
        let error: Value = serde_json::from_str(error.trim().strip_prefix("data: ").unwrap()).unwrap();
        assert_eq!(error["error"]["type"], "upstream_error", "{body}");
        assert!(!body.contains("[DONE]"), "{body}");
        proxy.end().await;
    }
}

#[tokio::test]
async fn a_role_that_nobody_knows_is_the_upstreams_to_judge_and_refused_where_it_must_be_translated() {
    let upstream = Upstream::start(|_| json_answer(200, &completion())).await;
    let odd = json!({"model": "big", "messages": [{"role": "narrator", "content": "hi"}]});
    let passing = Proxy::before(upstream.address).await;
    assert_eq!(read(passing.ask(odd.clone()).await).await, (200, completion()));
    assert_eq!(upstream.seen().body["messages"], odd["messages"]);
    passing.end().await;
    for provider in ["anthropic", "gemini"] {
        let proxy = Proxy::of(&format!(
            "model_list: [{{model_name: big, litellm_params: {{model: {provider}/x, api_base: 'http://{}', api_key: k}}}}]",
            upstream.address
        ))
        .await;
        let (status, body) = read(proxy.ask(odd.clone()).await).await;
        assert_eq!(
            (status, &body["error"]["param"]),
            (400, &json!("messages[0].role")),
            "{body}"
        );
        proxy.end().await;
    }
    assert_eq!(upstream.asked(), 1, "what is refused is not sent");
}

#[tokio::test]
async fn many_streams_at_once_are_kept_apart() {
    let upstream = Upstream::start(|request| {
        let text = request["messages"][0]["content"].as_str().unwrap().to_owned();
        let chunk = json!({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": "stop"}]});
        Response::builder()
            .header("content-type", "text/event-stream")
            .body(Body::from(format!("data: {chunk}\n\ndata: [DONE]\n\n")))
            .unwrap()
    })
    .await;
    let proxy = Proxy::before(upstream.address).await;
    let asked = stream::iter(0..64).map(|number| {
        let proxy = &proxy;
        async move {
            let mut request = question(true);
            request["messages"][0]["content"] = json!(format!("number {number}"));
            let body = proxy.ask(request).await.text().await.unwrap();
            assert!(body.contains(&format!("\"number {number}\"")), "{body}");
        }
    });
    asked.buffer_unordered(64).collect::<Vec<()>>().await;
    proxy.end().await;
}
