//! Several deployments, tries and fallbacks.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use axum::{body::Body, response::Response};
use serde_json::{Value, json};

use crate::setup::{Proxy, Upstream, json_answer, read};

fn completion(text: &str) -> Value {
    json!({
        "id": "c", "object": "chat.completion", "created": 1, "model": "inner",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
    })
}

fn question(stream: bool) -> Value {
    json!({"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": stream})
}

/// Fails with `status` the first `times`, and asks to come again at once.
async fn failing(status: u16, times: usize, stream: bool) -> Upstream {
    let count = Arc::new(AtomicUsize::new(0));
    Upstream::start(move |_| {
        if count.fetch_add(1, Ordering::SeqCst) < times {
            return Response::builder()
                .status(status)
                .header("retry-after", "0")
                .body(Body::from(r#"{"error":{"message":"not now","type":"busy"}}"#))
                .unwrap();
        }
        if stream {
            let chunk =
                json!({"choices": [{"index": 0, "delta": {"content": "done"}, "finish_reason": "stop"}]});
            return sse(&format!("data: {chunk}\n\ndata: [DONE]\n\n"));
        }
        json_answer(200, &completion("done"))
    })
    .await
}

fn sse(text: &str) -> Response {
    Response::builder()
        .header("content-type", "text/event-stream")
        .body(Body::from(text.to_owned()))
        .unwrap()
}

/// A proxy of models with their upstreams, and what else the file says.
async fn proxy(models: &[(&str, &Upstream)], more: &str) -> Proxy {
    let entries = models.iter().map(|(name, upstream)| {
        format!(
            "- model_name: {name}\n  litellm_params: {{model: openai/inner, api_base: 'http://{}/v1', api_key: k}}\n",
            upstream.address
        )
    });
    Proxy::of(&format!("model_list:\n{}{more}\n", entries.collect::<String>())).await
}

#[tokio::test]
async fn what_may_work_the_next_time_is_tried_again_as_often_as_the_file_says() {
    for (status, times, retries, answered, asked) in [
        (503, 2, 2, 200, 3),
        (429, 1, 2, 200, 2),
        (500, 9, 1, 500, 2),
        (503, 9, 0, 503, 1),
        // It stays wrong.
        (400, 9, 2, 400, 1),
        (401, 9, 2, 401, 1),
    ] {
        let upstream = failing(status, times, false).await;
        let proxy = proxy(
            &[("m", &upstream)],
            &format!("litellm_settings: {{num_retries: {retries}}}"),
        )
        .await;
        let (found, body) = read(proxy.ask(question(false)).await).await;
        assert_eq!((found, upstream.asked()), (answered, asked), "{status}: {body}");
        proxy.end().await;
    }
}

#[tokio::test]
async fn who_asks_for_more_patience_than_there_is_gets_none() {
    let upstream = Upstream::start(|_| {
        Response::builder()
            .status(429)
            .header("retry-after", "3600")
            .body(Body::from("later"))
            .unwrap()
    })
    .await;
    let proxy = proxy(&[("m", &upstream)], "").await;
    let response = proxy.ask(question(false)).await;
    assert_eq!(response.headers()["retry-after"], "3600");
    assert_eq!((response.status().as_u16(), upstream.asked()), (429, 1));
    proxy.end().await;
}

#[tokio::test]
async fn a_stream_is_tried_again_until_its_first_event_and_never_after() {
    let upstream = failing(503, 1, true).await;
    let one = proxy(&[("m", &upstream)], "").await;
    let body = one.ask(question(true)).await.text().await.unwrap();
    assert!(
        body.contains("done") && body.ends_with("data: [DONE]\n\n"),
        "{body}"
    );
    assert_eq!(upstream.asked(), 2);
    one.end().await;

    let begun = r#"data: {"choices":[{"index":0,"delta":{"content":"so"}}]}"#;
    let error = r#"data: {"error":{"message":"overloaded","type":"server_error"}}"#;
    for (text, asked, expected) in [
        (format!("{error}\n\n"), 2, (502, "overloaded")),
        (
            String::new(),
            2,
            (502, "ended its stream before the answer was complete"),
        ),
        (format!("{begun}\n\n{error}\n\n"), 1, (200, "overloaded")),
    ] {
        let upstream = Upstream::start(move |_| sse(&text)).await;
        // A try without a pause: the only other deployment is as bad.
        let proxy = proxy(
            &[("m", &upstream), ("m", &upstream)],
            "litellm_settings: {num_retries: 1}",
        )
        .await;
        let response = proxy.ask(question(true)).await;
        let status = response.status().as_u16();
        let body = response.text().await.unwrap();
        assert_eq!((status, upstream.asked()), (expected.0, asked), "{body}");
        assert!(body.contains(expected.1) && !body.contains("[DONE]"), "{body}");
        proxy.end().await;
    }
}

#[tokio::test]
async fn the_other_deployment_answers_for_one_that_fails_which_is_then_left_alone() {
    let broken = failing(401, usize::MAX, false).await;
    let sound = failing(0, 0, false).await;
    let proxy = proxy(
        &[("m", &broken), ("m", &sound)],
        "router_settings: {cooldown_time: 3600}",
    )
    .await;
    for _ in 0..20 {
        assert_eq!(read(proxy.ask(question(false)).await).await.0, 200);
    }
    assert_eq!(broken.asked(), 1, "one refused key is enough");
    assert_eq!(sound.asked(), 20);
    proxy.end().await;
}

#[tokio::test]
async fn requests_are_shared_by_weight() {
    let (one, two) = (failing(0, 0, false).await, failing(0, 0, false).await);
    let entry = |upstream: &Upstream, weight: u32| {
        format!(
            "- model_name: m\n  litellm_params: {{model: openai/x, api_base: 'http://{}', api_key: k, weight: {weight}}}\n",
            upstream.address
        )
    };
    let proxy = Proxy::of(&format!("model_list:\n{}{}", entry(&one, 1), entry(&two, 9))).await;
    for _ in 0..60 {
        assert_eq!(proxy.ask(question(false)).await.status().as_u16(), 200);
    }
    // The randomness is seeded, and so always the same.
    assert!(
        one.asked() > 0 && two.asked() > 3 * one.asked(),
        "{} and {}",
        one.asked(),
        two.asked()
    );
    proxy.end().await;
}

#[tokio::test]
async fn the_fallbacks_answer_in_their_order_and_wrong_requests_reach_nobody() {
    let broken = failing(500, usize::MAX, false).await;
    let other = failing(403, usize::MAX, false).await;
    let last = Upstream::start(|_| json_answer(200, &completion("the last"))).await;
    let more = "litellm_settings: {num_retries: 0, fallbacks: [{m: [second, third]}]}";
    let one = proxy(&[("m", &broken), ("second", &other), ("third", &last)], more).await;
    let (status, body) = read(one.ask(question(false)).await).await;
    assert_eq!(
        (status, &body["choices"][0]["message"]["content"]),
        (200, &json!("the last"))
    );
    assert_eq!((broken.asked(), other.asked(), last.asked()), (1, 1, 1));
    let (status, _) = read(one.ask(json!({"model": "m", "messages": 7})).await).await;
    assert_eq!((status, broken.asked()), (400, 1));
    one.end().await;

    // Where nobody answers, the model that was asked for says why.
    let more = "litellm_settings: {num_retries: 0, default_fallbacks: [second]}";
    let two = proxy(&[("m", &broken), ("second", &other)], more).await;
    assert_eq!(read(two.ask(question(false)).await).await.0, 500);
    two.end().await;
}

#[tokio::test]
async fn upstreams_that_are_too_slow_are_given_up() {
    // Accepts, reads and never answers.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let silent = tokio::spawn(async move {
        let mut kept = Vec::new();
        while let Ok((connection, _)) = listener.accept().await {
            kept.push(connection);
        }
    });
    let config = format!(
        "model_list:\n- model_name: m\n  litellm_params: {{model: openai/x, api_base: 'http://{address}', api_key: k, \
         timeout: 0.2, stream_timeout: 0.1}}\nlitellm_settings: {{num_retries: 0}}\n"
    );
    let proxy = Proxy::of(&config).await;
    for (stream, limit) in [(false, "0.2"), (true, "0.1")] {
        let (status, body) = read(proxy.ask(question(stream)).await).await;
        let expected = format!("the upstream {address} did not answer within {limit} s");
        assert_eq!(
            (status, body["error"]["message"].as_str()),
            (504, Some(expected.as_str()))
        );
    }
    proxy.end().await;
    silent.abort();
}
