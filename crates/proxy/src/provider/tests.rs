//! OpenAI's API and Azure's: what is sent, and what holds for all providers.

use axum::http::StatusCode;
use proptest::prelude::*;
use serde_json::json;

use super::{
    testing::{call, origin, remote},
    *,
};

#[test]
fn servers_of_openais_api_are_sent_what_came() {
    let request = json!({"model": "public", "messages": [{"role": "odd", "x": [1]}], "top_k": 3, "n": null});
    let mut upstream = remote("groq", "https://api.groq.com/openai/v1");
    upstream.defaults = vec![("seed".to_owned(), RawValue::from_string("7".to_owned()).unwrap())];
    let (url, headers, body) = call(&upstream, Operation::Chat, &request).unwrap();
    assert_eq!(url, "https://api.groq.com/openai/v1/chat/completions");
    assert_eq!(headers["authorization"], "Bearer sk-1");
    let mut expected = request;
    expected["model"] = json!("inner");
    expected["seed"] = json!(7);
    assert_eq!(body, expected);
    let request = json!({"model": "public", "input": ["a"]});
    let (url, _, body) = call(&remote("openai", "http://x/v1/"), Operation::Embeddings, &request).unwrap();
    assert_eq!(
        (url.as_str(), body),
        (
            "http://x/v1/embeddings",
            json!({"model": "inner", "input": ["a"]})
        )
    );
}

#[test]
fn azure_names_the_deployment_and_the_version_in_the_address() {
    let request = json!({"model": "public", "messages": [{"role": "user", "content": "hi"}]});
    let mut upstream = remote("azure", "https://x.openai.azure.com/");
    let (url, headers, body) = call(&upstream, Operation::Chat, &request).unwrap();
    assert_eq!(
        url,
        "https://x.openai.azure.com/openai/deployments/inner/chat/completions?api-version=2024-10-21"
    );
    assert_eq!(headers["api-key"], "sk-1");
    assert!(!headers.contains_key("authorization"));
    assert_eq!(body, json!({"messages": request["messages"]}));
    upstream.api_version = Some("2025-01-01-preview&x".to_owned());
    let embed = json!({"model": "public", "input": "a"});
    let (url, _, _) = call(&upstream, Operation::Embeddings, &embed).unwrap();
    assert!(
        url.ends_with("/openai/deployments/inner/embeddings?api-version=2025-01-01-preview%26x"),
        "{url}"
    );
    let newer = remote("azure", "https://x.openai.azure.com/openai/v1/");
    let (url, _, body) = call(&newer, Operation::Chat, &request).unwrap();
    assert_eq!(
        (url.as_str(), &body["model"]),
        (
            "https://x.openai.azure.com/openai/v1/chat/completions",
            &json!("inner")
        )
    );
}

#[test]
fn answers_of_openais_api_are_known_by_their_lists() {
    let tokens = Some(Tokens {
        prompt_tokens: 1,
        completion_tokens: 2,
    });
    for (operation, body, expected) in [
        (
            Operation::Chat,
            json!({"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2}}),
            Ok(tokens),
        ),
        (Operation::Chat, json!({"choices": [], "usage": null}), Ok(None)),
        (
            Operation::Chat,
            json!({"choices": [], "usage": {"prompt_tokens": "odd"}}),
            Ok(None),
        ),
        (Operation::Embeddings, json!({"data": []}), Ok(None)),
        (Operation::Embeddings, json!({"choices": []}), Err(())),
        (Operation::Completions, json!({"error": "x"}), Err(())),
        (Operation::Chat, json!([]), Err(())),
    ] {
        assert_eq!(
            whole(operation, body.to_string().as_bytes()).map_err(|_| ()),
            expected,
            "{body}"
        );
    }
}

#[test]
fn every_provider_can_be_named_once_and_is_somewhere_or_says_how() {
    for (at, known) in known::PROVIDERS.iter().enumerate() {
        assert!(
            !known::PROVIDERS[..at]
                .iter()
                .any(|other| other.name == known.name),
            "{}",
            known.name
        );
        if !known.base.is_empty() {
            assert!(Url::parse(known.base).unwrap().has_host(), "{}", known.name);
        }
        assert!(
            !known.needs_key || !known.key_variables.is_empty(),
            "{}",
            known.name
        );
    }
    assert!(
        known::MAKERS
            .iter()
            .all(|(_, name)| known::provider(name).is_some())
    );
}

proptest! {
    /// Whatever an upstream sends, it is an answer, an error or a refusal, and never a panic.
    #[test]
    fn nothing_an_upstream_sends_panics(
        body in prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..100).prop_map(|bytes| String::from_utf8_lossy(&bytes).into_owned()),
            r#"\{"(type|candidates|content|error|choices|index|delta)":("[a-z_]{0,18}"|\[\{\}\]|\{"[a-z]{0,8}":1\}|7|null)(,"(index|usage|delta|content_block|message)":(1|\{\}|null|-5|\[\]))?\}"#,
        ],
    ) {
        for name in ["openai", "anthropic", "gemini", "azure"] {
            let upstream = remote(name, "http://x");
            for operation in [Operation::Chat, Operation::Embeddings] {
                let text = json!({"model": "m", "messages": [1], "input": "x"}).to_string();
                let request = Request::read(operation, text.as_bytes()).unwrap();
                let _ = upstream.answer(&request, origin, body.clone().into());
            }
            let _ = upstream.refusal(StatusCode::BAD_REQUEST, &body);
            if let Some(mut translator) = upstream.translator(origin) {
                for _ in 0..2 {
                    let _ = translator.event(&body);
                }
                let _ = translator.end();
            }
        }
    }

    /// Whatever a request says, it becomes a call or is refused.
    #[test]
    fn no_request_panics(
        role in "(system|user|assistant|tool|odd)",
        content in r#"(null|7|"[a-z]{0,5}"|\[\]|\[\{"type":"(text|image_url|file|x)","(text|image_url|file)":("data:,|[a-z:;,/]{0,9}"|\{"url":"data:[a-z;,/]{0,9}"\}|1)\}\])"#,
        rest in r#"(|,"tool_choice":("none"|7|\{\})|,"tools":\[\{"function":\{"name":"f"\}\}\]|,"response_format":[17]|,"stop":(1|"x"))"#,
    ) {
        let body = format!(r#"{{"model":"m","messages":[{{"role":"{role}","content":{content}}}]{rest}}}"#);
        if let Ok(request) = Request::read(Operation::Chat, body.as_bytes()) {
            for name in ["openai", "anthropic", "gemini", "azure"] {
                let _ = remote(name, "http://x").call(&request, "inner");
            }
        }
    }
}
