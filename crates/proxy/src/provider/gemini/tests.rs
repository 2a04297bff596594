//! Conversations of both APIs beside each other, in the shapes of Google's documentation.

use axum::http::StatusCode;
use serde_json::{Value, json};

use super::Stream;
use crate::{
    provider::{
        Remote,
        testing::{answer, call, chat, folded, origin, remote, stream},
    },
    request::{Operation, Request},
};

const BASE: &str = "https://generativelanguage.googleapis.com/v1beta";

fn upstream() -> Remote {
    remote("gemini", BASE)
}

fn sent(request: Value) -> Value {
    chat(&upstream(), request).unwrap()
}

#[test]
fn the_model_and_the_method_are_in_the_address() {
    let mut request = json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]});
    let (url, headers, body) = call(&upstream(), Operation::Chat, &request).unwrap();
    assert_eq!(url, format!("{BASE}/models/inner:generateContent"));
    assert_eq!(headers["x-goog-api-key"], "sk-1");
    assert_eq!(
        body,
        json!({"contents": [{"role": "user", "parts": [{"text": "hi"}]}]})
    );
    request["stream"] = json!(true);
    let (url, _, _) = call(&upstream(), Operation::Chat, &request).unwrap();
    assert_eq!(url, format!("{BASE}/models/inner:streamGenerateContent?alt=sse"));
    let prompt = json!({"model": "m", "prompt": "hi", "logprobs": 2, "echo": false});
    let (url, _, body) = call(&upstream(), Operation::Completions, &prompt).unwrap();
    assert_eq!(url, format!("{BASE}/models/inner:generateContent"));
    assert_eq!(
        body,
        json!({
            "contents": [{"role": "user", "parts": [{"text": "hi"}]}],
            "generationConfig": {"responseLogprobs": true, "logprobs": 2},
        })
    );
    let echoed = json!({"model": "m", "prompt": "hi", "echo": true});
    let message = call(&upstream(), Operation::Completions, &echoed).unwrap_err();
    assert!(
        message.starts_with("the provider gemini has no parameter echo;"),
        "{message}"
    );
}

#[test]
fn a_conversation_with_tools_is_translated() {
    let body = sent(json!({
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [
                {"type": "text", "text": "Weather?"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAA="}},
                {"type": "image_url", "image_url": {"url": "https://example.com/a.webp?x=1"}},
                {"type": "input_audio", "input_audio": {"data": "UklG", "format": "wav"}},
            ]},
            {"role": "assistant", "content": null, "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "weather", "arguments": "{\"city\":\"Paris\"}"},
                 "extra_content": {"google": {"thought_signature": "sig"}}},
                {"id": "b", "type": "function", "function": {"name": "now", "arguments": "{}"}},
            ]},
            {"role": "tool", "tool_call_id": "a", "content": "19"},
            {"role": "tool", "tool_call_id": "b", "content": "{\"time\": \"12:00\"}"},
        ],
        "tools": [{"type": "function", "function": {
            "name": "weather", "description": "The weather",
            "parameters": {"type": "object", "properties": {}, "additionalProperties": false},
        }}],
        "tool_choice": {"type": "function", "function": {"name": "weather"}},
    }));
    assert_eq!(
        body,
        json!({
            "systemInstruction": {"parts": [{"text": "Be brief."}]},
            "contents": [
                {"role": "user", "parts": [
                    {"text": "Weather?"},
                    {"inlineData": {"mimeType": "image/png", "data": "AAA="}},
                    {"fileData": {"mimeType": "image/webp", "fileUri": "https://example.com/a.webp?x=1"}},
                    {"inlineData": {"mimeType": "audio/wav", "data": "UklG"}},
                ]},
                {"role": "model", "parts": [
                    {"functionCall": {"name": "weather", "args": {"city": "Paris"}}, "thoughtSignature": "sig"},
                    {"functionCall": {"name": "now", "args": {}}},
                ]},
                {"role": "user", "parts": [
                    {"functionResponse": {"name": "weather", "response": {"result": "19"}}},
                    {"functionResponse": {"name": "now", "response": {"time": "12:00"}}},
                ]},
            ],
            "tools": [{"functionDeclarations": [{
                "name": "weather", "description": "The weather",
                "parametersJsonSchema": {"type": "object", "properties": {}, "additionalProperties": false},
            }]}],
            "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["weather"]}},
        })
    );
}

