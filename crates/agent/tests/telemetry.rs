//! What agents, their tools and their model tell a collector of one conversation, across processes.
//!
//! OpenTelemetry sends on threads of its own, which no test can pause: these tests use real time, within bounds.

// A test that cannot go on should panic, in its helpers as well.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::{
    collections::BTreeSet,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{Json, Router, http::HeaderMap, response::IntoResponse, routing};
use kaos_agent::Config;
use kaos_mcp::server::{ToolServer, ToolServerConfig};
use kaos_openai::{ChatChunk, ChatRequest, Delta, FinishReason, Role, ToolCallDelta, Usage, sse};
use kaos_seams::Seams;
use kaos_telemetry::{
    Export, Telemetry,
    collector::{Collector, SeenSpan},
};
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinHandle, time::timeout};
use tokio_util::sync::CancellationToken;

/// Long enough for a loaded machine; nothing waits for it unless something is wrong.
const LONG: Duration = Duration::from_secs(60);

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CALLER: &str = "b7ad6b7169203331";

const TOOLS: &str = r#"
def add(a: int, b: int) -> int:
    """Adds."""
    if a < 0:
        raise ValueError("too small")
    return a + b
"#;

/// What the model was asked with.
type Asked = Arc<Mutex<Vec<HeaderMap>>>;

/// A model that calls whatever it is offered, all at once, and then is done; or that fails, or never ends.
async fn model(
    asked: Asked,
    headers: HeaderMap,
    Json(request): Json<ChatRequest>,
) -> axum::response::Response {
    asked.lock().unwrap().push(headers);
    let text = request
        .messages
        .iter()
        .rev()
        .find(|message| message.role == Role::User)
        .unwrap()
        .text();
    let chunk = |delta, reason| ChatChunk::new("c", 1, "m-2026", delta, reason);
    let kind = [("content-type", "text/event-stream")];
    if text == "fail" {
        return (axum::http::StatusCode::INTERNAL_SERVER_ERROR, "out of order").into_response();
    }
    if text == "hang" {
        let first = sse::frame(&chunk(Delta::content("wait"), None)).unwrap();
        let rest = futures::stream::pending::<Result<Vec<u8>, std::io::Error>>();
        let stream = futures::StreamExt::chain(futures::stream::iter([Ok(first)]), rest);
        return (kind, axum::body::Body::from_stream(stream)).into_response();
    }
    let done = request.tools.is_empty() || request.messages.last().unwrap().role == Role::Tool;
    let tool_calls = request.tools.iter().enumerate().map(|(index, tool)| {
        let name = &tool.function.name;
        let arguments = match name.as_str() {
            "add" if text == "tool fails" => json!({"a": -1, "b": 2}),
            "add" => json!({"a": 1, "b": 2}),
            _ => json!({"task": "dig"}),
        };
        let call = json!({
            "index": index, "id": format!("call-{index}"), "type": "function",
            "function": {"name": name, "arguments": arguments.to_string()},
        });
        serde_json::from_value::<ToolCallDelta>(call).unwrap()
    });
    let (delta, reason) = if done {
        (Delta::content("done"), FinishReason::Stop)
    } else {
        let delta = Delta {
            tool_calls: tool_calls.collect(),
            ..Delta::default()
        };
        (delta, FinishReason::ToolCalls)
    };
    let mut end = chunk(Delta::default(), Some(reason));
    end.usage = Some(Usage::new(7, 2));
    let frames = [
        sse::frame(&chunk(delta, None)).unwrap(),
        sse::frame(&end).unwrap(),
        sse::DONE_FRAME.to_vec(),
    ];
    (kind, frames.concat()).into_response()
}

/// Two agents, ann with a tool and bob as her peer, whose collector is at one address.
struct World {
    ann: SocketAddr,
    asked: Asked,
    http: reqwest::Client,
    shutdown: CancellationToken,
    tasks: Vec<JoinHandle<()>>,
    telemetries: Vec<Telemetry>,
}

async fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

