//! Upstreams of other APIs, as clients of OpenAI's meet them.

use axum::{body::Body, response::Response};
use serde_json::{Value, json};

use crate::setup::{Proxy, Upstream, json_answer, read};

async fn proxy(model: &str, upstream: &Upstream) -> Proxy {
    Proxy::of(&format!(
        "model_list:\n- model_name: m\n  litellm_params: {{model: {model}, api_base: 'http://{}', api_key: sk-very-secret}}\n\
         litellm_settings: {{num_retries: 0}}\n",
        upstream.address
    ))
    .await
}

fn events(events: &[Value]) -> Response {
    let text = events.iter().map(|event| {
        let name = event["type"]
            .as_str()
            .map(|name| format!("event: {name}\n"))
            .unwrap_or_default();
        format!("{name}data: {event}\r\n\r\n")
    });
    Response::builder()
        .header("content-type", "text/event-stream; charset=utf-8")
        .body(Body::from(text.collect::<String>()))
        .unwrap()
}

fn question(stream: bool) -> Value {
    json!({"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": stream})
}

#[tokio::test]
async fn anthropic_answers_whole_streamed_and_with_errors() {
    let upstream = Upstream::start(|body| {
        let start = json!({"type": "message_start", "message": {"id": "msg_1", "model": "claude", "usage": {"input_tokens": 3}}});
        let text = json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hello"}});
        let end = json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}});
        match body["messages"][0]["content"][0]["text"].as_str() {
            Some("break") => json_answer(
                429,
                &json!({"type": "error", "error": {"type": "rate_limit_error", "message": "no, sk-very-secret"}}),
            ),
            Some("cut") => events(&[start, text]),
            _ if body["stream"] == true => events(&[start, text, end, json!({"type": "message_stop"})]),
            _ => json_answer(200, &json!({
                "id": "msg_1", "model": "claude", "content": [{"type": "text", "text": "Hello"}],
                "stop_reason": "end_turn", "usage": {"input_tokens": 3, "output_tokens": 2},
            })),
        }
    })
    .await;
    let proxy = proxy("anthropic/claude", &upstream).await;
    let (status, whole) = read(proxy.ask(question(false)).await).await;
    assert_eq!(
        (
            status,
            &whole["choices"][0]["message"]["content"],
            &whole["usage"]["total_tokens"]
        ),
        (200, &json!("Hello"), &json!(5))
    );
    assert_eq!(upstream.seen().path, "/v1/messages");
    let body = proxy.ask(question(true)).await.text().await.unwrap();
    assert!(
        body.contains("\"content\":\"Hello\"") && body.ends_with("data: [DONE]\n\n"),
        "{body}"
    );

    let mut broken = question(true);
    broken["messages"][0]["content"] = json!("break");
    let (status, answer) = read(proxy.ask(broken.clone()).await).await;
    assert_eq!(
        (status, &answer["error"]["message"], &answer["error"]["type"]),
        (429, &json!("no, [redacted]"), &json!("rate_limit_error"))
    );
    broken["messages"][0]["content"] = json!("cut");
    let body = proxy.ask(broken).await.text().await.unwrap();
    assert!(
        body.contains("before the answer was complete") && !body.contains("[DONE]"),
        "{body}"
    );
    proxy.end().await;
}

