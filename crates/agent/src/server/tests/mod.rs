//! The routes with a scripted model and scripted tools, in paused time.

mod delegation;
mod limits;
mod listener;
mod memory;
mod text;

use std::future::Future;

use axum::body::Body;
use futures::StreamExt;
use http::{Method, Request, Response};
use http_body_util::BodyExt;
use kaos_openai::{ChunkAccumulator, StreamEvent};
use serde_json::{Value, json};
use tokio::time::Instant;
use tower::ServiceExt;

use super::*;
use crate::{
    model::mock::MockedModel,
    peers::{PeerSource, Peers},
    testing::{Act, ScriptedModel, ScriptedPeer, ScriptedTools, Tool, calls, gone, says},
    tools::{ToolSource, Toolbox},
};

const CHAT: &str = "/v1/chat/completions";

/// An agent with one server of tools, `calc`.
struct Agent {
    app: App,
    model: Arc<ScriptedModel>,
    tools: Arc<ScriptedTools>,
}

fn agent(scripts: impl IntoIterator<Item = Vec<Act>>) -> Agent {
    set_up(scripts, &[], &[])
}

/// The agent with more variables, and peers.
fn set_up(
    scripts: impl IntoIterator<Item = Vec<Act>>,
    more: &[(&str, &str)],
    peers: &[&Arc<ScriptedPeer>],
) -> Agent {
    let variables = [
        ("AGENT_NAME", "ann"),
        ("AGENT_INSTRUCTIONS", "Be exact."),
        ("MODEL_API_URL", "http://model:8000"),
        ("MODEL_NAME", "smart"),
        ("AGENTIC_LOOP_MAX_STEPS", "3"),
        ("AGENT_SHUTDOWN_GRACE_SECONDS", "5"),
    ];
    let variables = variables.iter().chain(more);
    let config =
        Config::from_env(variables.map(|(name, value)| (name.to_string(), value.to_string()))).unwrap();
    let model = ScriptedModel::new(scripts);
    let tools = ScriptedTools::new(
        "calc",
        &[
            ("echo", Tool::Echo),
            ("fails", Tool::Fails("division by zero")),
            ("slow", Tool::Slow(Duration::from_secs(40))),
            ("stuck", Tool::Slow(Duration::from_secs(4000))),
        ],
    );
    let toolbox = Arc::new(Toolbox::new(vec![Arc::clone(&tools) as Arc<dyn ToolSource>]));
    let peers = peers
        .iter()
        .map(|peer| Arc::<ScriptedPeer>::clone(peer) as Arc<dyn PeerSource>);
    let peers = Arc::new(Peers::new("ann", peers.collect()));
    let asked = MockedModel::before(Arc::clone(&model) as _, config.mock_responses.clone());
    let dependencies = Arc::new(Dependencies::new(asked, toolbox, peers));
    Agent {
        app: App::new(config, dependencies, Seams::simulated(1), Telemetry::off()),
        model,
        tools,
    }
}

impl Agent {
    /// Does `test` while the agent watches its dependencies, once it knows them.
    async fn watched<T>(&self, test: impl Future<Output = T>) -> T {
        let (pace, stop) = (Pace::new(self.app.seams.random.clone()), CancellationToken::new());
        let test = async {
            while !self.app.dependencies.missing().is_empty() {
                sleep(Duration::from_millis(10)).await;
            }
            let result = test.await;
            stop.cancel();
            result
        };
        tokio::join!(self.app.dependencies.watch(&pace, &stop), test).1
    }

    async fn send(&self, method: Method, path: &str, body: impl Into<Body>) -> Response<Body> {
        self.send_with(method, path, &[], body).await
    }

