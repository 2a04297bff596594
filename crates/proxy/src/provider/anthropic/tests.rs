//! Conversations of both APIs beside each other, in the shapes of Anthropic's documentation.

use axum::http::StatusCode;
use serde_json::{Value, json};

use super::Stream;
use crate::{
    provider::testing::{answer, call, chat, folded, origin, remote, stream},
    request::Operation,
};

fn upstream() -> crate::provider::Remote {
    remote("anthropic", "https://api.anthropic.com")
}

fn sent(request: Value) -> Value {
    chat(&upstream(), request).unwrap()
}

#[test]
fn the_request_goes_to_messages_with_the_key_and_the_version() {
    let request = json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]});
    for base in ["https://api.anthropic.com", "https://api.anthropic.com/v1"] {
        let (url, headers, body) = call(&remote("anthropic", base), Operation::Chat, &request).unwrap();
        assert_eq!(url, "https://api.anthropic.com/v1/messages");
        assert_eq!(
            (
                headers["x-api-key"].as_str(),
                headers["anthropic-version"].as_str()
            ),
            ("sk-1", "2023-06-01")
        );
        assert_eq!(
            body,
            json!({
                "model": "inner", "max_tokens": 4096,
                "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}],
            })
        );
    }
    let embed = json!({"model": "m", "input": "x"});
    assert_eq!(
        call(&upstream(), Operation::Embeddings, &embed).unwrap_err(),
        "the provider anthropic has no embeddings; ask a model of another one"
    );
}

#[test]
fn a_conversation_with_tools_alternates() {
    let body = sent(json!({
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Weather in Paris and Oslo?"},
            {"role": "assistant", "content": "I look.", "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "weather", "arguments": "{\"city\":\"Paris\"}"}},
                {"id": "b", "type": "function", "function": {"name": "weather", "arguments": ""}},
                {"id": "c", "type": "function", "function": {"name": "weather", "arguments": "{\"city\":\"Os"}},
            ]},
            {"role": "tool", "tool_call_id": "a", "content": "19"},
            {"role": "tool", "tool_call_id": "b", "content": [{"type": "text", "text": "11"}]},
            {"role": "tool", "tool_call_id": "c", "content": ""},
            {"role": "developer", "content": "In one word."},
            {"role": "user", "content": "And?"},
        ],
        "tools": [{"type": "function", "function": {
            "name": "weather", "description": "The weather", "strict": true,
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        }}, {"type": "function", "function": {"name": "now"}}],
        "tool_choice": "required", "parallel_tool_calls": false,
    }));
    assert_eq!(
        body["system"],
        json!([{"type": "text", "text": "Be brief."}, {"type": "text", "text": "In one word."}])
    );
    assert_eq!(
        body["messages"],
        json!([
            {"role": "user", "content": [{"type": "text", "text": "Weather in Paris and Oslo?"}]},
            {"role": "assistant", "content": [
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "a", "name": "weather", "input": {"city": "Paris"}},
                {"type": "tool_use", "id": "b", "name": "weather", "input": {}},
                {"type": "tool_use", "id": "c", "name": "weather", "input": {"invalid_arguments": "{\"city\":\"Os"}},
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "19"}]},
                {"type": "tool_result", "tool_use_id": "b", "content": [{"type": "text", "text": "11"}]},
                {"type": "tool_result", "tool_use_id": "c", "content": []},
                {"type": "text", "text": "And?"},
            ]},
        ])
    );
    assert_eq!(
        body["tools"],
        json!([
            {"name": "weather", "description": "The weather", "strict": true,
             "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}},
            {"name": "now", "input_schema": {"type": "object", "properties": {}}},
        ])
    );
    assert_eq!(
        body["tool_choice"],
        json!({"type": "any", "disable_parallel_tool_use": true})
    );
}

#[test]
fn choices_of_tools_are_translated() {
    let tools = json!([{"type": "function", "function": {"name": "f"}}]);
    for (choice, expected) in [
        (json!("auto"), json!({"type": "auto"})),
        (json!("none"), json!({"type": "none"})),
        (
            json!({"type": "function", "function": {"name": "f"}}),
            json!({"type": "tool", "name": "f"}),
        ),
        (Value::Null, Value::Null),
    ] {
        let request =
            json!({"messages": [{"role": "user", "content": "x"}], "tools": tools, "tool_choice": choice});
        assert_eq!(sent(request)["tool_choice"], expected);
    }
}

