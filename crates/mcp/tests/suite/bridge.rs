//! The bridge, in front of a stdio server with bad habits, as clients of both transports see it.

use std::{net::SocketAddr, path::Path, time::Duration};

use futures::StreamExt;
use kaos_mcp::{
    bridge::{Bridge, BridgeConfig, Error},
    client::McpClient,
};
use kaos_seams::Seams;
use reqwest::{Client, RequestBuilder, Response};
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use crate::common::{LONG, object};

fn config(variables: &[(&str, &str)]) -> BridgeConfig {
    let server = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/suite/stdio_server.py");
    command(&["python3", "-u", server.to_str().unwrap()], variables)
}

fn command(words: &[&str], variables: &[(&str, &str)]) -> BridgeConfig {
    let words = words.iter().map(|&word| word.to_owned()).collect();
    let variables = variables
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    BridgeConfig::from_env(words, variables).unwrap()
}

struct Served {
    address: SocketAddr,
    http: Client,
    stop: CancellationToken,
    task: JoinHandle<Result<(), Error>>,
}

impl Served {
    async fn start(variables: &[(&str, &str)]) -> Self {
        kaos_telemetry::install_crypto_provider();
        let bridge = Bridge::start(config(variables), Seams::system()).await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        Self {
            address,
            http: Client::builder().no_proxy().build().unwrap(),
            task: tokio::spawn(bridge.serve(listener, stop.clone())),
            stop,
        }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    fn post(&self, session: Option<&str>, body: String) -> RequestBuilder {
        let request = self
            .http
            .post(self.url("/mcp"))
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .body(body);
        match session {
            Some(session) => request.header("mcp-session-id", session),
            None => request,
        }
    }

    /// Status and body of a post.
    async fn posted(&self, session: Option<&str>, body: &str) -> (u16, String) {
        let response = self.post(session, body.to_owned()).send().await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    }

    async fn hello(&self, name: &str) -> Response {
        let params = json!({
            "protocolVersion": "2025-06-18", "capabilities": {"sampling": {}},
            "clientInfo": {"name": name, "version": "1"},
        });
        let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params});
        self.post(None, hello.to_string()).send().await.unwrap()
    }

    /// A session that is begun.
    async fn session(&self) -> String {
        let response = self.hello("test").await;
        assert_eq!(response.status(), 200);
        let session = response.headers()["mcp-session-id"].to_str().unwrap().to_owned();
        let answer: Value = response.json().await.unwrap();
        assert_eq!(answer["result"]["serverInfo"]["name"], "fake");
        let begun = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        assert_eq!(self.posted(Some(&session), &begun.to_string()).await.0, 202);
        session
    }

    /// A call, until its headers have come.
    async fn begin(&self, session: &str, id: u64, tool: &str) -> Events {
        let params = json!({"name": tool, "_meta": {"progressToken": id}});
        let call = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params});
        let response = self.post(Some(session), call.to_string()).send().await.unwrap();
        assert_eq!(response.status(), 200);
        Events::of(response)
    }

    /// The answer to a call.
    async fn call(&self, session: &str, tool: &str) -> Value {
        let mut messages = self.begin(session, 7, tool).await.all().await;
        let answer = messages.pop().unwrap();
        assert_eq!(answer["id"], 7);
        answer
    }

    async fn text(&self, session: &str, tool: &str) -> String {
        let answer = self.call(session, tool).await;
        let text = answer["result"]["content"][0]["text"].as_str();
        text.unwrap_or_else(|| panic!("{answer}")).to_owned()
    }

    async fn stream(&self, path: &str, session: Option<&str>) -> Events {
        let mut request = self
            .http
            .get(self.url(path))
            .header("accept", "text/event-stream");
        if let Some(session) = session {
            request = request.header("mcp-session-id", session);
        }
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 200);
        Events::of(response)
    }

    async fn end(self) {
        self.stop.cancel();
        self.task.await.unwrap().unwrap();
    }
}

/// Server-sent events: each its name and its data.
struct Events {
    response: Response,
    text: String,
}

impl Events {
    fn of(response: Response) -> Self {
        Self {
            response,
            text: String::new(),
        }
    }

    async fn event(&mut self) -> Option<(String, String)> {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let field = |name: &str| {
                    let lines = event.lines().filter_map(|line| line.strip_prefix(name));
                    lines.map(str::trim_start).collect::<Vec<_>>().join("\n")
                };
                let found = (field("event:"), field("data:"));
                self.text = rest.to_owned();
                if !found.1.is_empty() {
                    return Some(found);
                }
                continue;
            }
            let part = tokio::time::timeout(LONG, self.response.chunk()).await;
            let part = part.expect("an event").unwrap()?;
            self.text.push_str(std::str::from_utf8(&part).unwrap());
        }
    }

    async fn next(&mut self) -> Option<Value> {
        let (name, data) = self.event().await?;
        assert_eq!(name, "message");
        Some(serde_json::from_str(&data).unwrap())
    }

    async fn all(mut self) -> Vec<Value> {
        let mut all = Vec::new();
        while let Some(message) = self.next().await {
            all.push(message);
        }
        all
    }
}