    async fn send_with(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Body>,
    ) -> Response<Body> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", "application/json");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        router(self.app.clone())
            .oneshot(request.body(body.into()).unwrap())
            .await
            .unwrap()
    }

    async fn get(&self, path: &str) -> (u16, Value) {
        read(self.send(Method::GET, path, Body::empty()).await).await
    }

    async fn post(&self, body: impl Into<Body>) -> (u16, Value) {
        read(self.send(Method::POST, CHAT, body).await).await
    }

    async fn ask(&self, text: &str) -> Value {
        let (status, body) = self
            .post(json!({"messages": [{"role": "user", "content": text}]}).to_string())
            .await;
        assert_eq!(status, 200, "{body}");
        body
    }

    async fn stream(&self, request: Value) -> Vec<Value> {
        let response = self.send(Method::POST, CHAT, request.to_string()).await;
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        frames(&bytes)
    }
}

async fn read(response: Response<Body>) -> (u16, Value) {
    let status = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (
        status,
        serde_json::from_slice(&bytes).unwrap_or_else(|_| panic!("not JSON: {bytes:?}")),
    )
}

/// The JSON of every frame of a complete stream; the form of the frames is checked.
fn frames(bytes: &[u8]) -> Vec<Value> {
    let text = std::str::from_utf8(bytes).unwrap();
    let text = text
        .strip_suffix("data: [DONE]\n\n")
        .unwrap_or_else(|| panic!("no end: {text}"));
    let frame = |frame: &str| serde_json::from_str(frame.strip_prefix("data: ").unwrap()).unwrap();
    text.split_terminator("\n\n")
        .filter(|frame| *frame != ": keep-alive")
        .map(frame)
        .collect()
}

fn streaming(text: &str) -> Value {
    json!({"model": "x", "stream": true, "messages": [{"role": "user", "content": text}]})
}

fn answer(body: &Value) -> &str {
    body["choices"][0]["message"]["content"].as_str().unwrap()
}

/// The text of a stream, and its progress chunks.
fn told(frames: &[Value]) -> (String, Vec<Value>) {
    let text = frames
        .iter()
        .filter_map(|frame| frame["choices"][0]["delta"]["content"].as_str())
        .collect();
    (
        text,
        frames
            .iter()
            .filter_map(|frame| frame.get("kaos").cloned())
            .collect(),
    )
}

