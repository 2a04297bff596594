//! What the proxy answers by itself: health, models, the mock, and requests that are wrong.

use serde_json::{Value, json};

use crate::setup::{Proxy, read};

#[tokio::test]
async fn health_and_models_are_told() {
    let proxy = Proxy::alone().await;
    for path in ["/health", "/health/liveliness", "/health/liveness"] {
        assert_eq!(
            proxy.get(path).await,
            (200, json!({"status": "healthy"})),
            "{path}"
        );
    }
    for path in ["/ready", "/health/readiness"] {
        assert_eq!(proxy.get(path).await.0, 200, "{path}");
    }
    let (status, models) = proxy.get("/v1/models").await;
    assert_eq!((status, &models["object"]), (200, &json!("list")));
    assert_eq!(
        models["data"][1],
        json!({"id": "quickstart", "object": "model", "created": 1_767_225_600, "owned_by": "kaos"})
    );
    proxy.end().await;
}

#[tokio::test]
async fn a_wrong_request_is_told_what_is_wrong() {
    let proxy = Proxy::alone().await;
    let messages = json!([{"role": "user", "content": "hi"}]);
    for (body, status, param, message) in [
        (
            "{\"model\":".to_owned(),
            400,
            None,
            "the body is not valid JSON: EOF while parsing a value at line 1 column 9",
        ),
        ("[]".to_owned(), 400, None, "the body must be a JSON object"),
        (
            json!({"messages": messages}).to_string(),
            400,
            Some("model"),
            "model is missing; name one of GET /v1/models",
        ),
        (
            json!({"model": "big", "messages": []}).to_string(),
            400,
            Some("messages"),
            "messages must be a list with at least one message",
        ),
        (
            json!({"model": "big", "messages": messages, "api_base": "http://elsewhere"}).to_string(),
            400,
            Some("api_base"),
            "api_base cannot be set by a request; it belongs in the proxy's configuration",
        ),
        (
            json!({"model": "other", "messages": messages}).to_string(),
            404,
            None,
            "the model \"other\" does not exist; the models are: big, quickstart",
        ),
        (
            json!({"model": "quickstart", "messages": [7]}).to_string(),
            400,
            None,
            "the body is no chat completion request: invalid type: integer `7`, expected struct Message",
        ),
    ] {
        let (found, answer) = read(proxy.post(body).await).await;
        let error = &answer["error"];
        assert_eq!(
            (found, error["message"].as_str(), error["param"].as_str()),
            (status, Some(message), param)
        );
        assert_eq!(error["type"], "invalid_request_error");
    }
    assert_eq!(proxy.get("/v1/nothing").await.0, 404);
    assert_eq!(proxy.get("/v1/chat/completions").await.0, 405);
    proxy.end().await;
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused() {
    let proxy = Proxy::alone().await;
    let (status, answer) = read(proxy.post(vec![b' '; 33 * 1024 * 1024]).await).await;
    assert_eq!(
        (status, answer["error"]["message"].as_str()),
        (413, Some("the body is larger than 32 MiB"))
    );
    proxy.end().await;
}

#[tokio::test]
async fn the_mock_answers_whole_and_in_pieces_alike() {
    let proxy = Proxy::alone().await;
    let request = |stream: bool| {
        json!({
            "model": "quickstart",
            "messages": [{"role": "user", "content": "Say  this\nagain"}],
            "stream": stream,
            "stream_options": {"include_usage": true},
        })
    };
    let (status, whole) = read(proxy.ask(request(false)).await).await;
    assert_eq!(status, 200);
    assert_eq!(whole["system_fingerprint"], "kaos-mock");
    let text = "[mock] You said: Say  this\nagain";
    assert_eq!(
        whole["choices"][0]["message"],
        json!({"role": "assistant", "content": text})
    );
    assert_eq!(
        whole["usage"],
        json!({"prompt_tokens": 3, "completion_tokens": 6, "total_tokens": 9})
    );

    let response = proxy.ask(request(true)).await;
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let body = response.text().await.unwrap();
    let mut events: Vec<&str> = body
        .split("\n\n")
        .map(|event| event.trim_start_matches("data: "))
        .collect();
    assert_eq!(events.split_off(events.len() - 2), ["[DONE]", ""]);
    let chunks: Vec<Value> = events
        .iter()
        .map(|event| serde_json::from_str(event).unwrap())
        .collect();
    let pieces: String = chunks
        .iter()
        .filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str())
        .collect();
    assert_eq!(pieces, text);
    assert!(chunks.len() > 5, "word by word");
    assert_eq!(chunks[chunks.len() - 2]["choices"][0]["finish_reason"], "stop");
    assert_eq!(chunks[chunks.len() - 1]["usage"], whole["usage"]);
    assert!(
        chunks
            .iter()
            .all(|chunk| chunk["system_fingerprint"] == "kaos-mock")
    );
    proxy.end().await;
}

#[tokio::test]
async fn the_mock_streams_the_call_of_a_tool() {
    let proxy = Proxy::alone().await;
    let response = proxy
        .ask(json!({
            "model": "quickstart",
            "messages": [{"role": "user", "content": "3 times 4"}],
            "stream": true,
            "tools": [{"type": "function", "function": {
                "name": "multiply",
                "description": "a times b",
                "parameters": {
                    "type": "object",
                    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
                    "required": ["a", "b"],
                },
            }}],
        }))
        .await;
    let mut decoder = kaos_openai::sse::Decoder::new(1 << 20);
    let mut whole = kaos_openai::ChunkAccumulator::new();
    for event in decoder.feed(&response.bytes().await.unwrap()).unwrap() {
        if event.data != kaos_openai::sse::DONE {
            whole.push(&serde_json::from_str(&event.data).unwrap());
        }
    }
    let choice = &whole.into_response().choices[0];
    assert_eq!(choice.finish_reason, Some(kaos_openai::FinishReason::ToolCalls));
    assert_eq!(
        choice.message.tool_calls[0].function.arguments,
        r#"{"a":3,"b":4}"#
    );
    proxy.end().await;
}

#[tokio::test]
async fn pages_of_other_sites_are_refused() {
    let proxy = Proxy::alone().await;
    let body = json!({"model": "quickstart", "messages": [{"role": "user", "content": "hi"}]}).to_string();
    for (origin, status) in [
        ("https://evil.example", 403),
        ("http://localhost.evil.example", 403),
        ("http://203.0.113.5", 403),
        ("null", 403),
        ("http://localhost:5173", 200),
        ("http://[::1]:5173", 200),
    ] {
        let request = proxy.client.post(format!("{}/v1/chat/completions", proxy.url));
        let response = request
            .header("origin", origin)
            .body(body.clone())
            .send()
            .await
            .unwrap();
        assert_eq!(response.status(), status, "{origin}");
    }
    proxy.end().await;
}
