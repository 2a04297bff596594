//! The worker processes: what happens to them, and to the calls they run.

use std::time::Duration;

use kaos_mcp::server::ToolServerConfig;
use serde_json::json;

use crate::common::{LONG, Served, object};

#[tokio::test]
async fn what_a_tool_does_to_its_process_fails_only_its_call() {
    let served = Served::start(
        r#"
import os, sys

calls = 0

def count() -> int:
    global calls
    calls += 1
    print("this is not an answer", flush=True)
    os.write(1, b'{"call": 1, "content": []}\n')
    os.system("echo nor is this")
    return calls

def fail():
    raise ValueError("too large: 7")

def leave():
    sys.exit(3)

def read() -> str:
    return sys.stdin.read()

def die():
    os._exit(9)

def fork_and_die():
    if os.fork() == 0:
        os.execvp("sleep", ["sleep", "5"])
    os._exit(1)
"#,
    )
    .await;
    assert_eq!(served.text("count", json!({})).await, "1");
    assert_eq!(
        served.failure("fail", json!({})).await,
        "ValueError: too large: 7"
    );
    assert_eq!(
        served.failure("leave", json!({})).await,
        "the code called sys.exit(3)"
    );
    assert_eq!(served.text("read", json!({})).await, "");
    assert_eq!(
        served.text("count", json!({})).await,
        "2",
        "the worker has survived all of it"
    );
    let died = served.failure("die", json!({})).await;
    assert_eq!(
        died,
        "die: the call failed: its Python process ended (exit status: 9)"
    );
    assert_eq!(
        served.text("count", json!({})).await,
        "1",
        "a new worker has taken its place"
    );
    let died = served.failure("fork_and_die", json!({})).await;
    assert_eq!(
        died,
        "fork_and_die: the call failed: its Python process ended (exit status: 1)"
    );
    assert_eq!(served.text("count", json!({})).await, "1");
    served.end().await;
}

#[tokio::test]
async fn a_call_past_its_limit_is_stopped_alone() {
    let folder = tempfile::tempdir().unwrap();
    let mark = folder.path().join("pid");
    let mut config = ToolServerConfig::new(
        r#"
import os, time

def hang(mark: str):
    with open(mark, "w") as file:
        file.write(str(os.getpid()))
    time.sleep(3600)

def quick() -> str:
    return "quick"
"#,
    );
    config.call_timeout = Duration::from_secs(2);
    let served = Served::with(config, "127.0.0.1:0").await;
    served.has_workers(2).await;
    let hang = served.call("hang", json!({"mark": mark}));
    let quick = async {
        for _ in 0..20 {
            assert_eq!(
                served.text("quick", json!({})).await,
                "quick",
                "the other worker serves"
            );
        }
    };
    let (stopped, ()) = tokio::join!(hang, quick);
    assert_eq!(
        (stopped.is_error, stopped.text.as_str()),
        (true, "hang: the call was stopped after 2 s, its time limit")
    );
    let pid = std::fs::read_to_string(&mark).unwrap();
    until("the stopped worker is gone", || gone(&pid)).await;
    // Both workers serve again.
    let (a, b) = tokio::join!(served.text("quick", json!({})), served.text("quick", json!({})));
    assert_eq!((a.as_str(), b.as_str()), ("quick", "quick"));
    served.end().await;
}

#[tokio::test]
async fn a_caller_waits_for_a_worker_no_longer_than_the_limit() {
    let mut config = ToolServerConfig::new("import time\ndef nap(): time.sleep(0.8)\n");
    config.workers = 1;
    config.call_timeout = Duration::from_secs(1);
    let served = Served::with(config, "127.0.0.1:0").await;
    let naps = (0..4).map(|_| served.call("nap", json!({})));
    let outcomes = futures::future::join_all(naps).await;
    // On a busy machine a nap may take longer than the limit, too.
    let known = [
        "",
        "nap: no worker was free within 1 s",
        "nap: the call was stopped after 1 s",
    ];
    let started_with = |text: &str, known: &str| {
        if known.is_empty() {
            text.is_empty()
        } else {
            text.starts_with(known)
        }
    };
    for outcome in &outcomes {
        assert!(
            known.iter().any(|known| started_with(&outcome.text, known)),
            "{outcome:?}"
        );
    }
    assert!(
        outcomes.iter().any(|outcome| outcome.text.starts_with(known[1])),
        "{outcomes:?}"
    );
    served.end().await;
}

