//! Agents that delegate, their routes through the gateway, and what a platform engineer does to them.

use anyhow::{Context, Result, ensure};
use kaos_product::{Folder, python};

/// What a server answers to a page of `origin`, as `STATUS BODY`.
fn asked(folder: &Folder, url: &str, origin: Option<&str>) -> Result<String> {
    const ASK: &str = "import sys, urllib.request, urllib.error
request = urllib.request.Request(sys.argv[1], headers={'Origin': sys.argv[2]} if sys.argv[2] else {})
try:
    answer = urllib.request.urlopen(request, timeout=30)
except urllib.error.HTTPError as refused:
    answer = refused
print(answer.status, answer.read().decode())";
    let python = python();
    let python = python.to_str().context("a path that is no text")?;
    let answer = folder.run(python, &["-c", ASK, url, origin.unwrap_or_default()])?;
    Ok(answer.ok()?.stdout)
}

/// Questions of the sample, whom they are for, and what only that specialist's tool knows.
const QUESTIONS: [(&str, &str, &str); 2] = [
    (
        "Ask the mathematician: what is 12 times 34?",
        "mathematician",
        "408",
    ),
    (
        "Ask the linguist: what is the plural of octopus?",
        "linguist",
        "octopodes",
    ),
];

#[test]
fn a_coordinator_answers_with_what_each_of_its_specialists_found_out() -> Result<()> {
    let folder = Folder::new()?;
    let mut up = folder.up(&["samples/team.yaml"])?;
    up.ready()?;
    for (question, specialist, found) in QUESTIONS {
        let answer = folder.run("kaos", &["chat", "coordinator", question])?.ok()?;
        ensure!(answer.stdout.contains(found), "{answer:?}");
        let delegations: Vec<&str> = answer
            .stderr
            .lines()
            .filter(|line| line.starts_with('→'))
            .collect();
        let shown = format!("→ delegate_to_{specialist} ");
        ensure!(
            matches!(delegations[..], [one] if one.starts_with(&shown)),
            "the delegation is shown, and there is no other: {answer:?}"
        );
    }
    Ok(())
}

#[test]
fn an_agent_answers_under_its_path_of_the_gateway() -> Result<()> {
    let folder = Folder::new()?;
    let mut up = folder.up(&["samples/team.yaml"])?;
    let printed = up.ready()?;
    let path = "/default/agent/mathematician";
    let address = printed
        .split_whitespace()
        .filter_map(|word| word.strip_suffix("/v1"))
        .find(|word| word.starts_with("http://127.0.0.1:") && word.ends_with(path))
        .with_context(|| format!("no address of the route:\n{printed}"))?
        .to_owned();
    let card = asked(&folder, &format!("{address}/.well-known/agent"), None)?;
    ensure!(
        card.starts_with("200 ") && card.contains("mathematician"),
        "{card}"
    );
    let hostile = asked(&folder, &format!("{address}/health"), Some("https://example.com"))?;
    ensure!(hostile.starts_with("403 "), "{hostile}");

    let hidden = r#"{"spec":{"agentNetwork":{"expose":false}}}"#;
    folder
        .kubectl(&["patch", "agent", "mathematician", "--type=merge", "-p", hidden])?
        .ok()?;
    folder
        .kubectl(&[
            "wait",
            "--for=delete",
            "httproute/agent-mathematician",
            "--timeout=30s",
        ])?
        .ok()?;
    Ok(())
}

#[test]
fn kubectl_scales_an_agent() -> Result<()> {
    let folder = Folder::new()?;
    let mut up = folder.up(&["samples/team.yaml"])?;
    up.ready()?;
    folder
        .kubectl(&["scale", "agent", "mathematician", "--replicas=2"])?
        .ok()?;
    folder
        .kubectl(&[
            "wait",
            "--for=jsonpath={.status.replicas}=2",
            "agent/mathematician",
        ])?
        .ok()?;
    folder
        .kubectl(&[
            "wait",
            "--for=condition=Ready",
            "agent/mathematician",
            "--timeout=60s",
        ])?
        .ok()?;
    Ok(())
}

#[test]
fn a_runtime_of_the_registry_is_there_once_its_config_map_is() -> Result<()> {
    let folder = Folder::new()?;
    let mut up = folder.up(&["samples/team.yaml"])?;
    up.ready()?;
    folder.write(
        "registry.yaml",
        r#"
apiVersion: v1
kind: ConfigMap
metadata: {name: kaos-mcp-runtimes, namespace: kaos-system}
data:
  runtimes.yaml: |
    runtimes:
      my-python:
        image: kaos-tools
        args: [serve, tools]
        paramsEnvVar: MCP_TOOLS_STRING
"#,
    )?;
    folder.write(
        "server.yaml",
        r#"
apiVersion: kaos.tools/v1alpha1
kind: MCPServer
metadata: {name: mine}
spec:
  runtime: my-python
  params: |
    def add(a: int, b: int) -> int:
        """Add two whole numbers."""
        return a + b
"#,
    )?;
    folder.kubectl(&["apply", "-f", "server.yaml"])?.ok()?;
    folder
        .kubectl(&[
            "wait",
            "--for=jsonpath={.status.phase}=Failed",
            "mcpserver/mine",
            "--timeout=30s",
        ])?
        .ok()?;
    let message = folder
        .kubectl(&["get", "mcpserver", "mine", "-o", "jsonpath={.status.message}"])?
        .ok()?
        .stdout;
    ensure!(message.contains("unknown runtime: my-python"), "{message}");
    folder.kubectl(&["apply", "-f", "registry.yaml"])?.ok()?;
    folder
        .kubectl(&[
            "wait",
            "--for=condition=ToolsListed",
            "mcpserver/mine",
            "--timeout=60s",
        ])?
        .ok()?;
    let tools = folder
        .kubectl(&[
            "get",
            "mcpserver",
            "mine",
            "-o",
            "jsonpath={.status.availableTools}",
        ])?
        .ok()?
        .stdout;
    ensure!(tools.contains("add"), "{tools}");
    Ok(())
}