impl World {
    async fn start(endpoint: &str, more: &[(&str, &str)]) -> Self {
        kaos_telemetry::install_crypto_provider();
        let mut world = Self {
            ann: SocketAddr::from(([127, 0, 0, 1], 0)),
            asked: Asked::default(),
            http: reqwest::Client::builder().no_proxy().build().unwrap(),
            shutdown: CancellationToken::new(),
            tasks: Vec::new(),
            telemetries: Vec::new(),
        };
        let (models, model_address) = listener().await;
        let asked = world.asked.clone();
        let routes = Router::new()
            .route(
                "/v1/chat/completions",
                routing::post(move |headers, body| model(asked.clone(), headers, body)),
            )
            .route(
                "/v1/models",
                routing::get(async || Json(json!({"object": "list", "data": []}))),
            );
        let stop = world.shutdown.clone().cancelled_owned();
        world.run(async move { axum::serve(models, routes).with_graceful_shutdown(stop).await });

        let (tools, tools_address) = listener().await;
        let mut config = ToolServerConfig::new(TOOLS);
        config.workers = 1;
        let server = ToolServer::load(config, Seams::system()).await.unwrap();
        let server = server.with_telemetry(world.telemetry("adder", endpoint, more));
        world.run(server.serve(tools, world.shutdown.clone()));

        let model_url = format!("http://{model_address}");
        let bob = world.agent("bob", &model_url, &[], endpoint, more).await;
        let (tools_url, bob_url) = (format!("http://{tools_address}"), format!("http://{bob}"));
        let ann = [
            ("MCP_SERVERS", "adder"),
            ("MCP_SERVER_adder_URL", tools_url.as_str()),
            ("PEER_AGENTS", "bob"),
            ("PEER_AGENT_BOB_CARD_URL", bob_url.as_str()),
        ];
        world.ann = world.agent("ann", &model_url, &ann, endpoint, more).await;
        world
    }

    fn telemetry(&mut self, service: &str, endpoint: &str, more: &[(&str, &str)]) -> Telemetry {
        let on = [
            ("OTEL_SERVICE_NAME", service),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint),
        ];
        let export = Export::from_env(owned(&[&on, more])).unwrap();
        let telemetry = Telemetry::start(export.as_ref(), &Seams::system()).unwrap();
        self.telemetries.push(telemetry.clone());
        telemetry
    }

    async fn agent(
        &mut self,
        name: &str,
        model: &str,
        own: &[(&str, &str)],
        endpoint: &str,
        more: &[(&str, &str)],
    ) -> SocketAddr {
        let variables = [
            ("AGENT_NAME", name),
            ("MODEL_API_URL", model),
            ("MODEL_NAME", "m"),
            ("AGENTIC_LOOP_MAX_STEPS", "3"),
        ];
        let config = Config::from_env(owned(&[&variables, own])).unwrap();
        let telemetry = self.telemetry(name, endpoint, more);
        let (listener, address) = listener().await;
        self.run(kaos_agent::serve(
            config,
            listener,
            Seams::system(),
            telemetry,
            self.shutdown.clone(),
        ));
        let ready = async {
            while !self.get(address, "/ready").await.0 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(LONG, ready).await.expect("the agent becomes ready");
        address
    }

    fn run<E: std::fmt::Debug>(&mut self, serving: impl Future<Output = Result<(), E>> + Send + 'static) {
        self.tasks
            .push(tokio::spawn(async move { serving.await.unwrap() }));
    }

    async fn get(&self, address: SocketAddr, path: &str) -> (bool, Value) {
        let answer = self
            .http
            .get(format!("http://{address}{path}"))
            .send()
            .await
            .unwrap();
        (answer.status().is_success(), answer.json().await.unwrap())
    }

    /// Asks ann for a stream, as part of a trace.
    async fn ask(&self, text: &str) -> reqwest::Response {
        let body =
            json!({"stream": true, "session_id": "s1", "messages": [{"role": "user", "content": text}]});
        let asked = self
            .http
            .post(format!("http://{}/v1/chat/completions", self.ann))
            .header("traceparent", format!("00-{TRACE}-{CALLER}-01"))
            .header("baggage", "user=u1")
            .json(&body)
            .send();
        timeout(LONG, asked).await.expect("an answer").unwrap()
    }

    async fn answer(&self, text: &str) -> String {
        timeout(LONG, self.ask(text).await.text())
            .await
            .expect("a whole answer")
            .unwrap()
    }

    /// Has everything sent that was told.
    async fn end(self) {
        self.shutdown.cancel();
        for task in self.tasks {
            timeout(LONG, task).await.expect("everything ends").unwrap();
        }
        for telemetry in self.telemetries {
            telemetry.shutdown().await;
        }
    }
}

