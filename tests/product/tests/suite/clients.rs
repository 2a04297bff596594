//! Client libraries from PyPI and npm against each role.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use kaos_product::{Folder, Output, Role, node_packages, python, repository};

fn script(folder: &Folder, name: &str, arguments: &[&str]) -> Result<Output> {
    let script = repository().join("tests/product/python").join(name);
    folder.run(text(&python())?, &[&[text(&script)?], arguments].concat())
}

/// Runs each client of OpenAI's API against the server at `url`: `role` is what that is.
fn every_client_talks_to(folder: &Folder, role: &str, url: &str, model: &str) -> Result<()> {
    let at = [role, url, model];
    let node = || -> Result<Output> {
        let script = repository().join("tests/product/node/openai_client.mjs");
        let (script, packages) = (text(&script)?, node_packages());
        folder.run("node", &[&[script, text(&packages)?], &at[..]].concat())
    };
    for (client, output) in [
        ("OpenAI's SDK for Python", script(folder, "openai_client.py", &at)),
        ("OpenAI's SDK for Node.js", node()),
        ("LangChain", script(folder, "langchain_client.py", &at)),
    ] {
        let output = output.and_then(Output::ok).context(client)?;
        ensure!(output.stdout.trim() == "ok", "{client}: {output:?}");
    }
    Ok(())
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().context("a path that is no text")
}

#[test]
fn clients_of_openai_talk_to_an_agent() -> Result<()> {
    let folder = Folder::new()?;
    let mut up = folder.up(&["samples/quickstart.yaml"])?;
    let printed = up.ready()?;
    let url = printed
        .split_whitespace()
        .find(|word| word.starts_with("http://127.0.0.1:") && word.ends_with("/v1"))
        .with_context(|| format!("no OpenAI address in:\n{printed}"))?;
    every_client_talks_to(&folder, "agent", url, "assistant")
}

#[test]
fn clients_of_openai_talk_to_the_proxy() -> Result<()> {
    let folder = Folder::new()?;
    folder.write(
        "models.yaml",
        "model_list:\n- model_name: test\n  litellm_params: {model: mock/test}\n",
    )?;
    let role = Role::start(&folder, &["proxy", "--config", "models.yaml"], &[])?;
    let url = format!("http://{}/v1", role.address());
    every_client_talks_to(&folder, "proxy", &url, "test")
}

const TOOLS: &str = r#"
import time
from functools import partial

ANSWER = 40

def _base() -> int:
    return ANSWER

def add(a: int, b: int = 0) -> int:
    """Add two whole numbers."""
    return a + (b or _base())

def explode() -> str:
    raise ValueError("boom")

async def slow_echo(text: str) -> str:
    print("an echo on standard output must not break the protocol")
    time.sleep(0.05)
    return text
"#;

#[test]
fn the_mcp_sdk_talks_to_python_tools() -> Result<()> {
    let folder = Folder::new()?;
    let role = Role::start(&folder, &["tools"], &[("MCP_TOOLS_STRING", TOOLS)])?;
    let url = format!("http://{}/mcp", role.address());
    let output = script(&folder, "mcp_client.py", &[&url])?.ok()?;
    ensure!(output.stdout.trim() == "ok", "{output:?}");
    Ok(())
}
