//! What is told of requests: traces, and metrics for whoever asks.

use kaos_seams::{FixedDialer, Seams};
use kaos_telemetry::{Export, Telemetry, collector::Collector};
use serde_json::{Value, json};

use crate::setup::{LONG, Proxy, Upstream, json_answer, read};

const CONFIG: &str = "model_list:\n\
    - model_name: m\n  litellm_params: {model: groq/inner, api_base: 'http://models.default.svc:8000', api_key: sk-1}\n\
    - model_name: quick\n  litellm_params: {model: mock}\n\
    litellm_settings: {num_retries: 0}\n";

fn question() -> Value {
    json!({"model": "m", "messages": [{"role": "user", "content": "a word that nobody tells"}]})
}

async fn upstream(status: u16) -> Upstream {
    Upstream::start(move |_| {
        let answer = json!({
            "choices": [{"index": 0, "message": {"role": "assistant", "content": "x"}}],
            "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
        });
        json_answer(status, &answer)
    })
    .await
}

#[tokio::test]
async fn a_trace_goes_through_the_proxy_even_where_none_is_sent() {
    let upstream = upstream(200).await;
    let dialer = FixedDialer::default().with("models.default.svc", 8000, upstream.address);
    let proxy = Proxy::start(CONFIG, &[], dialer, Telemetry::off()).await;
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let url = format!("{}/v1/chat/completions", proxy.url);
    let request = proxy
        .client
        .post(url)
        .header("traceparent", trace)
        .json(&question());
    assert_eq!(request.send().await.unwrap().status().as_u16(), 200);
    assert_eq!(upstream.seen().trace.as_deref(), Some(trace));
    proxy.end().await;
}

#[tokio::test]
async fn a_request_is_a_span_with_one_for_each_upstream_that_was_asked() {
    kaos_telemetry::install_crypto_provider();
    let collector = Collector::start().await;
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint()),
        ("OTEL_SERVICE_NAME", "models"),
    ];
    let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let export = Export::from_env(variables).unwrap();
    let telemetry = Telemetry::start(export.as_ref(), &Seams::simulated(1)).unwrap();
    let upstream = upstream(200).await;
    let dialer = FixedDialer::default().with("models.default.svc", 8000, upstream.address);
    let proxy = Proxy::start(CONFIG, &[], dialer, telemetry.clone()).await;
    assert_eq!(read(proxy.ask(question()).await).await.0, 200);
    let seen = upstream.seen().trace.unwrap();
    proxy.end().await;
    tokio::time::timeout(LONG, telemetry.shutdown()).await.unwrap();

    let spans = collector.spans();
    let named = |name: &str| spans.iter().find(|span| span.name == name).unwrap();
    let (served, asked) = (named("POST /v1/chat/completions"), named("chat inner"));
    assert_eq!((served.kind.as_str(), asked.kind.as_str()), ("server", "client"));
    assert_eq!(asked.parent, served.id);
    assert!(
        seen.contains(&asked.id),
        "the upstream continues the trace: {seen}"
    );
    for (attribute, value) in [
        ("gen_ai.operation.name", "chat"),
        ("gen_ai.provider.name", "groq"),
        ("gen_ai.request.model", "inner"),
        ("gen_ai.usage.input_tokens", "3"),
        ("gen_ai.usage.output_tokens", "2"),
        ("http.response.status_code", "200"),
    ] {
        assert_eq!(
            asked.attributes.get(attribute).map(String::as_str),
            Some(value),
            "{attribute}"
        );
    }
    assert!(
        !format!("{spans:?}").contains("nobody tells"),
        "what was said stays here"
    );
}

#[tokio::test]
async fn requests_tokens_and_durations_are_told_to_prometheus() {
    let telemetry = Telemetry::start(None, &Seams::simulated(1)).unwrap();
    let upstream = upstream(503).await;
    let dialer = FixedDialer::default().with("models.default.svc", 8000, upstream.address);
    let proxy = Proxy::start(CONFIG, &[], dialer, telemetry).await;
    assert_eq!(read(proxy.ask(question()).await).await.0, 503);
    let mut quick = question();
    quick["model"] = json!("quick");
    assert_eq!(read(proxy.ask(quick).await).await.0, 200);
    let metrics = proxy
        .client
        .get(format!("{}/metrics", proxy.url))
        // What Prometheus asks for; it takes what it is given by its content type.
        .header(
            "accept",
            "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.3",
        )
        .send()
        .await
        .unwrap();
    assert_eq!(metrics.headers()["content-type"], "text/plain; version=0.0.4");
    let metrics = metrics.text().await.unwrap();
    let line = |name: &str, labels: &[&str]| {
        let found = metrics
            .lines()
            .find(|line| line.starts_with(name) && labels.iter().all(|label| line.contains(label)));
        found
            .unwrap_or_else(|| panic!("no {name} with {labels:?} in\n{metrics}"))
            .to_owned()
    };
    let failed = line(
        "kaos_model_requests_total",
        &[
            "gen_ai_request_model=\"inner\"",
            "kaos_model_deployment=\"groq/inner\"",
            "http_response_status_code=\"503\"",
        ],
    );
    assert!(failed.ends_with(" 1"), "{failed}");
    line(
        "gen_ai_client_operation_duration_seconds_count",
        &["error_type=\"503\"", "gen_ai_provider_name=\"groq\""],
    );
    line(
        "gen_ai_client_token_usage_sum",
        &["gen_ai_token_type=\"output\"", "gen_ai_provider_name=\"mock\""],
    );
    line(
        "http_server_request_duration_seconds_count",
        &["http_route=\"/v1/chat/completions\""],
    );
    proxy.end().await;
}