#[tokio::test]
async fn every_session_has_a_server_and_ids_of_its_own() {
    let served = Served::start(&[]).await;
    let (one, two) = (served.session().await, served.session().await);
    let (first, second) = tokio::join!(served.text(&one, "pid"), served.text(&two, "pid"));
    assert_ne!(first, second);
    assert_eq!(served.text(&one, "count").await, "2");
    assert_eq!(
        served.text(&two, "count").await,
        "2",
        "what it remembers is of one client"
    );
    let whole = served.call(&one, "count").await;
    assert_eq!(
        whole["result"]["unknown"], 1.5,
        "what the bridge does not know arrives"
    );

    // Our own client, which knows nothing of this.
    let client = McpClient::connect(&served.url(""), &Seams::system(), LONG)
        .await
        .unwrap();
    let tools = client.list_tools(LONG).await.unwrap();
    assert_eq!(tools.len(), 2);
    let outcome = client.call_tool("count", object(json!({})), LONG).await.unwrap();
    assert_eq!(outcome.text, "1");
    served.end().await;
}

#[tokio::test]
async fn a_server_that_ends_is_started_again_by_the_next_request() {
    let served = Served::start(&[]).await;
    let session = served.session().await;
    let pid = served.text(&session, "pid").await;
    for (tool, how) in [("die", "exit status: 9"), ("half", "exit status: 0")] {
        let held = served.begin(&session, 1, "hang");
        let held = held.await;
        let answer = served.call(&session, tool).await;
        let said =
            format!("the MCP server has ended ({how}) without an answer; the next request starts it again");
        assert_eq!(answer["error"], json!({"code": -32000, "message": said}));
        let held = held.all().await.pop().unwrap();
        assert_eq!(
            (held["id"].clone(), held["error"]["message"].clone()),
            (1.into(), said.into())
        );
        assert_eq!(
            served.text(&session, "count").await,
            "1",
            "without what it remembered"
        );
    }
    assert_ne!(served.text(&session, "pid").await, pid);
    served.end().await;
}

#[tokio::test]
async fn noise_is_logged_and_large_results_arrive() {
    let served = Served::start(&[]).await;
    let session = served.session().await;
    assert_eq!(served.text(&session, "noise").await, "heard");
    assert_eq!(served.text(&session, "big").await.len(), 10_000_000);
    assert_eq!(served.text(&session, "count").await, "3", "the same server");
    served.end().await;
}

#[tokio::test]
async fn a_request_ends_at_its_time_limit_and_the_server_hears_of_it() {
    let served = Served::start(&[("KAOS_TOOL_TIMEOUT_SECONDS", "3")]).await;
    let session = served.session().await;
    let messages = served.begin(&session, 5, "hang").await.all().await;
    assert_eq!(messages[0]["params"]["data"], "hanging");
    assert_eq!(
        messages[1]["error"]["message"],
        "the MCP server has not answered within 3 s, the time limit"
    );
    assert_eq!(served.text(&session, "cancelled").await, "[5]");
    served.end().await;
}

#[tokio::test]
async fn a_client_takes_a_request_back() {
    let served = Served::start(&[]).await;
    let session = served.session().await;
    let mut hanging = served.begin(&session, 5, "hang").await;
    assert_eq!(hanging.next().await.unwrap()["method"], "notifications/message");
    let twice = served.begin(&session, 5, "count").await.all().await;
    assert_eq!(
        twice[0]["error"]["message"],
        "a request with the id 5 is under way; use another id"
    );
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5}});
    assert_eq!(served.posted(Some(&session), &cancel.to_string()).await.0, 202);
    assert_eq!(hanging.next().await, None, "it gets no answer");
    assert_eq!(served.text(&session, "cancelled").await, "[5]");
    served.end().await;
}

