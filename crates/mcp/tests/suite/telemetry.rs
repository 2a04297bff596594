//! What the tool server tells a collector of the calls it answers.

use kaos_mcp::{
    client::McpClient,
    server::{ToolServer, ToolServerConfig},
};
use kaos_seams::Seams;
use kaos_telemetry::{Export, Telemetry, TraceContext, collector::Collector};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::common::{LONG, object};

const SOURCE: &str = r#"
def half(n: int) -> int:
    if n % 2:
        raise ValueError("odd")
    return n // 2
"#;

const IN_META: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const IN_HEADER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_call_is_a_span_of_the_trace_that_its_request_names() {
    kaos_telemetry::install_crypto_provider();
    let collector = Collector::start().await;
    let variables = [
        ("OTEL_SERVICE_NAME", "halver"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint()),
    ];
    let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let export = Export::from_env(variables).unwrap();
    let telemetry = Telemetry::start(export.as_ref(), &Seams::system()).unwrap();
    let mut config = ToolServerConfig::new(SOURCE);
    config.workers = 1;
    let server = ToolServer::load(config, Seams::system()).await.unwrap();
    let server = server.with_telemetry(telemetry.clone());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let stop = CancellationToken::new();
    let serving = tokio::spawn(server.serve(listener, stop.clone()));

    // An MCP client that knows traces, in two of them at once or in none.
    let client = McpClient::connect(&url, &Seams::system(), LONG).await.unwrap();
    let trace = TraceContext::read(|field| (field == "traceparent").then(|| IN_META.to_owned()));
    let (odd, none) = tokio::join!(
        client.call_tool_in(&trace, "half", object(json!({"n": 3})), LONG),
        client.call_tool("half", object(json!({"n": 4})), LONG),
    );
    assert!(odd.unwrap().is_error && !none.unwrap().is_error);
    assert!(
        client
            .call_tool("unknown", object(json!({})), LONG)
            .await
            .is_err()
    );

    // One whose HTTP library does.
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": "half", "arguments": {"n": 6}}});
    let answer = reqwest::Client::builder()
        .no_proxy()
        .build()
        .unwrap()
        .post(&url)
        .header("accept", "application/json, text/event-stream")
        .header("traceparent", IN_HEADER)
        .json(&call)
        .send();
    let answer: Value = answer.await.unwrap().json().await.unwrap();
    assert_eq!(answer["result"]["content"][0]["text"], "3");

    stop.cancel();
    serving.await.unwrap().unwrap();
    telemetry.shutdown().await;
    let spans = collector.spans();
    assert_eq!(spans.len(), 3, "{spans:#?}");
    let below = |parent: &str| {
        let found = spans.iter().find(|span| span.parent == parent).unwrap();
        assert_eq!(
            (
                found.service.as_str(),
                found.name.as_str(),
                found.kind.as_str(),
                found.attributes["gen_ai.tool.name"].as_str()
            ),
            ("halver", "tools/call half", "server", "half")
        );
        found
    };
    let in_meta = below(&IN_META[36..52]);
    assert_eq!(in_meta.trace, IN_META[3..35]);
    assert_eq!(in_meta.attributes["error.type"], "tool_error");
    assert!(in_meta.error.as_ref().unwrap().contains("odd"));
    let in_header = below(&IN_HEADER[36..52]);
    assert_eq!(
        (in_header.trace.as_str(), &in_header.error),
        (&IN_HEADER[3..35], &None)
    );
    let mut points: Vec<_> = collector
        .points()
        .into_iter()
        .map(|point| {
            let error = point.labels.get("error.type").cloned().unwrap_or_default();
            (
                point.metric,
                point.labels["gen_ai.tool.name"].clone(),
                error,
                point.count,
            )
        })
        .collect();
    points.sort();
    let point = |error: &str, count| {
        let (metric, tool) = ("mcp.server.operation.duration", "half");
        (metric.to_owned(), tool.to_owned(), error.to_owned(), count)
    };
    assert_eq!(points, [point("", 2), point("tool_error", 1)]);

    let in_none = below("");
    assert!(in_none.trace != in_meta.trace && in_none.error.is_none());
}