#[test]
fn images_files_and_marks_for_the_cache_are_translated() {
    let mark = json!({"type": "ephemeral"});
    let body = sent(json!({"messages": [{"role": "user", "content": [
        {"type": "text", "text": "What is this?", "cache_control": mark},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAA=", "detail": "low"}},
        {"type": "image_url", "image_url": {"url": "https://example.com/a.jpg"}},
        {"type": "file", "file": {"file_data": "data:application/pdf;base64,JVBE"}},
        {"type": "text", "text": " "},
    ]}]}));
    assert_eq!(
        body["messages"][0]["content"],
        json!([
            {"type": "text", "text": "What is this?", "cache_control": mark},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAA="}},
            {"type": "image", "source": {"type": "url", "url": "https://example.com/a.jpg"}},
            {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBE"}},
        ])
    );
}

#[test]
fn parameters_are_translated_passed_on_or_refused() {
    let request = json!({
        "messages": [{"role": "user", "content": "x"}],
        "max_completion_tokens": 9, "max_tokens": 8, "temperature": 0.5, "top_p": 1, "stop": "end", "user": "u",
        "stream": true, "stream_options": {"include_usage": true}, "n": 1, "logit_bias": null,
        "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}},
        "thinking": {"type": "enabled", "budget_tokens": 1024}, "top_k": 5,
    });
    let mut body = sent(request.clone());
    body.as_object_mut().unwrap().shift_remove("messages");
    assert_eq!(
        body,
        json!({
            "model": "inner", "max_tokens": 9, "temperature": 0.5, "top_p": 1, "stop_sequences": ["end"],
            "metadata": {"user_id": "u"}, "stream": true, "thinking": {"type": "enabled", "budget_tokens": 1024},
            "output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}}, "top_k": 5,
        })
    );
    let mut foreign = request;
    foreign["seed"] = json!(7);
    assert_eq!(
        chat(&upstream(), foreign.clone()).unwrap_err(),
        "the provider anthropic has no parameter seed; leave it out, or set litellm_settings.drop_params: true in \
         the proxy's configuration"
    );
    let mut dropping = upstream();
    dropping.drop_params = true;
    assert_eq!(chat(&dropping, foreign).unwrap()["seed"], Value::Null);
}

#[test]
fn what_cannot_be_said_is_refused() {
    for (request, problem) in [
        (
            json!({"messages": [{"role": "judge", "content": "x"}]}),
            "messages[0].role is \"judge\"; use system, developer, user, assistant or tool",
        ),
        (
            json!({"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]}),
            "messages[0].content[0] is of the type \"input_audio\", which the provider anthropic has not",
        ),
        (
            json!({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "ftp://x"}}]}]}),
            "messages[0].content[0].image_url.url is neither an http nor a base64 data URL",
        ),
        (
            json!({"messages": [{"role": "user", "content": "x"}], "tools": [{"type": "web", "function": {"name": "f"}}]}),
            "a tool is of the type \"web\"; the provider anthropic is offered functions",
        ),
        (
            json!({"messages": [{"role": "user", "content": "x"}], "tool_choice": "some", "tools": []}),
            "tool_choice must be none, auto, required or name a function",
        ),
        (
            json!({"messages": [{"role": "user", "content": "x"}], "response_format": {"type": "json_object"}}),
            "the provider anthropic has response_format of the types text and json_schema only; give a schema",
        ),
    ] {
        assert_eq!(chat(&upstream(), request).unwrap_err(), problem);
    }
}

#[test]
fn an_answer_becomes_a_completion() {
    let said = json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-x",
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "text", "text": "I look."},
            {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Paris"}},
            {"type": "tool_use", "id": "toolu_2", "name": "now", "input": {}},
        ],
        "stop_reason": "tool_use", "stop_sequence": null,
        "usage": {"input_tokens": 10, "cache_read_input_tokens": 5, "cache_creation_input_tokens": 1, "output_tokens": 7},
    });
    assert_eq!(
        answer(&upstream(), &said).unwrap(),
        json!({
            "id": "msg_1", "object": "chat.completion", "created": 7, "model": "claude-x",
            "choices": [{"index": 0, "finish_reason": "tool_calls", "message": {
                "role": "assistant", "content": "I look.",
                "tool_calls": [
                    {"id": "toolu_1", "type": "function", "function": {"name": "weather", "arguments": "{\"city\":\"Paris\"}"}},
                    {"id": "toolu_2", "type": "function", "function": {"name": "now", "arguments": "{}"}},
                ],
                "reasoning_content": "hm",
                "thinking_blocks": [{"type": "thinking", "thinking": "hm", "signature": "s"}],
            }}],
            "usage": {
                "prompt_tokens": 16, "completion_tokens": 7, "total_tokens": 23,
                "prompt_tokens_details": {"cached_tokens": 5, "cache_creation_tokens": 1},
            },
        })
    );
    // What the model thought goes back to it as it was signed.
    let thoughts = json!([{"type": "thinking", "thinking": "hm", "signature": "s"}]);
    let body = sent(json!({"messages": [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": "y", "reasoning_content": "hm", "thinking_blocks": thoughts},
    ]}));
    assert_eq!(body["messages"][1]["content"][0], thoughts[0]);
    assert!(answer(&upstream(), &json!({"type": "message"})).is_err());
}

