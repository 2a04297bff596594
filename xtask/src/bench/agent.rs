//! The agent before a model that answers at once: how much it carries, with and without a tool, beside an agent of
//! Pydantic AI behind uvicorn; how soon it is ready, and what it takes when idle.

use std::io::{BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::Result;

use super::Figure;
use super::load::{Request, Server, free_port, rate, read_message};
use crate::process;
use crate::tools::python;
use crate::workspace::Workspace;

/// How many callers there are at a time.
const CONNECTIONS: u32 = 16;
/// How long each load is measured.
const LOAD: Duration = Duration::from_secs(8);
const STARTS: usize = 21;
/// After it is ready, before its memory is read.
const SETTLE: Duration = Duration::from_secs(5);

const FUNCTION: &str = "def add(a: int, b: int) -> int:\n    return a + b\n";
/// What the model says once it has what it needs.
const SAID: &str = "This is all that there is to say.";
const VERSIONS: &str = "from importlib.metadata import version as v
print(f\"Pydantic AI {v('pydantic-ai-slim')}, uvicorn {v('uvicorn')}\")";

/// Measures it.
pub(super) fn measure(workspace: &Workspace, kaos: &Path) -> Result<Vec<Figure>> {
    let python = python::environment(workspace, "xtask/bench/agent.txt")?.required()?;
    let versions = process::output(Command::new(&python).args(["-c", VERSIONS]))?;
    let peer_script = workspace.root.join("xtask/bench/agent.py");
    let model = model()?;
    let port = free_port()?;
    let mut tools = Command::new(kaos);
    tools
        .args(["serve", "tools"])
        .env("KAOS_LISTEN", format!("127.0.0.1:{port}"))
        .env("KAOS_PYTHON", &python)
        .env("MCP_TOOLS_STRING", FUNCTION);
    let tools = Server::start(&mut tools, port, "/ready")?;
    let tools_url = format!("http://{}/mcp", tools.address);

    let ours = |with_tools: bool| -> Result<Server> {
        let port = free_port()?;
        let mut agent = Command::new(kaos);
        agent
            .args(["serve", "agent"])
            .env("KAOS_LISTEN", format!("127.0.0.1:{port}"))
            .env("LOG_LEVEL", "warn")
            .env("AGENT_NAME", "agent")
            .env("AGENT_INSTRUCTIONS", "Be brief.")
            .env("MODEL_API_URL", format!("http://{model}"))
            .env("MODEL_NAME", "m");
        if with_tools {
            agent
                .env("MCP_SERVERS", "calculator")
                .env("MCP_SERVER_calculator_URL", &tools_url);
        }
        Server::start(&mut agent, port, "/ready")
    };
    let theirs = |with_tools: bool| -> Result<Server> {
        let port = free_port()?;
        let mut agent = Command::new(&python);
        agent.arg(&peer_script).arg(port.to_string());
        agent.arg(format!("http://{model}"));
        agent.args(with_tools.then_some(&tools_url));
        Server::start(&mut agent, port, "/ready")
    };
    let mut figures = vec![start(&ours)?, idle(&ours(true)?)?];
    for (what, with_tools, goal) in [("a chat", false, 15.0), ("a chat with one tool call", true, 10.0)] {
        let chat = Request::post(
            "/v1/chat/completions",
            r#"{"model":"m","messages":[{"role":"user","content":"What is there to say?"}]}"#,
            SAID,
        );
        let carried = |agent: Server| rate(agent.address, &chat, CONNECTIONS, LOAD);
        let (ours, theirs) = (carried(ours(with_tools)?)?, carried(theirs(with_tools)?)?);
        figures.push(Figure {
            what: format!(
                "agent: {what}, c={CONNECTIONS}, beside {} ({theirs:.0}/s)",
                versions.trim()
            ),
            measured: format!("{ours:.0}/s, {:.1} ×", ours / theirs),
            target: if with_tools { "≥ 10 ×" } else { "≥ 15 ×" },
            holds: ours >= theirs * goal,
        });
    }
    Ok(figures)
}

/// How soon an agent is ready whose model and tools are there.
fn start(agent: &impl Fn(bool) -> Result<Server>) -> Result<Figure> {
    let mut starts = Vec::new();
    for _ in 0..STARTS {
        starts.push(agent(true)?.start);
    }
    starts.sort();
    let median = starts[starts.len() / 2];
    Ok(Figure {
        what: "agent: start to ready".to_owned(),
        measured: format!("{:.1} ms (median of {STARTS})", median.as_secs_f64() * 1000.0),
        target: "≤ 25 ms",
        holds: median <= Duration::from_millis(25),
    })
}

fn idle(agent: &Server) -> Result<Figure> {
    thread::sleep(SETTLE);
    let resident = agent.resident()? as f64 / 1024.0;
    Ok(Figure {
        what: "agent: resident memory when idle".to_owned(),
        measured: format!("{resident:.1} MiB"),
        target: "≤ 12 MiB",
        holds: resident <= 12.0,
    })
}

/// A server of OpenAI's API that answers at once: with a call of the tool that it is offered, else with [`SAID`].
fn model() -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        while let Ok((connection, _)) = listener.accept() {
            // One that ends is a caller's who is done.
            thread::spawn(move || drop(answer(connection)));
        }
    });
    Ok(address)
}