fn owned(lists: &[&[(&str, &str)]]) -> Vec<(String, String)> {
    let pairs = lists.iter().copied().flatten();
    pairs
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

/// The spans below `parent`, each with those below it, by name.
fn tree(spans: &[SeenSpan], parent: &str, depth: usize) -> Vec<String> {
    let mut below: Vec<&SeenSpan> = spans.iter().filter(|span| span.parent == parent).collect();
    below.sort_by_key(|span| &span.name);
    let lines = below.into_iter().flat_map(|span| {
        let line = format!(
            "{}{}: {} ({})",
            "  ".repeat(depth),
            span.service,
            span.name,
            span.kind
        );
        [line].into_iter().chain(tree(spans, &span.id, depth + 1))
    });
    lines.collect()
}

fn span<'a>(spans: &'a [SeenSpan], service: &str, name: &str) -> &'a SeenSpan {
    let mut named = spans
        .iter()
        .filter(|span| span.service == service && span.name == name);
    let span = named
        .next()
        .unwrap_or_else(|| panic!("no {name} of {service}: {spans:#?}"));
    assert!(named.next().is_none(), "{name} of {service} is there twice");
    span
}

/// What agents measured by the names of OpenTelemetry's conventions: who, and how often.
fn conventional(collector: &Collector) -> Vec<String> {
    let points = collector.points().into_iter();
    let points = points.filter(|point| point.metric.starts_with("gen_ai."));
    let mut lines: Vec<String> = points
        .map(|point| {
            let about = ["error.type", "gen_ai.token.type"];
            let about: Vec<&str> = about
                .iter()
                .filter_map(|key| point.labels.get(*key).map(String::as_str))
                .collect();
            let (service, metric, unit, count) = (point.service, point.metric, point.unit, point.count);
            format!("{service}: {metric} in {unit} {} {count}", about.join(","))
        })
        .collect();
    lines.sort();
    lines
}