#[test]
fn a_signature_that_was_lost_is_stood_in_for_where_the_model_insists() {
    let request = json!({"model": "m", "messages": [
        {"role": "user", "content": "x"},
        {"role": "assistant", "tool_calls": [
            {"id": "a", "function": {"name": "f", "arguments": "{}"}}, {"id": "b", "function": {"name": "f", "arguments": "{}"}},
        ]},
    ]})
    .to_string();
    let request = Request::read(Operation::Chat, request.as_bytes()).unwrap();
    let signature = |model: &str| {
        let body: Value = serde_json::from_slice(&upstream().call(&request, model).unwrap().body).unwrap();
        [0, 1].map(|at| body["contents"][1]["parts"][at]["thoughtSignature"].clone())
    };
    assert_eq!(
        signature("gemini-3-pro"),
        [json!("skip_thought_signature_validator"), Value::Null]
    );
    assert_eq!(signature("gemini-2.5-pro"), [Value::Null, Value::Null]);
}

#[test]
fn parameters_are_translated_passed_on_or_refused() {
    let request = json!({
        "messages": [{"role": "user", "content": "x"}],
        "max_tokens": 8, "temperature": 0.5, "top_p": 1, "top_k": 3, "stop": ["a", "b"], "n": 2, "seed": 4,
        "presence_penalty": 1, "frequency_penalty": 0.5, "logprobs": true, "top_logprobs": 2,
        "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}},
        "safetySettings": [{"category": "x"}],
        "generationConfig": {"thinkingConfig": {"thinkingBudget": 0}},
    });
    let mut body = sent(request.clone());
    body.as_object_mut().unwrap().shift_remove("contents");
    assert_eq!(
        body,
        json!({
            "generationConfig": {
                "maxOutputTokens": 8, "temperature": 0.5, "topP": 1, "topK": 3, "candidateCount": 2, "seed": 4,
                "presencePenalty": 1, "frequencyPenalty": 0.5, "logprobs": 2, "responseLogprobs": true,
                "stopSequences": ["a", "b"], "responseMimeType": "application/json",
                "responseJsonSchema": {"type": "object"}, "thinkingConfig": {"thinkingBudget": 0},
            },
            "safetySettings": [{"category": "x"}],
        })
    );
    let mut foreign = request;
    foreign["logit_bias"] = json!({"1": 2});
    assert!(
        chat(&upstream(), foreign)
            .unwrap_err()
            .starts_with("the provider gemini has no parameter logit_bias;")
    );
}

#[test]
fn what_cannot_be_said_is_refused() {
    for (request, problem) in [
        (
            json!({"messages": [{"role": "tool", "tool_call_id": "z", "content": "1"}]}),
            "messages[0].tool_call_id is \"z\", which no call before it has",
        ),
        (
            json!({"messages": [{"role": "user", "content": [{"type": "video"}]}]}),
            "messages[0].content[0] is of the type \"video\", which the provider gemini has not",
        ),
        (
            json!({"messages": [{"role": "user", "content": [{"type": "file", "file": {"file_id": "x"}}]}]}),
            "messages[0].content[0].file.file_data is no base64 data URL, which is all that can be sent on",
        ),
    ] {
        assert_eq!(chat(&upstream(), request).unwrap_err(), problem);
    }
}