#[tokio::test]
async fn the_servers_own_requests_and_notifications_reach_its_client() {
    let served = Served::start(&[]).await;
    let session = served.session().await;
    let mut asking = served.begin(&session, 5, "ask").await;
    let question = asking.next().await.unwrap();
    assert_eq!(question["method"], "sampling/createMessage");
    let result = json!({"role": "assistant", "content": {"type": "text", "text": "forty-two"}, "model": "m"});
    let reply = json!({"jsonrpc": "2.0", "id": question["id"], "result": result});
    // Of another client's session it is nobody's answer.
    let stranger = served.session().await;
    assert_eq!(served.posted(Some(&stranger), &reply.to_string()).await.0, 202);
    assert_eq!(served.posted(Some(&session), &reply.to_string()).await.0, 202);
    let answer = asking.next().await.unwrap();
    assert_eq!(answer["result"]["content"][0]["text"], "forty-two");

    let steps = served.begin(&session, 6, "progress").await.all().await;
    let progress: Vec<&Value> = steps.iter().map(|step| &step["params"]["progress"]).collect();
    assert_eq!(progress, [&json!(1), &json!(2), &Value::Null]);

    // What changes the server as a whole goes to the stream that the client keeps open.
    let mut stream = served.stream("/mcp", Some(&session)).await;
    assert_eq!(served.begin(&session, 7, "change").await.all().await.len(), 1);
    assert_eq!(
        stream.next().await.unwrap()["method"],
        "notifications/tools/list_changed"
    );
    served.end().await;
}

