//! Client libraries from PyPI against each role.

use anyhow::{Context, Result, ensure};
use kaos_product::{Folder, Output, Role, python, repository};

fn script(folder: &Folder, name: &str, arguments: &[&str]) -> Result<Output> {
    let script = repository().join("tests/product/python").join(name);
    let mut all = vec![script.to_str().context("a path that is no text")?];
    all.extend(arguments);
    let python = python();
    folder.run(python.to_str().context("a path that is no text")?, &all)
}

#[test]
fn the_openai_sdk_talks_to_an_agent() -> Result<()> {
    let folder = Folder::new()?;
    let mut up = folder.up(&["samples/quickstart.yaml"])?;
    let printed = up.ready()?;
    let url = printed
        .split_whitespace()
        .find(|word| word.starts_with("http://127.0.0.1:") && word.ends_with("/v1"))
        .with_context(|| format!("no OpenAI address in:\n{printed}"))?;
    let output = script(&folder, "openai_client.py", &["agent", url, "assistant"])?.ok()?;
    ensure!(output.stdout.trim() == "ok", "{output:?}");
    Ok(())
}

#[test]
fn the_openai_sdk_talks_to_the_proxy() -> Result<()> {
    let folder = Folder::new()?;
    folder.write(
        "models.yaml",
        "model_list:\n- model_name: test\n  litellm_params: {model: mock/test}\n",
    )?;
    let role = Role::start(&folder, &["proxy", "--config", "models.yaml"], &[])?;
    let url = format!("http://{}/v1", role.address());
    let output = script(&folder, "openai_client.py", &["proxy", &url, "test"])?.ok()?;
    ensure!(output.stdout.trim() == "ok", "{output:?}");
    Ok(())
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
