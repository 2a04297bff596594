//! What callers, upstreams and authors of configurations send, nearly right.

use std::{convert::Infallible, sync::Arc};

use axum::http::{HeaderMap, StatusCode};
use bytes::Bytes;
use futures::{StreamExt, stream};
use kaos_fuzz::Corpus;
use kaos_openai::sse::{DONE, Decoder};
use kaos_seams::Seams;
use kaos_telemetry::Telemetry;
use serde::{Deserialize, de::IgnoredAny};
use tokio::runtime::Builder;

use crate::{
    Config, mock,
    provider::testing::{origin, remote},
    request::{Operation, Request},
    stream::{Form, Passage},
    watched::{Meters, Streamed, Watched},
};

const OPERATIONS: [Operation; 3] = [Operation::Chat, Operation::Completions, Operation::Embeddings];
const APIS: [&str; 4] = ["openai", "azure", "anthropic", "gemini"];
const BASE: &str = "http://models.test/v1";

/// An event that may be an error.
#[derive(Deserialize)]
struct Ends {
    error: Option<IgnoredAny>,
}

#[test]
fn a_request_becomes_a_call_or_is_refused() {
    let corpus = Corpus::of(concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/requests"));
    let words = [
        "\"role\":",
        "\"content\":",
        "\"type\":",
        "\"tool\"",
        "\"data:;base64,\"",
        "\"stream\":true",
    ];
    let (meters, seams) = (Arc::new(Meters::new(Telemetry::off())), Seams::simulated(1));
    let runtime = Builder::new_current_thread().build().unwrap();
    let _entered = runtime.enter();
    corpus.with_words(&words).fuzz(|body| {
        for operation in OPERATIONS {
            let Ok(request) = Request::read(operation, body) else {
                continue;
            };
            for api in APIS {
                if let Ok(call) = remote(api, BASE).call(&request, "inner/../é?#") {
                    // Not read further: half of a surrogate pair is passed on as it is written.
                    let sent = std::str::from_utf8(&call.body).unwrap();
                    serde_json::from_str::<IgnoredAny>(sent).unwrap();
                    assert!(sent.starts_with('{'), "{sent}");
                    assert_eq!(call.url.host_str(), Some("models.test"));
                }
            }
            let told = String::from_utf8(request.telling_usage().body(Some("m"), &[])).unwrap();
            assert!(told.contains(r#""include_usage":true"#), "{told}");
            let mut watched = Watched::new(&meters, operation, "/v1", &HeaderMap::new());
            if let Err(failure) = mock::respond(&request, &seams, &mut watched) {
                assert!(failure.status().is_client_error(), "{failure:?}");
            }
        }
    });
}

#[test]
fn an_answer_is_one_or_a_problem() {
    let corpus = Corpus::of(concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/answers"));
    let words = [
        "\"type\":",
        "\"text\":",
        "\"parts\":",
        "\"candidates\":",
        "\"content\":",
        "\"details\":",
    ];
    corpus.with_words(&words).fuzz(|body| {
        for operation in OPERATIONS {
            let asked = br#"{"model": "m", "messages": [1], "prompt": "x", "input": "x"}"#;
            let request = Request::read(operation, asked).unwrap();
            for api in APIS {
                let upstream = remote(api, BASE);
                if let Ok(answer) = upstream.answer(&request, origin, Bytes::copy_from_slice(body)) {
                    let answer = std::str::from_utf8(&answer.body).unwrap();
                    serde_json::from_str::<IgnoredAny>(answer).unwrap();
                }
                let _ = upstream.refusal(StatusCode::BAD_REQUEST, &String::from_utf8_lossy(body));
            }
        }
    });
}

#[test]
fn a_stream_ends_as_an_answer_or_with_an_error() {
    let corpus = Corpus::of(concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/streams"));
    let words = [
        "data: ",
        "event: ",
        "\r\n\r\n",
        "[DONE]",
        "\"type\":",
        "\"index\":",
        "\"delta\":",
        "\"parts\":",
    ];
    let runtime = Builder::new_current_thread().enable_time().build().unwrap();
    corpus.with_words(&words).fuzz(|bytes| {
        for (api, operation) in APIS
            .into_iter()
            .flat_map(|api| OPERATIONS.map(|operation| (api, operation)))
        {
            let pieces: Vec<Result<Bytes, Infallible>> = bytes
                .chunks(50)
                .map(|piece| Ok(Bytes::copy_from_slice(piece)))
                .collect();
            let form = Form {
                operation,
                translator: remote(api, BASE).translator(origin),
                hides_usage: false,
            };
            let passage = Passage::new(stream::iter(pieces), "models.test".to_owned(), None, form);
            let frames = runtime.block_on(passage.frames(Streamed::default()).collect::<Vec<_>>());
            let mut decoder = Decoder::new(1 << 24);
            let mut last = None;
            for frame in frames {
                let Ok(frame) = frame;
                let events = decoder.feed(&frame).unwrap();
                assert_eq!(events.len(), 1, "a frame is an event");
                assert_eq!(last, None, "nothing follows the end");
                let data = &events[0].data;
                if data == DONE {
                    last = Some("an answer");
                } else {
                    assert!(data.starts_with('{') && !data.contains('\n'), "{data}");
                    serde_json::from_str::<IgnoredAny>(data).unwrap();
                    if serde_json::from_str(data).is_ok_and(|Ends { error }| error.is_some()) {
                        last = Some("an error");
                    }
                }
            }
            assert!(last.is_some(), "it has no end");
        }
    });
}

#[test]
fn a_configuration_is_served_or_the_problem_is_told() {
    let corpus = Corpus::of(concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/config"));
    let words = [
        "model_list:",
        "litellm_params:",
        "model:",
        "os.environ/",
        "- ",
        "*",
        "&a ",
        "*a",
        "<<: ",
        "|",
        ">-",
        "? ",
    ];
    let environment = [
        ("PROXY_API_BASE", "http://h/v1"),
        ("PROXY_API_KEY", "k"),
        ("OPENAI_API_KEY", "k"),
    ];
    corpus.with_words(&words).fuzz_text(|text| {
        let environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned()));
        match Config::parse(text, environment) {
            Ok(config) => assert!(config.names().count() > 0),
            Err(problem) => {
                let problem = problem.to_string();
                assert!(problem.lines().count() == 1, "{problem:?}");
            }
        }
    });
}