/// What was counted, short of durations, whose counts are the same.
fn counts(collector: &Collector) -> Vec<String> {
    let mut points = collector.points();
    points.retain(|point| point.metric.starts_with("kaos."));
    let line = |metric: &str, labels: &std::collections::BTreeMap<String, String>, count| {
        let labels: Vec<String> = labels
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        format!("{metric} {} {count}", labels.join(","))
    };
    let (durations, counters): (Vec<_>, Vec<_>) = points
        .iter()
        .partition(|point| point.metric.ends_with(".duration"));
    let lines = |points: Vec<&kaos_telemetry::collector::SeenPoint>| -> BTreeSet<String> {
        let named = |metric: &str| {
            let metric = metric.trim_end_matches(".duration").trim_end_matches(".calls");
            metric.trim_end_matches('s').to_owned()
        };
        points
            .into_iter()
            .map(|point| line(&named(&point.metric), &point.labels, point.count))
            .collect()
    };
    assert!(durations.iter().all(|point| point.unit == "ms"));
    assert_eq!(lines(durations), lines(counters.clone()));
    let mut counted: Vec<String> = counters
        .iter()
        .map(|point| line(&point.metric, &point.labels, point.count))
        .collect();
    counted.sort();
    counted
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_streamed_answer_with_a_tool_and_a_delegation_is_one_tree_of_spans() {
    let collector = Collector::start().await;
    let world = World::start(collector.endpoint(), &[]).await;
    let answer = world.answer("go").await;
    assert!(answer.contains("done"), "{answer}");
    let (_, memory) = world.get(world.ann, "/memory/events?session_id=s1").await;
    let asked = world.asked.lock().unwrap().clone();
    world.end().await;

    let spans = collector.spans();
    assert!(spans.iter().all(|span| span.trace == TRACE), "{spans:#?}");
    let expected = [
        "ann: agent.agentic_loop (internal)",
        "  ann: agent.step.1 (internal)",
        "    ann: delegate.bob (client)",
        "      bob: agent.agentic_loop (internal)",
        "        bob: agent.step.1 (internal)",
        "          bob: model.inference (client)",
        "    ann: model.inference (client)",
        "    ann: tool.add (client)",
        "      ann: mcp.tool.add (client)",
        "        adder: tools/call add (server)",
        "  ann: agent.step.2 (internal)",
        "    ann: model.inference (client)",
    ];
    assert_eq!(tree(&spans, CALLER, 0), expected);
    assert_eq!(spans.len(), expected.len());
    assert!(spans.iter().all(|span| span.error.is_none()), "{spans:#?}");

    let said = |service: &str, name: &str, pairs: &[(&str, &str)]| {
        let span = span(&spans, service, name);
        for (key, value) in pairs {
            assert_eq!(
                span.attributes.get(*key).map(String::as_str),
                Some(*value),
                "{key} of {span:#?}"
            );
        }
    };
    said(
        "ann",
        "agent.agentic_loop",
        &[
            ("agent.name", "ann"),
            ("agent.max_steps", "3"),
            ("stream", "true"),
            ("session.id", "s1"),
            ("gen_ai.operation.name", "invoke_agent"),
            ("gen_ai.agent.name", "ann"),
            ("gen_ai.conversation.id", "s1"),
            ("gen_ai.usage.input_tokens", "14"),
            ("gen_ai.usage.output_tokens", "4"),
        ],
    );
    said(
        "ann",
        "agent.step.2",
        &[("agent.name", "ann"), ("step", "2"), ("max_steps", "3")],
    );
    said(
        "bob",
        "model.inference",
        &[
            ("agent.name", "bob"),
            ("gen_ai.operation.name", "chat"),
            ("gen_ai.provider.name", "openai"),
            ("gen_ai.request.model", "m"),
            ("gen_ai.response.model", "m-2026"),
            ("gen_ai.response.id", "c"),
            ("gen_ai.response.finish_reasons", "stop"),
            ("gen_ai.usage.input_tokens", "7"),
            ("gen_ai.usage.output_tokens", "2"),
        ],
    );
    said(
        "ann",
        "tool.add",
        &[
            ("agent.name", "ann"),
            ("tool.name", "add"),
            ("gen_ai.operation.name", "execute_tool"),
            ("gen_ai.tool.name", "add"),
            ("gen_ai.tool.call.id", "call-0"),
        ],
    );
    let url = span(&spans, "ann", "mcp.tool.add").attributes["mcp.url"].clone();
    assert!(
        url.starts_with("http://127.0.0.1:") && url.ends_with("/mcp"),
        "{url}"
    );
    said(
        "ann",
        "mcp.tool.add",
        &[
            ("agent.name", "ann"),
            ("tool.name", "add"),
            ("mcp.server", "adder"),
            ("mcp.method.name", "tools/call"),
            ("server.address", "127.0.0.1"),
        ],
    );
    said(
        "adder",
        "tools/call add",
        &[("mcp.method.name", "tools/call"), ("gen_ai.tool.name", "add")],
    );
    said(
        "ann",
        "delegate.bob",
        &[("agent.name", "ann"), ("agent.delegation.target", "bob")],
    );

    // Each question to the model says which span it is.
    let told: BTreeSet<String> = asked
        .iter()
        .map(|headers| headers["traceparent"].to_str().unwrap().to_owned())
        .collect();
    let questions = spans.iter().filter(|span| span.name == "model.inference");
    let expected: BTreeSet<String> = questions
        .map(|span| format!("00-{TRACE}-{}-01", span.id))
        .collect();
    assert_eq!(told, expected);
    assert!(asked.iter().all(|headers| headers["baggage"] == "user=u1"));

    let whole = &span(&spans, "ann", "agent.agentic_loop").id;
    let events = memory["events"].as_array().unwrap();
    assert_eq!(events.len(), 6, "{events:#?}");
    for event in events {
        assert_eq!(event["metadata"], json!({"trace_id": TRACE, "span_id": whole}));
    }

    assert_eq!(
        counts(&collector),
        [
            "kaos.delegations agent.name=ann,success=true,target=bob 1",
            "kaos.model.calls agent.name=ann,model=m,success=true 2",
            "kaos.model.calls agent.name=bob,model=m,success=true 1",
            "kaos.requests agent.name=ann,success=true 1",
            "kaos.requests agent.name=bob,success=true 1",
            "kaos.tool.calls agent.name=ann,success=true,tool=add 1",
        ]
    );
    assert_eq!(
        conventional(&collector),
        [
            "ann: gen_ai.client.operation.duration in s  2",
            "ann: gen_ai.client.operation.time_to_first_chunk in s  2",
            "ann: gen_ai.client.token.usage in {token} input 2",
            "ann: gen_ai.client.token.usage in {token} output 2",
            "bob: gen_ai.client.operation.duration in s  1",
            "bob: gen_ai.client.operation.time_to_first_chunk in s  1",
            "bob: gen_ai.client.token.usage in {token} input 1",
            "bob: gen_ai.client.token.usage in {token} output 1",
        ]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_fails_or_is_given_up_is_told_as_such_and_counted_once() {
    let collector = Collector::start().await;
    let world = World::start(collector.endpoint(), &[]).await;
    let answer = world.answer("fail").await;
    assert!(answer.contains("Sorry, I encountered an error"), "{answer}");
    let mut hanging = world.ask("hang").await;
    while !String::from_utf8_lossy(&hanging.chunk().await.unwrap().unwrap()).contains("wait") {}
    drop(hanging);
    let answer = world.answer("tool fails").await;
    assert!(
        answer.contains("too small") && answer.contains("done"),
        "{answer}"
    );
    world.end().await;

    let mut spans = collector.spans();
    spans.retain(|span| span.service != "bob");
    spans.sort_by_key(|span| span.times.0);
    let mut failed: Vec<(&str, &str)> = spans
        .iter()
        .filter(|span| span.error.is_some())
        .map(|span| (span.name.as_str(), span.attributes["error.type"].as_str()))
        .collect();
    failed.sort_unstable();
    assert_eq!(
        failed,
        [
            ("agent.agentic_loop", "cancelled"),
            ("agent.agentic_loop", "model_failed"),
            ("agent.step.1", "cancelled"),
            ("agent.step.1", "model_failed"),
            ("mcp.tool.add", "tool_error"),
            ("model.inference", "cancelled"),
            ("model.inference", "refused"),
            ("tool.add", "tool_error"),
            ("tools/call add", "tool_error"),
        ]
    );
    let counted: Vec<String> = counts(&collector)
        .into_iter()
        .filter(|line| line.contains("=ann"))
        .collect();
    assert_eq!(
        counted,
        [
            "kaos.delegations agent.name=ann,success=true,target=bob 1",
            "kaos.model.calls agent.name=ann,model=m,success=false 2",
            "kaos.model.calls agent.name=ann,model=m,success=true 2",
            "kaos.requests agent.name=ann,success=false 2",
            "kaos.requests agent.name=ann,success=true 1",
            "kaos.tool.calls agent.name=ann,success=false,tool=add 1",
        ]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_answers_the_same_without_a_collector_and_passes_the_trace_on_without_telemetry() {
    let (down, address) = listener().await;
    drop(down);
    let world = World::start(&format!("http://{address}"), &[]).await;
    let answer = world.answer("go").await;
    assert!(
        answer.contains("done") && !answer.contains(r#""is_error":true"#),
        "{answer}"
    );
    world.end().await;

    let (unasked, address) = listener().await;
    let world = World::start(&format!("http://{address}"), &[("OTEL_SDK_DISABLED", "true")]).await;
    assert!(world.answer("go").await.contains("done"));
    let asked = world.asked.lock().unwrap().clone();
    assert_eq!(asked.len(), 3);
    assert!(
        asked
            .iter()
            .all(|headers| headers["traceparent"] == format!("00-{TRACE}-{CALLER}-01").as_str())
    );
    let (_, memory) = world.get(world.ann, "/memory/events?session_id=s1").await;
    assert_eq!(memory["events"][0]["metadata"], json!({}));
    world.end().await;
    assert!(
        futures::FutureExt::now_or_never(unasked.accept()).is_none(),
        "a connection was attempted"
    );
}
