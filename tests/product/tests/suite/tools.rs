//! Tool servers that nobody here wrote, from PyPI and npm, and clients of them that nobody here wrote either.

use anyhow::{Context, Result, ensure};
use kaos_product::{Folder, Role, cache, node_packages, python, repository};

/// As in `samples/tools.yaml`, so that it is installed once.
const CLOCK: &str = "mcp-server-time@2026.10.19";

fn text(path: impl AsRef<std::path::Path>) -> Result<String> {
    Ok(path
        .as_ref()
        .to_str()
        .context("a path that is no text")?
        .to_owned())
}

#[test]
fn the_mcp_sdk_for_python_talks_to_a_stdio_server_from_pypi() -> Result<()> {
    let folder = Folder::new()?;
    let cache = text(cache())?;
    let variables = [("KAOS_CACHE_DIR", cache.as_str())];
    let role = Role::start(&folder, &["bridge", "--", "uvx", CLOCK], &variables)?;
    let script = text(repository().join("tests/product/python/mcp_bridge_client.py"))?;
    let url = format!("http://{}/mcp", role.address());
    let output = folder.run(&text(python())?, &[&script, &url])?.ok()?;
    ensure!(output.stdout.trim() == "ok", "{output:?}");
    Ok(())
}

#[test]
fn the_mcp_sdk_for_typescript_talks_to_a_stdio_server_from_npm() -> Result<()> {
    let folder = Folder::new()?;
    let packages = text(node_packages())?;
    let server = format!("{packages}/node_modules/.bin/mcp-server-everything");
    let role = Role::start(&folder, &["bridge", "--", &server, "stdio"], &[])?;
    let script = text(repository().join("tests/product/node/mcp_client.mjs"))?;
    let url = format!("http://{}/mcp", role.address());
    let output = folder.run("node", &[&script, &packages, &url])?.ok()?;
    ensure!(output.stdout.trim() == "ok", "{output:?}");
    Ok(())
}

/// Older manifests name packages, newer ones the command line that every server's documentation shows.
#[test]
fn packages_of_pypi_and_npm_are_tool_servers() -> Result<()> {
    let folder = Folder::new()?;
    let (cache, npm) = (text(cache())?, text(cache().join("npm"))?);
    let manifest = format!(
        "apiVersion: kaos.tools/v1alpha1
kind: MCPServer
metadata: {{name: clock}}
spec:
  type: python-runtime
  config: {{tools: {{fromPackage: {package}}}}}
  container: {{env: [{{name: KAOS_CACHE_DIR, value: {cache:?}}}], args: [--local-timezone, UTC]}}
",
        package = CLOCK.replace('@', "=="),
    );
    folder.write("packages.yaml", &manifest)?;
    let sample = std::fs::read_to_string(folder.path().join("samples/npm.yaml"))?;
    let kept =
        format!("  runtime: stdio\n  container: {{env: [{{name: npm_config_cache, value: {npm:?}}}]}}");
    folder.write("npm.yaml", &sample.replace("  runtime: stdio", &kept))?;
    let mut up = folder.up(&["packages.yaml", "npm.yaml"])?;
    up.ready()?;
    for (name, tool) in [("clock", "get_current_time"), ("everything", "echo")] {
        let wait = [
            "wait",
            "--for=condition=ToolsListed",
            "--timeout=120s",
            &format!("mcpserver/{name}"),
        ];
        folder.kubectl(&wait)?.ok()?;
        let path = [
            "get",
            "mcpserver",
            name,
            "-o",
            "jsonpath={.status.availableTools}",
        ];
        let listed = folder.kubectl(&path)?.ok()?.stdout;
        ensure!(listed.contains(&format!("{tool:?}")), "{name}: {listed}");
    }
    let answer = folder
        .run("kaos", &["chat", "explorer", "Echo \"hello\""])?
        .ok()?;
    ensure!(
        answer.stderr.contains("→ echo ") && answer.stdout.contains("hello"),
        "{answer:?}"
    );
    Ok(())
}

#[test]
fn a_package_that_is_not_there_is_told_in_the_installers_words() -> Result<()> {
    let folder = Folder::new()?;
    let source = "# /// script\n# dependencies = [\"kaos-no-such-package-anywhere\"]\n# ///\ndef f(): ...\n";
    // No index: what is told is the same with and without a network.
    let variables = [("MCP_TOOLS_STRING", source), ("PIP_NO_INDEX", "1")];
    let said = match Role::start(&folder, &["tools"], &variables) {
        Err(error) => error.to_string(),
        Ok(_) => anyhow::bail!("it is served"),
    };
    let (_, words) = said
        .split_once("MCP_TOOLS_STRING: ")
        .and_then(|(_, rest)| rest.split_once(" cannot install kaos-no-such-package-anywhere: "))
        .with_context(|| said.clone())?;
    ensure!(words.contains("kaos-no-such-package-anywhere"), "{said}");
    Ok(())
}

const MODELS: &str = r#"
from typing import Annotated

from pydantic import BaseModel, Field

class Line(BaseModel):
    name: str = Field(description="What is bought.")
    price: Annotated[float, Field(ge=0)]

class Bill(BaseModel):
    lines: list[Line]
    total: float

def bill(lines: list[Line], discount: Annotated[float, Field(ge=0, le=1, description="A part.")] = 0) -> Bill:
    """Adds up what is bought."""
    return Bill(lines=lines, total=sum(line.price for line in lines) * (1 - discount))
"#;

#[test]
fn pydantic_models_are_arguments_and_results() -> Result<()> {
    let folder = Folder::new()?;
    let python = text(python())?;
    let variables = [("MCP_TOOLS_STRING", MODELS), ("KAOS_PYTHON", python.as_str())];
    let role = Role::start(&folder, &["tools"], &variables)?;
    let script = text(repository().join("tests/product/python/mcp_models_client.py"))?;
    let url = format!("http://{}/mcp", role.address());
    let output = folder.run(&python, &[&script, &url])?.ok()?;
    ensure!(output.stdout.trim() == "ok", "{output:?}");
    Ok(())
}