#[test]
fn an_answer_becomes_a_completion() {
    let said = json!({
        "candidates": [{
            "content": {"role": "model", "parts": [
                {"text": "hm", "thought": true},
                {"text": "I look."},
                {"functionCall": {"name": "weather", "args": {"city": "Paris"}}, "thoughtSignature": "sig"},
                {"functionCall": {"id": "own", "name": "now"}},
            ]},
            "finishReason": "STOP", "index": 0, "safetyRatings": [],
        }],
        "usageMetadata": {
            "promptTokenCount": 10, "candidatesTokenCount": 5, "thoughtsTokenCount": 2, "totalTokenCount": 17,
            "cachedContentTokenCount": 4,
        },
        "modelVersion": "gemini-2.5-flash", "responseId": "r1",
    });
    assert_eq!(
        answer(&upstream(), &said).unwrap(),
        json!({
            "id": "r1", "object": "chat.completion", "created": 7, "model": "gemini-2.5-flash",
            "choices": [{"index": 0, "finish_reason": "tool_calls", "message": {
                "role": "assistant", "content": "I look.",
                "tool_calls": [
                    {"id": "call_r1_0_0", "type": "function",
                     "function": {"name": "weather", "arguments": "{\"city\":\"Paris\"}"},
                     "extra_content": {"google": {"thought_signature": "sig"}}},
                    {"id": "own", "type": "function", "function": {"name": "now", "arguments": "{}"}},
                ],
                "reasoning_content": "hm",
            }}],
            "usage": {
                "prompt_tokens": 10, "completion_tokens": 7, "total_tokens": 17,
                "prompt_tokens_details": {"cached_tokens": 4}, "completion_tokens_details": {"reasoning_tokens": 2},
            },
        })
    );
    let blocked =
        json!({"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 3}});
    let blocked = answer(&upstream(), &blocked).unwrap();
    assert_eq!(blocked["choices"][0]["finish_reason"], "content_filter");
    assert!(answer(&upstream(), &json!({})).is_err());
}

#[test]
fn reasons_to_stop_are_translated() {
    for (reason, expected) in [
        ("STOP", "stop"),
        ("MAX_TOKENS", "length"),
        ("SAFETY", "content_filter"),
        ("PROHIBITED_CONTENT", "content_filter"),
        ("MALFORMED_FUNCTION_CALL", "malformed_function_call"),
        ("OTHER", "stop"),
    ] {
        let said = json!({"candidates": [{"finishReason": reason}]});
        assert_eq!(
            answer(&upstream(), &said).unwrap()["choices"][0]["finish_reason"],
            expected
        );
    }
}

/// As the API tells them: the token that was chosen, and the most probable ones at its place.
fn probabilities() -> (Value, Value) {
    let said = json!({
        "chosenCandidates": [{"token": "Hé", "tokenId": 1, "logProbability": -0.25}],
        "topCandidates": [{"candidates": [
            {"token": "Hé", "tokenId": 1, "logProbability": -0.25}, {"token": "Yo", "tokenId": 2, "logProbability": -3},
        ]}],
        "logProbabilitySum": -0.25,
    });
    let chosen = json!({"token": "Hé", "logprob": -0.25, "bytes": [72, 195, 169]});
    let mut token = chosen.clone();
    token["top_logprobs"] = json!([chosen, {"token": "Yo", "logprob": -3, "bytes": [89, 111]}]);
    (said, json!({"content": [token], "refusal": null}))
}

#[test]
fn log_probabilities_are_translated() {
    let (said, expected) = probabilities();
    let candidate = json!({
        "content": {"parts": [{"text": "Hé"}]}, "finishReason": "STOP", "avgLogprobs": -0.25, "logprobsResult": said,
    });
    let whole = answer(&upstream(), &json!({ "candidates": [candidate] })).unwrap();
    assert_eq!(
        (
            &whole["choices"][0]["logprobs"],
            &whole["choices"][0]["avg_logprobs"]
        ),
        (&expected, &json!(-0.25))
    );
    let (chunks, _) = stream(
        &mut Stream::new(origin()),
        &[json!({ "candidates": [candidate] })],
    );
    let told: Vec<&Value> = chunks
        .iter()
        .filter(|chunk| !chunk["choices"][0]["logprobs"].is_null())
        .collect();
    assert_eq!(told.len(), 1);
    assert_eq!(told[0]["choices"][0]["logprobs"], expected);
    assert_eq!(told[0]["choices"][0]["delta"], json!({"content": "Hé"}));
    // What is none is left out, and the answer is not.
    let odd = json!({"candidates": [{"content": {"parts": [{"text": "a"}]}, "logprobsResult": {"chosenCandidates": [7]}}]});
    let odd = answer(&upstream(), &odd).unwrap();
    assert_eq!(odd["choices"][0]["logprobs"]["content"], json!([]));
}

fn events() -> Vec<Value> {
    let part = |part: Value| {
        json!({"candidates": [{"content": {"role": "model", "parts": [part]}, "index": 0}],
        "responseId": "r1", "modelVersion": "gemini-x"})
    };
    vec![
        part(json!({"text": "hm", "thought": true})),
        part(json!({"text": "Hel"})),
        part(json!({"text": "lo"})),
        part(json!({"functionCall": {"name": "a", "args": {"x": 1}}, "thoughtSignature": "sig"})),
        json!({
            "candidates": [{"content": {"role": "model", "parts": [{"functionCall": {"name": "b", "args": {}}}]},
                "finishReason": "STOP", "index": 0}],
            "usageMetadata": {"promptTokenCount": 4, "candidatesTokenCount": 6, "totalTokenCount": 10},
            "responseId": "r1", "modelVersion": "gemini-x",
        }),
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
            .all(|chunk| chunk["id"] == "r1" && chunk["model"] == "gemini-x")
    );
    let (message, reason, usage) = folded(&chunks);
    assert_eq!(
        message,
        json!({
            "role": "assistant", "content": "Hello", "reasoning_content": "hm",
            "tool_calls": [
                {"id": "call_r1_0_0", "type": "function", "function": {"name": "a", "arguments": "{\"x\":1}"},
                 "extra_content": {"google": {"thought_signature": "sig"}}},
                {"id": "call_r1_0_1", "type": "function", "function": {"name": "b", "arguments": "{}"}},
            ],
        })
    );
    assert_eq!(
        (reason, &usage["total_tokens"]),
        (json!("tool_calls"), &json!(10))
    );
    let (_, end) = stream(&mut Stream::new(origin()), &events()[..3]);
    assert_eq!(end, None, "it is not complete");
    let error = json!({"error": {"code": 503, "message": "busy", "status": "UNAVAILABLE"}});
    let (_, end) = stream(&mut Stream::new(origin()), &[events()[0].clone(), error]);
    assert_eq!(end.as_deref(), Some("busy"));
    let blocked = json!({"promptFeedback": {"blockReason": "SAFETY"}});
    let (chunks, end) = stream(&mut Stream::new(origin()), &[blocked]);
    assert_eq!(
        (folded(&chunks).1, end.as_deref()),
        (json!("content_filter"), Some("done"))
    );
}

#[test]
fn errors_are_translated_with_the_time_to_wait() {
    let said = json!({"error": {"code": 429, "message": "Quota", "status": "RESOURCE_EXHAUSTED", "details": [
        {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "6.5s"},
    ]}});
    for said in [said.clone(), json!([said])] {
        let refusal = upstream().refusal(StatusCode::TOO_MANY_REQUESTS, &said.to_string());
        assert_eq!(refusal.retry_after.unwrap(), "7");
        let error = refusal.body.unwrap().error;
        assert_eq!(
            (
                error.message.as_str(),
                error.kind.as_deref(),
                error.code.as_deref()
            ),
            ("Quota", Some("rate_limit_error"), Some("resource_exhausted"))
        );
    }
}

#[test]
fn embeddings_are_translated() {
    let request = json!({"model": "m", "input": ["a", "b"], "dimensions": 2});
    let (url, _, body) = call(&upstream(), Operation::Embeddings, &request).unwrap();
    assert_eq!(url, format!("{BASE}/models/inner:batchEmbedContents"));
    let one = |text: &str| json!({"model": "models/inner", "content": {"parts": [{"text": text}]}, "outputDimensionality": 2});
    assert_eq!(body, json!({"requests": [one("a"), one("b")]}));
    let said = json!({"embeddings": [{"values": [0.5, -1]}]});
    let answered = |request: Value| -> Value {
        let text = request.to_string();
        let request = Request::read(Operation::Embeddings, text.as_bytes()).unwrap();
        let answer = upstream()
            .answer(&request, origin, said.to_string().into())
            .unwrap();
        serde_json::from_slice(&answer.body).unwrap()
    };
    assert_eq!(
        answered(request),
        json!({
            "object": "list", "data": [{"object": "embedding", "index": 0, "embedding": [0.5, -1.0]}],
            "model": "asked", "usage": {"prompt_tokens": 0, "total_tokens": 0},
        })
    );
    let base64 = answered(json!({"model": "m", "input": "a", "encoding_format": "base64"}));
    assert_eq!(base64["data"][0]["embedding"], "AAAAPwAAgL8=");
    let tokens = json!({"model": "m", "input": [[1, 2]]});
    assert_eq!(
        call(&upstream(), Operation::Embeddings, &tokens).unwrap_err(),
        "the provider gemini embeds texts; input is a list of tokens"
    );
}