#[tokio::test(start_paused = true)]
async fn the_agent_says_what_it_is() {
    let agent = agent([]);
    agent
        .watched(async {
            let time = 1_767_225_600;
            assert_eq!(
                agent.get("/health").await,
                (
                    200,
                    json!({"status": "healthy", "name": "ann", "timestamp": time})
                )
            );
            assert_eq!(
                agent.get("/ready").await,
                (200, json!({"status": "ready", "name": "ann", "timestamp": time}))
            );
            let (status, card) = agent.get("/.well-known/agent").await;
            let skill =
                json!({"name": "echo", "description": "echo of calc", "inputSchema": {"type": "object"}});
            assert_eq!((status, &card["skills"][0]), (200, &skill));
            assert_eq!(
                json!([
                    card["name"],
                    card["description"],
                    card["url"],
                    card["capabilities"]
                ]),
                json!([
                    "ann",
                    "AI Agent",
                    "http://localhost:8000",
                    ["message_processing", "task_execution", "tool_execution"]
                ])
            );
            let (status, models) = agent.get("/v1/models").await;
            assert_eq!((status, &models["data"][0]["id"]), (200, &json!("ann")));
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn what_is_missing_is_named_until_it_is_there() {
    let agent = agent([]);
    let (status, body) = agent.get("/ready").await;
    assert_eq!(
        (status, body["missing"].as_array().map(Vec::len)),
        (503, Some(2)),
        "{body}"
    );
    agent
        .watched(async {
            assert_eq!(agent.get("/ready").await.0, 200);
            *agent.model.missing.lock().unwrap() = Some(gone());
            *agent.tools.away.lock().unwrap() = true;
            sleep(Duration::from_secs(11)).await;
            let (status, body) = agent.get("/ready").await;
            assert_eq!(
                (status, &body["status"], &body["missing"]),
                (503, &json!("not ready"), &json!([
                    "model API http://model/ is not reachable: connection refused",
                    "MCP server calc is not reachable: MCP server http://calc/mcp cannot be reached: connection refused",
                ]))
            );
            *agent.model.missing.lock().unwrap() = None;
            *agent.tools.away.lock().unwrap() = false;
            sleep(Duration::from_secs(10)).await;
            assert_eq!(agent.get("/ready").await.0, 200);
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_comes_from_the_tool_having_run() {
    let agent = agent([
        calls(&[("echo", json!({"x": "it's"})), ("fails", json!({}))]),
        says(&["It ", "is so."]),
    ]);
    let body = agent.watched(agent.ask("what?")).await;
    assert_eq!(
        body["choices"],
        json!([{
            "index": 0, "message": {"role": "assistant", "content": "It is so."}, "finish_reason": "stop",
        }])
    );
    assert_eq!(
        body["usage"],
        json!({"prompt_tokens": 20, "completion_tokens": 2, "total_tokens": 22})
    );
    assert_eq!(
        (&body["object"], &body["model"], &body["created"]),
        (&json!("chat.completion"), &json!("agent"), &json!(1_767_225_600))
    );
    let id = body["id"].as_str().unwrap().strip_prefix("chatcmpl-").unwrap();
    assert!(
        id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()),
        "{id}"
    );

    let first = agent.model.question(0);
    assert_eq!((first.model.as_str(), first.tools.len()), ("smart", 4));
    assert!(first.messages[0].text().contains("Be exact."));
    let second = agent.model.question(1).messages;
    let results: Vec<String> = second[3..].iter().map(kaos_openai::Message::text).collect();
    assert_eq!(
        results,
        [r#"calc {"x":"it's"}"#, "Tool execution failed: division by zero"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_request_reaches_the_model_as_it_is_meant() {
    let agent = agent([says(&["ok"])]);
    let request = json!({
        "model": "ann", "temperature": 0, "max_tokens": 7, "n": 1, "session_id": "s", "tool_choice": "none",
        "messages": [
            {"role": "system", "content": "be short"},
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "u"}}]},
            {"role": "assistant", "content": "b"},
            {"role": "task-delegation", "content": "c"},
        ],
    });
    let (status, body) = agent.watched(agent.post(request.to_string())).await;
    assert_eq!((status, &body["model"]), (200, &json!("ann")));
    let asked = serde_json::to_value(agent.model.question(0)).unwrap();
    let fields = ["temperature", "max_tokens", "n", "session_id", "tool_choice"].map(|field| &asked[field]);
    assert_eq!(
        fields,
        [&json!(0), &json!(7), &Value::Null, &Value::Null, &json!("none")]
    );
    assert_eq!(
        asked["messages"].as_array().unwrap()[1..],
        [
            request["messages"][1].clone(),
            request["messages"][2].clone(),
            json!({"role": "user", "content": "c"}),
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_stream_tells_what_happens_and_ends() {
    let mut thinking = calls(&[("echo", json!({"x": 1}))]);
    thinking.insert(
        0,
        Act::Delta(json!({"role": "assistant", "content": "Let me see."})),
    );
    let agent = agent([thinking, says(&["It's ", "\"None\"\n  indented"])]);
    let mut request = streaming("what?");
    request["stream_options"] = json!({"include_usage": true});
    let frames = agent.watched(agent.stream(request)).await;
    let (text, progress) = told(&frames);
    assert_eq!(text, "Let me see.\n\nIt's \"None\"\n  indented");
    assert_eq!(
        progress,
        [
            json!({"type": "tool_call", "step": 1, "max_steps": 3, "tool": "echo", "arguments": {"x": 1}}),
            json!({
                "type": "tool_result", "step": 1, "max_steps": 3, "tool": "echo",
                "result": "calc {\"x\":1}", "is_error": false,
            }),
        ]
    );
    assert_eq!(
        frames[0]["choices"][0]["delta"],
        json!({"role": "assistant", "content": ""})
    );
    let [.., last, usage] = frames.as_slice() else {
        panic!("{frames:?}")
    };
    assert_eq!(
        last["choices"],
        json!([{"index": 0, "delta": {}, "finish_reason": "stop"}])
    );
    assert_eq!(
        (&usage["choices"], &usage["usage"]["total_tokens"]),
        (&json!([]), &json!(22))
    );
    for frame in &frames {
        assert_eq!(
            (&frame["id"], &frame["model"], &frame["object"]),
            (&frames[0]["id"], &json!("x"), &json!("chat.completion.chunk"))
        );
    }
}

#[tokio::test(start_paused = true)]
async fn tokens_are_forwarded_as_they_come_and_silence_is_filled() {
    let second = Duration::from_secs(1);
    let slow = vec![
        Act::Delta(json!({"content": "a"})),
        Act::Wait(second),
        Act::Delta(json!({"content": "b"})),
        Act::Wait(40 * second),
        Act::Delta(json!({"content": "c"})),
        Act::Stop("stop", 1, 1),
    ];
    let agent = agent([slow]);
    agent
        .watched(async {
            let start = Instant::now();
            let response = agent.send(Method::POST, CHAT, streaming("x").to_string()).await;
            let mut pieces = response.into_body().into_data_stream();
            let mut seen = Vec::new();
            while let Some(piece) = pieces.next().await {
                let piece = String::from_utf8(piece.unwrap().to_vec()).unwrap();
                let what = ["\"a\"", "\"b\"", "\"c\"", "keep-alive"]
                    .into_iter()
                    .find(|what| piece.contains(what));
                seen.extend(what.map(|what| (what, start.elapsed().as_secs())));
            }
            let expected = [
                ("\"a\"", 0),
                ("\"b\"", 1),
                ("keep-alive", 16),
                ("keep-alive", 31),
                ("\"c\"", 41),
            ];
            assert_eq!(seen, expected);
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn failures_of_the_model_are_told_in_an_answer() {
    let sorry = "Sorry, I encountered an error: model API http://model/ is not reachable: connection refused";
    let half = || vec![Act::Delta(json!({"content": "half"})), Act::Fail(gone())];
    let agent = agent([vec![Act::Fail(gone())], half(), half()]);
    agent
        .watched(async {
            assert_eq!(answer(&agent.ask("x").await), sorry);
            assert_eq!(answer(&agent.ask("x").await), sorry);
            let (text, progress) = told(&agent.stream(streaming("x")).await);
            assert_eq!(text, format!("half\n\n{sorry}"));
            assert_eq!((progress.len(), &progress[0]["type"]), (1, &json!("error")));
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_refusal_of_the_model_is_an_answer() {
    let refuses = || {
        let deltas = [
            json!({"content": null, "refusal": "I will "}),
            json!({"refusal": "not."}),
        ];
        deltas
            .map(Act::Delta)
            .into_iter()
            .chain([Act::Stop("stop", 1, 1)])
            .collect::<Vec<_>>()
    };
    let agent = agent([refuses(), refuses()]);
    agent
        .watched(async {
            assert_eq!(answer(&agent.ask("x").await), "I will not.");
            assert_eq!(told(&agent.stream(streaming("x")).await).0, "I will not.");
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_model_that_only_calls_tools_is_stopped() {
    let again = || calls(&[("echo", json!({})), ("missing", json!({})), ("stuck", json!({}))]);
    let agent = agent([again(), again(), again(), again()]);
    let body = agent.watched(agent.ask("x")).await;
    assert_eq!(answer(&body), "Reached maximum reasoning steps (3)");
    let told: Vec<String> = agent.model.question(2).messages[3..6]
        .iter()
        .map(kaos_openai::Message::text)
        .collect();
    assert_eq!(
        told,
        [
            "calc {}",
            "Tool execution failed: there is no tool \"missing\"; available are echo, fails, slow, stuck",
            "Tool execution failed: \"stuck\" did not answer within 60 s",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn calls_of_one_answer_are_made_at_once() {
    let agent = agent([
        calls(&[("slow", json!({})), ("slow", json!({})), ("slow", json!({}))]),
        says(&["done"]),
    ]);
    agent
        .watched(async {
            let start = Instant::now();
            assert_eq!(answer(&agent.ask("x").await), "done");
            assert_eq!(start.elapsed().as_secs(), 40);
        })
        .await;
}

#[tokio::test]
async fn requests_that_cannot_be_served_say_why() {
    let user = json!({"role": "user", "content": "x"});
    let cases: [(String, &str); 9] = [
        (
            "{".to_owned(),
            "request body is not a chat completion request: EOF while parsing an object",
        ),
        (
            String::new(),
            "request body is not a chat completion request: EOF while parsing a value",
        ),
        ("[]".to_owned(), "request body is not a chat completion request: "),
        (
            json!({"messages": [{"content": "x"}]}).to_string(),
            "request body is not a chat completion request: missing field `role`",
        ),
        ("{}".to_owned(), "messages are required"),
        (json!({"messages": []}).to_string(), "messages are required"),
        (
            json!({"messages": [{"role": "system", "content": "x"}]}).to_string(),
            "No user or task-delegation message found",
        ),
        (
            json!({"messages": [user], "n": 2}).to_string(),
            "n is 2, but an agent gives one answer",
        ),
        (
            json!({"messages": [user], "tools": [{"type": "function", "function": {"name": "f"}}]})
                .to_string(),
            "tools are not supported: an agent calls the tools it is set up with",
        ),
    ];
    let agent = agent([]);
    for (body, expected) in cases {
        let (status, answer) = agent.post(body.clone()).await;
        let detail = answer["detail"].as_str().unwrap();
        assert!(
            status == 400 && detail.starts_with(expected),
            "{body}: {status} {detail}"
        );
    }
    let (status, answer) = agent.post(vec![b' '; BODY_LIMIT + 1]).await;
    assert_eq!(
        (status, answer),
        (413, refused("request body is larger than 4 MiB"))
    );
    assert_eq!(agent.post(vec![b' '; BODY_LIMIT]).await.0, 400);
    assert!(agent.model.asked.lock().unwrap().is_empty());
}

/// The body of a refusal, for callers of KAOS agents and for OpenAI's SDKs.
fn refused(detail: &str) -> Value {
    let error = json!({"message": detail, "type": "invalid_request_error", "param": null, "code": null});
    json!({"detail": detail, "error": error})
}

#[tokio::test]
async fn a_web_page_cannot_make_the_agent_act() {
    let agent = agent([]);
    for kind in [
        None,
        Some("text/plain"),
        Some("application/x-www-form-urlencoded"),
    ] {
        let mut request = Request::post(CHAT);
        if let Some(kind) = kind {
            request = request.header("content-type", kind);
        }
        let request = request.body(Body::from(streaming("x").to_string())).unwrap();
        let (status, body) = read(router(agent.app.clone()).oneshot(request).await.unwrap()).await;
        let detail = format!(
            "content type must be application/json, found {:?}",
            kind.unwrap_or_default()
        );
        assert_eq!((status, body), (415, refused(&detail)));
    }
}

#[tokio::test]
async fn other_paths_and_methods_are_not_there() {
    let agent = agent([]);
    for path in ["/", "/memory", "/v1/completions"] {
        assert_eq!(agent.get(path).await, (404, refused("Not Found")), "{path}");
    }
    assert_eq!(agent.get(CHAT).await, (405, refused("Method Not Allowed")));
}

#[tokio::test(start_paused = true)]
async fn what_is_streamed_is_what_is_answered() {
    let script = || [calls(&[("echo", json!({}))]), says(&["It ", "is ", "so."])];
    let agent = agent(script().into_iter().chain(script()));
    let (whole, streamed) = agent
        .watched(async { (agent.ask("x").await, agent.stream(streaming("x")).await) })
        .await;
    let mut folded = ChunkAccumulator::new();
    for frame in streamed {
        match StreamEvent::parse(&frame.to_string()).unwrap() {
            StreamEvent::Chunk(chunk) => folded.push(&chunk),
            other => panic!("{other:?}"),
        }
    }
    let folded = folded.into_response();
    assert_eq!(folded.choices[0].message.text(), answer(&whole));
}