#[tokio::test]
async fn sessions_end_and_are_bounded() {
    let served = Served::start(&[("KAOS_BRIDGE_SESSIONS", "2")]).await;
    let (one, two) = (served.session().await, served.session().await);
    let pid = served.text(&one, "pid").await;
    // Both are busy: a stream is open, a request under way.
    let stream = served.stream("/mcp", Some(&one)).await;
    let mut hanging = served.begin(&two, 1, "hang").await;
    hanging.next().await.unwrap();
    let full = served.hello("test").await;
    assert_eq!(full.status(), 503);
    let said: Value = full.json().await.unwrap();
    assert_eq!(
        said["error"]["message"],
        "2 sessions are in use, which is the limit; end some, or raise KAOS_BRIDGE_SESSIONS"
    );
    // Whom nobody uses makes room.
    drop(stream);
    let third = tokio::time::timeout(LONG, async {
        loop {
            let response = served.hello("test").await;
            if response.status() == 200 {
                return response.headers()["mcp-session-id"].to_str().unwrap().to_owned();
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    let third = third.await.expect("a place becomes free");
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).to_string();
    assert_eq!(served.posted(Some(&one), &list).await.0, 404);
    until_gone(&pid).await;
    // Ended by its client.
    let delete = served
        .http
        .delete(served.url("/mcp"))
        .header("mcp-session-id", &third);
    assert_eq!(delete.send().await.unwrap().status(), 204);
    let (status, said) = until_status(&served, &third, &list, 404).await;
    assert!(
        status == 404 && said.contains("send initialize for a new one"),
        "{said}"
    );
    // And whom the server refuses has none.
    let refused = served.hello("refused").await;
    assert!(refused.headers().get("mcp-session-id").is_none());
    let said: Value = refused.json().await.unwrap();
    assert_eq!(said["error"]["message"], "not you");
    served.end().await;
}

async fn until_status(served: &Served, session: &str, body: &str, status: u16) -> (u16, String) {
    let reached = async {
        loop {
            let answer = served.posted(Some(session), body).await;
            if answer.0 == status {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(LONG, reached).await.expect("the status")
}

async fn until_gone(pid: &str) {
    let stat = format!("/proc/{pid}/stat");
    let gone = async {
        while std::fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z")) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(LONG, gone).await.expect("the server ends");
}

#[tokio::test]
async fn what_is_no_message_is_refused_with_the_fix() {
    let served = Served::start(&[]).await;
    let session = served.session().await;
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).to_string();
    let deep = "[".repeat(200_000);
    let large = format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"{}\"}}",
        "x".repeat(5 << 20)
    );
    for (body, status, code, said) in [
        ("", 400, -32700, "no JSON"),
        ("{", 400, -32700, "no JSON"),
        (
            "[]",
            400,
            -32600,
            "a batch of messages is not accepted; send each by itself",
        ),
        (&deep, 400, -32600, "a batch of messages is not accepted"),
        (
            "{\"jsonrpc\": \"2.0\"}",
            400,
            -32600,
            "neither a method nor an answer",
        ),
        (&large, 413, -32600, "a message may have 4 MiB"),
    ] {
        let (is, answer) = served.posted(Some(&session), body).await;
        let answer: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!(
            (is, answer["error"]["code"].as_i64()),
            (status, Some(code)),
            "{answer}"
        );
        assert!(
            answer["error"]["message"].as_str().unwrap().contains(said),
            "{answer}"
        );
    }
    let (status, said) = served.posted(None, &list).await;
    assert!(status == 400 && said.contains("send initialize first"), "{said}");
    assert_eq!(served.posted(Some("nobody"), &list).await.0, 404);
    let post = || {
        served
            .http
            .post(served.url("/mcp"))
            .header("mcp-session-id", &session)
    };
    let plain = post()
        .header("accept", "*/*")
        .header("content-type", "text/plain")
        .body("{}");
    assert_eq!(plain.send().await.unwrap().status(), 415);
    let picky = post().header("accept", "application/json").body(list);
    assert_eq!(picky.send().await.unwrap().status(), 406);
    let probe = served.http.get(served.url("/mcp")).send().await.unwrap();
    assert_eq!(
        probe.status(),
        400,
        "any form is accepted, and there is no session"
    );
    let page = post().header("origin", "https://evil.example");
    assert_eq!(page.send().await.unwrap().status(), 403);
    assert_eq!(
        served.text(&session, "count").await,
        "1",
        "the server has seen none of it"
    );
    served.end().await;
}

#[tokio::test]
async fn health_and_readiness_tell_of_the_server() {
    let served = Served::start(&[]).await;
    let get = async |path: &str| -> Value {
        let response = served.http.get(served.url(path)).send().await.unwrap();
        assert_eq!(response.status(), 200);
        response.json().await.unwrap()
    };
    assert_eq!(get("/health").await, json!({"status": "healthy"}));
    let ready = json!({"status": "ready", "server": {"name": "fake", "version": "1"}, "sessions": 0});
    assert_eq!(get("/ready").await, ready);
    let metrics = served.http.get(served.url("/metrics")).send().await.unwrap();
    assert_eq!(metrics.status(), 200);
    served.end().await;
}

#[tokio::test]
async fn clients_of_the_older_transport_are_served() {
    let served = Served::start(&[]).await;
    let mut stream = served.stream("/sse", None).await;
    let (name, endpoint) = stream.event().await.unwrap();
    assert_eq!(name, "endpoint");
    let endpoint = url::Url::parse(&served.url("/sse"))
        .unwrap()
        .join(&endpoint)
        .unwrap();
    let params = json!({"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": {"name": "old", "version": "1"}});
    for (id, method, params) in [
        (1, "initialize", params),
        (2, "tools/call", json!({"name": "count"})),
    ] {
        let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        let post = served
            .http
            .post(endpoint.clone())
            .json(&message)
            .send()
            .await
            .unwrap();
        assert_eq!(post.status(), 202);
        let answer = stream.next().await.unwrap();
        assert!(answer["id"] == id && answer["result"].is_object(), "{answer}");
    }
    // The session is as long as its stream.
    drop(stream);
    let ended = async {
        let post = || {
            served
                .http
                .post(endpoint.clone())
                .json(&json!({"jsonrpc": "2.0", "method": "x"}))
                .send()
        };
        while post().await.unwrap().status() != 404 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(LONG, ended).await.expect("the session ends");
    served.end().await;
}

#[tokio::test]
async fn at_the_end_streams_end_and_servers_do() {
    let served = Served::start(&[]).await;
    let session = served.session().await;
    let pid = served.text(&session, "pid").await;
    let mut stream = served.stream("/mcp", Some(&session)).await;
    served.end().await;
    assert_eq!(stream.next().await, None);
    until_gone(&pid).await;
}

#[tokio::test]
async fn a_command_that_is_no_server_is_told() {
    let refused = async |words: &[&str]| {
        let config = command(words, &[("KAOS_TOOL_TIMEOUT_SECONDS", "2")]);
        match Bridge::start(config, Seams::system()).await {
            Err(error) => error.to_string(),
            Ok(_) => panic!("{words:?} is no server"),
        }
    };
    let said = refused(&["/nowhere/server", "--port"]).await;
    assert!(
        said.starts_with(
            "the MCP server \"/nowhere/server --port\" cannot be used: \"/nowhere/server\" was not found: it is not in \
             PATH or does not exist; install it"
        ),
        "{said}"
    );
    let said = refused(&["sh", "-c", "echo usage; exit 3"]).await;
    assert!(
        said.contains("it ended before it answered initialize (exit status: 3)"),
        "{said}"
    );
    let said = refused(&["cat"]).await;
    assert!(
        said.contains("it did not answer initialize within 2 s on its standard output"),
        "{said}"
    );
}

#[tokio::test]
async fn many_clients_at_once_are_served() {
    let served = Served::start(&[]).await;
    let clients = futures::stream::iter(0..8).map(|_| async {
        let session = served.session().await;
        for count in 1..=5 {
            assert_eq!(served.text(&session, "count").await, count.to_string());
        }
    });
    clients.buffer_unordered(4).collect::<()>().await;
    served.end().await;
}
