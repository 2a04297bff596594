//! Tool calls per second: a trivial Python function behind `kaos serve tools`, and behind FastMCP.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::Figure;
use crate::process;
use crate::tools::python;
use crate::workspace::Workspace;

/// How many connections call at a time.
const CONNECTIONS: usize = 4;
/// How long is measured, after as long a time to warm up in.
const MEASURED: Duration = Duration::from_secs(5);
/// Calls per second of ours for one of FastMCP's.
const GOAL: f64 = 3.0;

const FUNCTION: &str = "def add(a: int, b: int) -> int:\n    return a + b\n";
/// Without sessions and with plain JSON as answers, which is FastMCP's fastest form.
const PEER: &str = "\
import sys
from fastmcp import FastMCP
server = FastMCP('peer')
@server.tool
def add(a: int, b: int) -> int:
    return a + b
server.run(transport='http', host='127.0.0.1', port=int(sys.argv[1]), stateless_http=True, json_response=True,
           show_banner=False, log_level='ERROR')
";
const CALL: &str =
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add","arguments":{"a":2,"b":3}}}"#;

/// Measures both, one after the other.
pub(super) fn measure(workspace: &Workspace, kaos: &Path) -> Result<Vec<Figure>> {
    let python = python::environment(workspace, "xtask/bench/tools.txt")?.required()?;
    let version = "import fastmcp; print(fastmcp.__version__)";
    let version = process::output(Command::new(&python).args(["-c", version]))?;
    let port = free_port()?;
    let mut ours = Command::new(kaos);
    ours.args(["serve", "tools"])
        .env("KAOS_LISTEN", format!("127.0.0.1:{port}"))
        .env("KAOS_PYTHON", &python)
        .env("MCP_TOOLS_STRING", FUNCTION);
    let ours = calls_per_second(&mut ours, port)?;
    let port = free_port()?;
    let mut peer = Command::new(&python);
    peer.args(["-c", PEER, &port.to_string()]);
    let theirs = calls_per_second(&mut peer, port)?;
    Ok(vec![Figure {
        what: format!(
            "tool calls per second, {CONNECTIONS} connections, beside FastMCP {} ({theirs:.0}/s)",
            version.trim()
        ),
        measured: format!("{ours:.0}/s, {:.1} ×", ours / theirs),
        target: "≥ 3 ×",
        holds: ours >= theirs * GOAL,
    }])
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// A server, ended with this value.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn calls_per_second(command: &mut Command, port: u16) -> Result<f64> {
    let mut server = Server(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn()?);
    let begun = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        if let Some(status) = server.0.try_wait()? {
            bail!("{command:?} ended: {status}");
        }
        ensure!(
            begun.elapsed() < Duration::from_secs(60),
            "{command:?} does not listen"
        );
        thread::sleep(Duration::from_millis(20));
    }
    call_for(port, MEASURED)?;
    call_for(port, MEASURED)
}

/// Calls over and over, and returns how often in a second.
fn call_for(port: u16, time: Duration) -> Result<f64> {
    let begun = Instant::now();
    let callers: Vec<_> = (0..CONNECTIONS)
        .map(|_| {
            thread::spawn(move || -> Result<u32> {
                let mut caller = Caller::connect(port)?;
                let mut calls = 0;
                while begun.elapsed() < time {
                    caller.call()?;
                    calls += 1;
                }
                Ok(calls)
            })
        })
        .collect();
    let mut calls = 0;
    for caller in callers {
        let called = caller.join().ok().context("a caller panicked")?;
        calls += called?;
    }
    Ok(f64::from(calls) / begun.elapsed().as_secs_f64())
}

/// One connection that is kept open.
struct Caller {
    connection: BufReader<TcpStream>,
    request: String,
}

impl Caller {
    fn connect(port: u16) -> Result<Self> {
        let connection = TcpStream::connect(("127.0.0.1", port))?;
        connection.set_nodelay(true)?;
        connection.set_read_timeout(Some(Duration::from_secs(30)))?;
        let request = format!(
            "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2025-06-18\r\n\
             Content-Length: {}\r\n\r\n{CALL}",
            CALL.len()
        );
        Ok(Self {
            connection: BufReader::new(connection),
            request,
        })
    }

    fn call(&mut self) -> Result<()> {
        self.connection.get_mut().write_all(self.request.as_bytes())?;
        let mut length = None;
        let mut line = String::new();
        self.connection.read_line(&mut line)?;
        ensure!(line.starts_with("HTTP/1.1 200"), "the server answers {line:?}");
        loop {
            line.clear();
            self.connection.read_line(&mut line)?;
            if line.trim().is_empty() {
                break;
            }
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = Some(value.trim().parse()?);
            }
        }
        let mut body = vec![0; length.context("an answer without a length")?];
        self.connection.read_exact(&mut body)?;
        let body = String::from_utf8_lossy(&body);
        ensure!(
            body.contains("\"text\":\"5\"") || body.contains("\"text\": \"5\""),
            "the server answers {body}"
        );
        Ok(())
    }
}
