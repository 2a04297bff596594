//! The agent as its pod runs it: a model over HTTP, Python tools over MCP, a caller over HTTP.

// A test that cannot go on should panic, in its helpers as well.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::{future::Future, net::SocketAddr, sync::Arc, time::Duration};

use axum::{Json, Router, response::IntoResponse, routing};
use kaos_agent::Config;
use kaos_mcp::server::ToolServerConfig;
use kaos_openai::{ChatChunk, ChatRequest, Delta, FinishReason, Role, ToolCallDelta, sse};
use kaos_seams::{FixedDialer, Seams};
use kaos_telemetry::Telemetry;
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_util::sync::CancellationToken;

/// Long enough for a loaded machine; nothing waits for it unless something is wrong.
const LONG: Duration = Duration::from_secs(60);

const TOOLS: &str = r#"
SECRET = "swordfish"

def password(door: str) -> str:
    """The password of a door."""
    if door == "none":
        raise ValueError("there is no such door")
    return f"{door}: {SECRET}"
"#;

/// A model that calls `password` with what it is asked, and then repeats what it was told.
async fn model(Json(request): Json<ChatRequest>) -> impl IntoResponse {
    let last = request.messages.last().unwrap();
    let chunk = |delta, reason| sse::frame(&ChatChunk::new("c", 1, &request.model, delta, reason)).unwrap();
    let mut frames = Vec::new();
    if last.role == Role::Tool {
        for piece in last.text().split_inclusive(' ') {
            frames.push(chunk(Delta::content(piece), None));
        }
        frames.push(chunk(Delta::default(), Some(FinishReason::Stop)));
    } else {
        assert_eq!(
            request.tools[0].function.description.as_deref(),
            Some("The password of a door.")
        );
        let call: ToolCallDelta = serde_json::from_value(json!({
            "index": 0, "id": "call_1", "type": "function",
            "function": {"name": "password", "arguments": json!({"door": last.text()}).to_string()},
        }))
        .unwrap();
        frames.push(chunk(
            Delta {
                tool_calls: vec![call],
                ..Delta::default()
            },
            None,
        ));
        frames.push(chunk(Delta::default(), Some(FinishReason::ToolCalls)));
    }
    frames.push(sse::DONE_FRAME.to_vec());
    ([("content-type", "text/event-stream")], frames.concat())
}

async fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// Everything that runs, and what to ask.
struct Running {
    http: reqwest::Client,
    agent: String,
    shutdown: CancellationToken,
    tasks: Vec<JoinHandle<()>>,
}

impl Running {
    /// The agent finds its model and tools by the names a cluster has for them.
    async fn start(more: &[(&str, &str)]) -> Self {
        kaos_telemetry::install_crypto_provider();
        let shutdown = CancellationToken::new();
        let mut tasks = Vec::new();
        let (model_listener, model_address) = listener().await;
        let routes = Router::new()
            .route("/v1/chat/completions", routing::post(model))
            .route(
                "/v1/models",
                routing::get(async || Json(json!({"object": "list", "data": []}))),
            );
        let stop = shutdown.clone().cancelled_owned();
        tasks.push(spawn(async move {
            axum::serve(model_listener, routes)
                .with_graceful_shutdown(stop)
                .await
        }));

        let (tool_listener, tool_address) = listener().await;
        let mut tools = ToolServerConfig::new(TOOLS);
        tools.workers = 1;
        tasks.push(spawn(kaos_mcp::server::serve(
            tools,
            tool_listener,
            Seams::system(),
            shutdown.clone(),
        )));

        let variables = [
            ("AGENT_NAME", "guard"),
            (
                "MODEL_API_URL",
                "http://modelapi-m.default.svc.cluster.local:8000",
            ),
            ("MODEL_NAME", "m"),
            ("MCP_SERVERS", "doors"),
            (
                "MCP_SERVER_doors_URL",
                "http://mcpserver-doors.default.svc.cluster.local:8000",
            ),
        ];
        let variables = variables
            .iter()
            .chain(more)
            .map(|(name, value)| (name.to_string(), value.to_string()));
        let config = Config::from_env(variables).unwrap();
        let dialer = FixedDialer::default()
            .with("modelapi-m.default.svc.cluster.local", 8000, model_address)
            .with("mcpserver-doors.default.svc.cluster.local", 8000, tool_address);
        let (agent_listener, agent_address) = listener().await;
        let seams = Seams::system().with_dialer(Arc::new(dialer));
        tasks.push(spawn(kaos_agent::serve(
            config,
            agent_listener,
            seams,
            Telemetry::off(),
            shutdown.clone(),
        )));
        Self {
            http: reqwest::Client::new(),
            agent: format!("http://{agent_address}"),
            shutdown,
            tasks,
        }
    }

    async fn ready(&self) {
        let asked = async {
            loop {
                let answer = self
                    .http
                    .get(format!("{}/ready", self.agent))
                    .send()
                    .await
                    .unwrap();
                if answer.status().is_success() {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(LONG, asked)
            .await
            .expect("the agent becomes ready");
    }

    async fn ask(&self, door: &str, stream: bool) -> String {
        let body = json!({"stream": stream, "messages": [{"role": "user", "content": door}]});
        let answer = self
            .http
            .post(format!("{}/v1/chat/completions", self.agent))
            .json(&body)
            .send();
        answer.await.unwrap().text().await.unwrap()
    }

    async fn end(self) {
        self.shutdown.cancel();
        for task in self.tasks {
            tokio::time::timeout(LONG, task)
                .await
                .expect("everything ends")
                .unwrap();
        }
    }
}

fn spawn<E: std::fmt::Debug>(
    serving: impl Future<Output = Result<(), E>> + Send + 'static,
) -> JoinHandle<()> {
    tokio::spawn(async move { serving.await.unwrap() })
}

#[tokio::test]
async fn an_agent_answers_with_what_its_tool_knows() {
    let running = Running::start(&[]).await;
    running.ready().await;

    let whole: Value = serde_json::from_str(&running.ask("gate", false).await).unwrap();
    assert_eq!(whole["choices"][0]["message"]["content"], "gate: swordfish");

    let stream = running.ask("gate", true).await;
    assert!(
        stream.contains(r#""kaos":{"type":"tool_call","step":1,"max_steps":5,"tool":"password""#),
        "{stream}"
    );
    assert!(
        stream.contains(r#"{"content":"swordfish"}"#) && stream.ends_with("data: [DONE]\n\n"),
        "{stream}"
    );

    let failed: Value = serde_json::from_str(&running.ask("none", false).await).unwrap();
    let said = failed["choices"][0]["message"]["content"].as_str().unwrap();
    assert!(
        said.starts_with("Tool execution failed: ") && said.contains("there is no such door"),
        "{said}"
    );
    running.end().await;
}

#[tokio::test]
async fn tools_can_be_switched_off() {
    for (switch, capability) in [("true", true), ("false", false)] {
        let running = Running::start(&[("AGENTIC_LOOP_ENABLE_TOOLS", switch)]).await;
        running.ready().await;
        let card = running
            .http
            .get(format!("{}/.well-known/agent", running.agent))
            .send()
            .await
            .unwrap();
        let card = card.text().await.unwrap();
        assert_eq!(card.contains("tool_execution"), capability, "{card}");
        assert_eq!(card.contains("The password of a door."), capability, "{card}");
        running.end().await;
    }
}