fn answer(connection: TcpStream) -> Result<()> {
    connection.set_nodelay(true)?;
    let mut connection = BufReader::new(connection);
    while let Some((_, body)) = read_message(&mut connection)? {
        // Clients write JSON with and without spaces.
        let asked = String::from_utf8_lossy(&body).replace("\": ", "\":");
        let calls = asked.contains("\"tools\":[{") && !asked.contains("\"role\":\"tool\"");
        let answer = if asked.contains("\"stream\":true") {
            streamed(calls)
        } else {
            whole(calls)
        };
        connection.get_mut().write_all(answer.as_bytes())?;
    }
    Ok(())
}

const CALL: &str =
    r#""id":"call_1","type":"function","function":{"name":"add","arguments":"{\"a\":2,\"b\":3}"}"#;
const HEAD: &str = r#""id":"c","created":1,"model":"m""#;
const USAGE: &str = r#""usage":{"prompt_tokens":20,"completion_tokens":8,"total_tokens":28}"#;

fn whole(calls: bool) -> String {
    let (message, reason) = if calls {
        (
            format!(r#""content":null,"tool_calls":[{{{CALL}}}]"#),
            "tool_calls",
        )
    } else {
        (format!(r#""content":"{SAID}""#), "stop")
    };
    let body = format!(
        r#"{{{HEAD},"object":"chat.completion","choices":[{{"index":0,"message":{{"role":"assistant",{message}}},"finish_reason":"{reason}"}}],{USAGE}}}"#
    );
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// A piece for each word, as models speak.
fn streamed(calls: bool) -> String {
    let mut events = String::new();
    let mut event = |delta: &str, reason: &str| {
        events.push_str(&format!(
            "data: {{{HEAD},\"object\":\"chat.completion.chunk\",\"choices\":[{{\"index\":0,\"delta\":{{{delta}}},\
             \"finish_reason\":{reason}}}]}}\n\n"
        ));
    };
    if calls {
        event(
            &format!(r#""role":"assistant","tool_calls":[{{"index":0,{CALL}}}]"#),
            "null",
        );
        event("", "\"tool_calls\"");
    } else {
        for word in SAID.split_inclusive(' ') {
            event(&format!(r#""content":"{word}""#), "null");
        }
        event("", "\"stop\"");
    }
    events.push_str(&format!(
        "data: {{{HEAD},\"object\":\"chat.completion.chunk\",\"choices\":[],{USAGE}}}\n\ndata: [DONE]\n\n"
    ));
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\n\r\n{events}",
        events.len()
    )
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn what_the_model_answers_is_json() {
        for calls in [false, true] {
            let body = whole(calls);
            let (_, body) = body.split_once("\r\n\r\n").expect("a body");
            serde_json::from_str::<Value>(body).expect("JSON");
            let events = streamed(calls);
            let events = events.lines().filter_map(|line| line.strip_prefix("data: {"));
            for event in events {
                serde_json::from_str::<Value>(&format!("{{{event}")).expect("JSON");
            }
        }
    }
}