#[tokio::test]
async fn a_call_whose_caller_has_left_is_not_begun() {
    let served = Served::start(
        r#"
import os, time

begun = []

def hold(gate: str):
    open(gate + ".held", "w").close()
    while not os.path.exists(gate):
        time.sleep(0.01)

def note(name: str):
    begun.append(name)

def noted() -> list:
    return begun
"#,
    )
    .await;
    let folder = tempfile::tempdir().unwrap();
    let gate = folder.path().join("gate");
    let (client, path) = (served.client.clone(), gate.clone());
    let holding = tokio::spawn(async move {
        client
            .call_tool("hold", object(json!({"gate": path})), LONG)
            .await
    });
    until("the worker is held", || folder.path().join("gate.held").exists()).await;
    let impatient = object(json!({"name": "impatient"}));
    let left = served
        .client
        .call_tool("note", impatient, Duration::from_millis(300))
        .await;
    assert!(left.is_err(), "the only worker was held: {left:?}");
    std::fs::write(&gate, "").unwrap();
    holding.await.unwrap().unwrap();
    served.text("note", json!({"name": "patient"})).await;
    assert_eq!(served.text("noted", json!({})).await, "[\"patient\"]");
    served.end().await;
}

const HOLDING: &str = r#"
import os, time

def hold(mark: str):
    with open(mark + ".part", "w") as file:
        file.write(str(os.getpid()))
    os.rename(mark + ".part", mark)
    time.sleep(3600)

def quick() -> str:
    return "quick"
"#;

#[tokio::test]
async fn a_call_that_is_cancelled_stops_its_worker_alone() {
    let folder = tempfile::tempdir().unwrap();
    let served = Served::with(ToolServerConfig::new(HOLDING), "127.0.0.1:0").await;
    served.has_workers(2).await;
    let url = format!("http://{}/mcp", served.address);
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let post = |session: Option<&str>, message: serde_json::Value| {
        let mut request = http
            .post(&url)
            .header("accept", "application/json, text/event-stream")
            .json(&message);
        if let Some(session) = session {
            request = request.header("mcp-session-id", session);
        }
        request.send()
    };
    let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}});
    let mut sessions = Vec::new();
    for _ in 0..2 {
        let response = post(None, hello.clone()).await.unwrap();
        sessions.push(response.headers()["mcp-session-id"].to_str().unwrap().to_owned());
    }
    // Two clients, whose calls have the same id.
    let marks = [folder.path().join("one"), folder.path().join("two")];
    let hold = |client: usize| {
        let params = json!({"name": "hold", "arguments": {"mark": marks[client]}});
        let call = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params});
        post(Some(&sessions[client]), call)
    };
    let cancel = async {
        until("both are held", || marks.iter().all(|mark| mark.exists())).await;
        let cancel =
            json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}});
        // Of a client that is not known, which changes nothing.
        assert_eq!(post(Some("nobody"), cancel.clone()).await.unwrap().status(), 202);
        assert_eq!(post(Some(&sessions[0]), cancel).await.unwrap().status(), 202);
    };
    let second = tokio::spawn(hold(1));
    let (cancelled, ()) = tokio::join!(hold(0), cancel);
    let said: serde_json::Value = cancelled.unwrap().json().await.unwrap();
    assert_eq!(
        said["error"]["message"],
        "the request was cancelled by its client"
    );
    let pid = |mark: &std::path::Path| std::fs::read_to_string(mark).unwrap();
    until("its worker is stopped", || gone(&pid(&marks[0]))).await;
    assert_eq!(served.text("quick", json!({})).await, "quick");
    assert!(!gone(&pid(&marks[1])), "the other one runs on");
    // A client whose connection is gone has taken its call back, too.
    second.abort();
    until("its worker is stopped", || gone(&pid(&marks[1]))).await;
    served.end().await;
}

#[tokio::test]
async fn the_workers_end_with_the_server() {
    let served = Served::start("import os\ndef pid() -> int: return os.getpid()\n").await;
    let pid = served.text("pid", json!({})).await;
    served.end().await;
    until("the worker is gone", || gone(&pid)).await;
}

/// Whether the process has ended; one that nobody has waited for yet has ended, too.
fn gone(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.map_or(true, |stat| {
        stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('Z'))
    })
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    let deadline = tokio::time::Instant::now() + LONG;
    while !holds() {
        assert!(tokio::time::Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
