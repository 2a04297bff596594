//! Tool calls per second: a trivial Python function behind `kaos serve tools`, and behind FastMCP.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use super::Figure;
use super::load::{Request, Server, free_port, rate};
use crate::process;
use crate::tools::python;
use crate::workspace::Workspace;

/// How many connections call at a time.
const CONNECTIONS: u32 = 4;
/// How long is measured.
const MEASURED: Duration = Duration::from_secs(5);
/// Calls per second of ours for one of FastMCP's.
const GOAL: f64 = 3.0;

const FUNCTION: &str = "def add(a: int, b: int) -> int:\n    return a + b\n";
/// Without sessions and with plain JSON as answers, which is FastMCP's fastest form.
const PEER: &str = "\
import sys
from fastmcp import FastMCP
from starlette.responses import PlainTextResponse
server = FastMCP('peer')
@server.custom_route('/health', methods=['GET'])
async def health(request):
    return PlainTextResponse('ok')
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
    let ours = calls_per_second(&mut ours, port, "/ready")?;
    let port = free_port()?;
    let mut peer = Command::new(&python);
    peer.args(["-c", PEER, &port.to_string()]);
    let theirs = calls_per_second(&mut peer, port, "/health")?;
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

fn calls_per_second(command: &mut Command, port: u16, health: &str) -> Result<f64> {
    let server = Server::start(command, port, health)?;
    let call = Request::post("/mcp", CALL, "\"text\":\"5\"");
    rate(server.address, &call, CONNECTIONS, MEASURED)
}