#[test]
fn reasons_to_stop_are_translated() {
    for (reason, expected) in [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("tool_use", "tool_calls"),
        ("refusal", "content_filter"),
    ] {
        let said = json!({"content": [], "stop_reason": reason});
        assert_eq!(
            answer(&upstream(), &said).unwrap()["choices"][0]["finish_reason"],
            expected
        );
    }
}

/// As recorded in the documentation of streaming, with parallel calls.
fn events() -> Vec<Value> {
    vec![
        json!({"type": "message_start", "message": {"id": "msg_1", "type": "message", "role": "assistant",
            "content": [], "model": "claude-x", "stop_reason": null,
            "usage": {"input_tokens": 25, "output_tokens": 1}}}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": "", "signature": ""}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "hm"}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "sig"}}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}}),
        json!({"type": "ping"}),
        json!({"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "Hel"}}),
        json!({"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "lo"}}),
        json!({"type": "content_block_stop", "index": 1}),
        json!({"type": "content_block_start", "index": 2, "content_block": {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {}}}),
        json!({"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": ""}}),
        json!({"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": "{\"city\":"}}),
        json!({"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": " \"Paris\"}"}}),
        json!({"type": "content_block_stop", "index": 2}),
        json!({"type": "content_block_start", "index": 3, "content_block": {"type": "tool_use", "id": "toolu_2", "name": "now", "input": {}}}),
        json!({"type": "content_block_stop", "index": 3}),
        json!({"type": "message_delta", "delta": {"stop_reason": "tool_use", "stop_sequence": null}, "usage": {"output_tokens": 15}}),
        json!({"type": "message_stop"}),
    ]
}

#[test]
fn a_stream_becomes_chunks() {
    let (chunks, end) = stream(&mut Stream::new(origin()), &events());
    assert_eq!(end.as_deref(), Some("done"));
    assert_eq!(
        chunks[0]["choices"][0]["delta"],
        json!({"role": "assistant", "content": ""})
    );
    assert!(
        chunks
            .iter()
            .all(|chunk| chunk["id"] == "msg_1" && chunk["model"] == "claude-x" && chunk["created"] == 7)
    );
    let texts: Vec<&str> = chunks
        .iter()
        .filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str())
        .collect();
    assert_eq!(texts, ["", "Hel", "lo"], "tokens come as they are sent");
    let (message, reason, usage) = folded(&chunks);
    assert_eq!(
        message,
        json!({
            "role": "assistant", "content": "Hello", "reasoning_content": "hm",
            "thinking_blocks": [{"type": "thinking", "thinking": "hm", "signature": "sig"}],
            "tool_calls": [
                {"id": "toolu_1", "type": "function", "function": {"name": "weather", "arguments": "{\"city\": \"Paris\"}"}},
                {"id": "toolu_2", "type": "function", "function": {"name": "now", "arguments": "{}"}},
            ],
        })
    );
    assert_eq!(reason, "tool_calls");
    assert_eq!(
        usage,
        json!({"prompt_tokens": 25, "completion_tokens": 15, "total_tokens": 40})
    );
}

#[test]
fn a_stream_that_fails_or_stops_says_so() {
    let overloaded = json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}});
    let (_, end) = stream(&mut Stream::new(origin()), &[events()[0].clone(), overloaded]);
    assert_eq!(end.as_deref(), Some("Overloaded"));
    let (_, end) = stream(&mut Stream::new(origin()), &events()[..8]);
    assert_eq!(end, None, "it is not complete");
    let (_, end) = stream(&mut Stream::new(origin()), &events()[..18]);
    assert_eq!(end.as_deref(), Some("done"), "only message_stop is missing");
}

#[test]
fn errors_are_translated() {
    let said =
        json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}).to_string();
    let refusal = upstream().refusal(StatusCode::from_u16(529).unwrap(), &said);
    assert_eq!(refusal.status, StatusCode::SERVICE_UNAVAILABLE);
    let error = refusal.body.unwrap().error;
    assert_eq!(
        (error.message.as_str(), error.kind.as_deref()),
        ("Overloaded", Some("overloaded_error"))
    );
    assert!(
        upstream()
            .refusal(StatusCode::BAD_GATEWAY, "<html>")
            .body
            .is_none()
    );
}
