//! `rpm` and `tpm`: how much a deployment is asked for in a minute.

use axum::{body::Body, response::Response};
use serde_json::{Value, json};

use crate::setup::{Proxy, Upstream, json_answer, read};

fn question(stream: bool) -> Value {
    json!({"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": stream})
}

fn completion() -> Value {
    json!({
        "id": "c", "object": "chat.completion", "created": 1, "model": "inner",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "hello"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 6, "completion_tokens": 4, "total_tokens": 10},
    })
}

/// A proxy of deployments of `m` with these limits, and what else the file says.
async fn proxy(deployments: &[(&Upstream, &str)], more: &str) -> Proxy {
    let entries = deployments.iter().map(|(upstream, limits)| {
        format!(
            "- model_name: m\n  litellm_params: {{model: openai/inner, api_base: 'http://{}', api_key: k, {limits}}}\n",
            upstream.address
        )
    });
    Proxy::of(&format!("model_list:\n{}{more}\n", entries.collect::<String>())).await
}

/// Asserts that the request is refused since everything is used up for this minute.
async fn refused(response: reqwest::Response) {
    let wait: u64 = response.headers()["retry-after"]
        .to_str()
        .unwrap()
        .parse()
        .unwrap();
    assert!((1..=60).contains(&wait), "{wait}");
    let (status, body) = read(response).await;
    let error = &body["error"];
    assert_eq!(
        (status, &error["type"], &error["code"]),
        (429, &json!("rate_limit_error"), &json!("rate_limit_exceeded"))
    );
    assert_eq!(
        error["message"],
        format!(
            "the model \"m\" has been asked for as much as the rpm and tpm of the proxy's configuration allow in a minute; \
             come again in {wait} s"
        )
    );
}

#[tokio::test]
async fn a_deployment_is_asked_as_often_as_its_rpm_says_and_then_another_one() {
    let one = Upstream::start(|_| json_answer(200, &completion())).await;
    let two = Upstream::start(|_| json_answer(200, &completion())).await;
    let proxy = proxy(&[(&one, "rpm: 1"), (&two, "rpm: 3")], "").await;
    for _ in 0..4 {
        assert_eq!(proxy.ask(question(false)).await.status(), 200);
    }
    assert_eq!((one.asked(), two.asked()), (1, 3));
    refused(proxy.ask(question(false)).await).await;
    refused(proxy.ask(question(true)).await).await;
    assert_eq!((one.asked(), two.asked()), (1, 3));
    proxy.end().await;
}

#[tokio::test]
async fn fallbacks_answer_for_what_is_used_up_and_tries_count_as_requests() {
    let failing = Upstream::start(|_| json_answer(503, &json!({"error": {"message": "busy"}}))).await;
    let more = "- model_name: other\n  litellm_params: {model: mock/other}\n\
                litellm_settings: {num_retries: 5, fallbacks: [{m: [other]}]}\nrouter_settings: {disable_cooldowns: true}";
    let proxy = proxy(&[(&failing, "rpm: 1"), (&failing, "rpm: 2")], more).await;
    for _ in 0..2 {
        let (status, body) = read(proxy.ask(question(false)).await).await;
        assert_eq!((status, &body["system_fingerprint"]), (200, &json!("kaos-mock")));
        assert_eq!(failing.asked(), 3, "the second request finds it used up");
    }
    proxy.end().await;
}

#[tokio::test]
async fn tokens_are_counted_by_the_usage_of_answers() {
    let upstream = Upstream::start(|_| json_answer(200, &completion())).await;
    let proxy = proxy(&[(&upstream, "tpm: 20")], "").await;
    for _ in 0..2 {
        assert_eq!(proxy.ask(question(false)).await.status(), 200);
    }
    refused(proxy.ask(question(false)).await).await;
    proxy.end().await;
}

#[tokio::test]
async fn tokens_of_streams_are_asked_for_and_told_only_to_who_asked() {
    let upstream = Upstream::start(|body| {
        assert_eq!(body["stream_options"]["include_usage"], true);
        let chunk = json!({"choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": "stop"}], "usage": null});
        let last = json!({"choices": [], "usage": {"prompt_tokens": 6, "completion_tokens": 4}});
        Response::builder()
            .header("content-type", "text/event-stream")
            .body(Body::from(format!("data: {chunk}\n\ndata: {last}\n\ndata: [DONE]\n\n")))
            .unwrap()
    })
    .await;
    let proxy = proxy(&[(&upstream, "tpm: 20")], "").await;
    let chunks = async |options: Value| {
        let mut question = question(true);
        question["stream_options"] = options;
        let body = proxy.ask(question).await.text().await.unwrap();
        assert!(body.ends_with("data: [DONE]\n\n"), "{body}");
        (body.matches("data: ").count(), body.contains("prompt_tokens"))
    };
    assert_eq!(
        chunks(json!({"include_usage": false, "own": 1})).await,
        (2, false)
    );
    assert_eq!(chunks(json!({"include_usage": true})).await, (3, true));
    refused(proxy.ask(question(true)).await).await;
    proxy.end().await;
}