#[tokio::test]
async fn text_completions_are_chats_of_one_prompt_where_the_api_has_chats_only() {
    let upstream = Upstream::start(|body| {
        assert_eq!(
            body["messages"],
            json!([{"role": "user", "content": [{"type": "text", "text": "Once"}]}])
        );
        if body["stream"] == true {
            let start = json!({"type": "message_start", "message": {"id": "msg_1", "model": "claude", "usage": {"input_tokens": 3}}});
            let text = json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": " upon"}});
            let end = json!({"type": "message_delta", "delta": {"stop_reason": "max_tokens"}, "usage": {"output_tokens": 2}});
            return events(&[start, text, end, json!({"type": "message_stop"})]);
        }
        json_answer(200, &json!({
            "id": "msg_1", "model": "claude", "content": [{"type": "text", "text": " upon"}],
            "stop_reason": "max_tokens", "usage": {"input_tokens": 3, "output_tokens": 2},
        }))
    })
    .await;
    let proxy = proxy("anthropic/claude", &upstream).await;
    let ask = async |more: &str| {
        let body = format!(r#"{{"model":"m","prompt":"Once","max_tokens":2{more}}}"#);
        proxy.post_to("/v1/completions", body).await
    };
    let (status, mut whole) = read(ask("").await).await;
    whole["created"].take();
    assert_eq!(
        (status, whole),
        (
            200,
            json!({
                "id": "msg_1", "object": "text_completion", "created": null, "model": "claude",
                "choices": [{"index": 0, "text": " upon", "logprobs": null, "finish_reason": "length"}],
                "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
            })
        )
    );

    for (more, usages) in [("", 0), (r#","stream_options":{"include_usage":true}"#, 1)] {
        let body = ask(&format!(r#","stream":true{more}"#))
            .await
            .text()
            .await
            .unwrap();
        let (chunks, end) = body.split_at(body.len() - "data: [DONE]\n\n".len());
        assert_eq!(end, "data: [DONE]\n\n");
        let chunks: Vec<Value> = chunks
            .split_terminator("\n\n")
            .map(|event| serde_json::from_str(event.strip_prefix("data: ").unwrap()).unwrap())
            .collect();
        assert!(
            chunks.iter().all(|chunk| chunk["object"] == "text_completion"),
            "{body}"
        );
        let text: String = chunks
            .iter()
            .filter_map(|chunk| chunk["choices"][0]["text"].as_str())
            .collect();
        assert_eq!(text, " upon");
        assert!(body.contains(r#""finish_reason":"length""#), "{body}");
        assert_eq!(
            chunks.iter().filter(|chunk| chunk["usage"].is_object()).count(),
            usages
        );
    }

    for (more, param) in [(r#","suffix":"x""#, "suffix"), (r#","logprobs":1"#, "logprobs")] {
        let (status, refused) = read(ask(more).await).await;
        assert_eq!(
            (status, &refused["error"]["param"]),
            (400, &json!(param)),
            "{refused}"
        );
    }
    let (status, refused) = read(
        proxy
            .post_to("/v1/completions", r#"{"model":"m","prompt":["a","b"]}"#)
            .await,
    )
    .await;
    assert_eq!(
        (status, &refused["error"]["param"]),
        (400, &json!("prompt")),
        "{refused}"
    );
    proxy.end().await;
}

#[tokio::test]
async fn gemini_answers_whole_streamed_and_with_embeddings() {
    let upstream = Upstream::start(|body| {
        let said = json!({
            "candidates": [{"content": {"parts": [{"text": "Hello"}]}, "finishReason": "STOP"}],
            "usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 2}, "responseId": "r",
        });
        if body["requests"].is_array() {
            return json_answer(200, &json!({"embeddings": [{"values": [1.0]}]}));
        }
        match body["contents"][0]["parts"][0]["text"].as_str() {
            Some("stream") => events(&[said]),
            _ => json_answer(200, &said),
        }
    })
    .await;
    let proxy = proxy("gemini/flash", &upstream).await;
    let (status, whole) = read(proxy.ask(question(false)).await).await;
    assert_eq!(
        (status, &whole["choices"][0]["message"]["content"]),
        (200, &json!("Hello"))
    );
    let mut streamed = question(true);
    streamed["messages"][0]["content"] = json!("stream");
    streamed["stream_options"] = json!({"include_usage": true});
    let body = proxy.ask(streamed).await.text().await.unwrap();
    assert!(
        body.contains("\"total_tokens\":5") && body.ends_with("data: [DONE]\n\n"),
        "{body}"
    );
    // Answered whole although a stream was asked for.
    let body = proxy.ask(question(true)).await.text().await.unwrap();
    assert!(
        body.contains("\"content\":\"Hello\"") && body.ends_with("data: [DONE]\n\n"),
        "{body}"
    );
    let (status, list) = read(
        proxy
            .post_to("/v1/embeddings", r#"{"model":"m","input":"x"}"#)
            .await,
    )
    .await;
    assert_eq!((status, &list["data"][0]["embedding"]), (200, &json!([1.0])));
    let (status, text) = read(
        proxy
            .post_to("/v1/completions", r#"{"model":"m","prompt":"x"}"#)
            .await,
    )
    .await;
    assert_eq!(
        (status, &text["object"], &text["choices"][0]["text"]),
        (200, &json!("text_completion"), &json!("Hello"))
    );
    proxy.end().await;
}

#[tokio::test]
async fn other_requests_of_openais_api_are_passed_on_too() {
    let upstream = Upstream::start(|body| {
        let answer = if body["input"].is_null() {
            json!({"object": "text_completion", "choices": [{"text": "b"}]})
        } else {
            json!({"object": "list", "data": [{"embedding": [0.5]}]})
        };
        json_answer(200, &answer)
    })
    .await;
    let proxy = proxy("hosted_vllm/big", &upstream).await;
    let (status, body) = read(
        proxy
            .post_to("/v1/embeddings", r#"{"model":"m","input":[1,2]}"#)
            .await,
    )
    .await;
    assert_eq!(
        (status, body),
        (200, json!({"object": "list", "data": [{"embedding": [0.5]}]}))
    );
    assert_eq!(upstream.seen().path, "/embeddings");
    assert_eq!(upstream.seen().body, json!({"model": "big", "input": [1, 2]}));
    let (status, body) = read(
        proxy
            .post_to("/v1/completions", r#"{"model":"m","prompt":"a"}"#)
            .await,
    )
    .await;
    assert_eq!((status, &body["choices"][0]["text"]), (200, &json!("b")));
    // Answered whole although a stream was asked for.
    let streamed = proxy
        .post_to("/v1/completions", r#"{"model":"m","prompt":"a","stream":true}"#)
        .await;
    assert_eq!(
        streamed.text().await.unwrap(),
        "data: {\"object\":\"text_completion\",\"choices\":[{\"text\":\"b\"}]}\n\ndata: [DONE]\n\n"
    );
    let (status, body) = read(proxy.post_to("/v1/embeddings", r#"{"model":"m"}"#).await).await;
    assert_eq!((status, &body["error"]["param"]), (400, &json!("input")));
    proxy.end().await;
}

#[tokio::test]
async fn the_mock_embeds_and_completes() {
    let proxy = Proxy::of("model_list: [{model_name: m, litellm_params: {model: mock}}]").await;
    let (status, list) = read(
        proxy
            .post_to(
                "/v1/embeddings",
                r#"{"model":"m","input":["a b","b A"],"dimensions":4}"#,
            )
            .await,
    )
    .await;
    assert_eq!(
        (status, &list["data"][0]["embedding"]),
        (200, &list["data"][1]["embedding"])
    );
    assert_eq!(list["data"][0]["embedding"].as_array().unwrap().len(), 4);
    let (status, body) = read(
        proxy
            .post_to("/v1/completions", r#"{"model":"m","prompt":"a b"}"#)
            .await,
    )
    .await;
    assert_eq!(
        (status, &body["choices"][0]["text"]),
        (200, &json!("[mock] You said: a b"))
    );
    let (status, body) = read(
        proxy
            .post_to("/v1/completions", r#"{"model":"m","prompt":7}"#)
            .await,
    )
    .await;
    assert_eq!(
        (status, body["error"]["message"].as_str()),
        (
            400,
            Some("the body is no text completion request: prompt is neither a text nor a list of texts")
        )
    );
    proxy.end().await;
}

#[tokio::test]
async fn a_master_key_is_asked_for_except_of_probes() {
    let config = "model_list: [{model_name: m, litellm_params: {model: mock}, model_info: {mode: chat}}]\n\
                  general_settings: {master_key: sk-master}\n";
    let proxy = Proxy::of(config).await;
    for path in ["/health/liveliness", "/health/readiness", "/health", "/ready"] {
        assert_eq!(proxy.get(path).await.0, 200, "{path}");
    }
    let (status, body) = read(proxy.ask(question(false)).await).await;
    assert_eq!((status, &body["error"]["code"]), (401, &json!("invalid_api_key")));
    assert_eq!(proxy.get("/v1/models").await.0, 401);
    for (header, value, status) in [
        ("authorization", "Bearer sk-master", 200),
        ("x-api-key", "sk-master", 200),
        ("authorization", "Bearer sk-maste", 401),
        ("authorization", "Basic sk-master", 401),
    ] {
        let url = format!("{}/v1/model/info", proxy.url);
        let response = proxy.client.get(url).header(header, value).send().await.unwrap();
        assert_eq!(response.status().as_u16(), status, "{header}: {value}");
        if status == 200 {
            let info: Value = response.json().await.unwrap();
            assert_eq!(
                info["data"][0],
                json!({
                    "model_name": "m", "litellm_params": {"model": "mock/mock"},
                    "model_info": {"id": "mock/mock", "mode": "chat"},
                })
            );
        }
    }
    proxy.end().await;
}
