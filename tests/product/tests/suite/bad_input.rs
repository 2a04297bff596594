//! Mistakes that people make, each with its one clear message, and nothing lost by any of them.

use std::net::TcpListener;

use anyhow::{Result, ensure};
use kaos_product::Folder;

/// Runs `kaos up` on a file with `text` and returns how it failed.
fn refused(text: &str) -> Result<String> {
    let folder = Folder::new()?;
    folder.write("mine.yaml", text)?;
    folder.up(&["mine.yaml"])?.ended()?.failed()
}

fn contains(message: &str, parts: &[&str]) -> Result<()> {
    for part in parts {
        ensure!(message.contains(part), "no {part:?} in:\n{message}");
    }
    Ok(())
}

const AGENT: &str =
    "apiVersion: kaos.tools/v1alpha1\nkind: Agent\nmetadata: {name: a}\nspec: {modelAPI: m, model: x}\n";

#[test]
fn broken_yaml_is_told_with_its_line() -> Result<()> {
    contains(
        &refused("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a\n")?,
        &["mine.yaml:", "not valid YAML"],
    )
}

#[test]
fn an_unknown_kind_is_told_with_its_place() -> Result<()> {
    let text = AGENT.replace("kind: Agent", "kind: Agnet");
    contains(
        &refused(&text)?,
        &[
            "mine.yaml:2",
            "no kind Agnet in kaos.tools/v1alpha1",
            "did you mean kind Agent",
        ],
    )
}

#[test]
fn an_unknown_field_is_named_and_nothing_is_applied() -> Result<()> {
    let folder = Folder::new()?;
    let text = format!(
        "{AGENT}---\n{}",
        AGENT
            .replace("name: a", "name: b")
            .replace("model:", "modle: y, model:")
    );
    folder.write("mine.yaml", &text)?;
    let message = folder.up(&["mine.yaml"])?.ended()?.failed()?;
    contains(
        &message,
        &[
            "nothing was applied",
            "mine.yaml:9: agent/b",
            "spec.modle",
            "did you mean model?",
        ],
    )?;
    let mut up = folder.up(&[])?;
    up.prints("API:")?;
    let agents = folder.kubectl(&["get", "agents"])?.ok()?;
    ensure!(agents.stderr.contains("No resources found"), "{agents:?}");
    Ok(())
}

#[test]
fn a_value_out_of_bounds_is_named() -> Result<()> {
    let text = AGENT.replace("model: x", "model: x, config: {reasoningLoopMaxSteps: 99}");
    contains(&refused(&text)?, &["reasoningLoopMaxSteps", "99", "20"])
}

#[test]
fn a_mock_under_litellm_is_refused_with_the_fix() -> Result<()> {
    let text = "apiVersion: kaos.tools/v1alpha1\nkind: ModelAPI\nmetadata: {name: m}\n\
                spec: {mode: Proxy, proxyConfig: {provider: mock, models: [x]}}\n";
    contains(&refused(text)?, &["mock", "runtime: Native"])
}

#[test]
fn a_missing_file_is_named() -> Result<()> {
    let folder = Folder::new()?;
    contains(&folder.up(&["absent.yaml"])?.ended()?.failed()?, &["absent.yaml"])
}

#[test]
fn a_missing_reference_is_shown_and_its_arrival_is_enough() -> Result<()> {
    let folder = Folder::new()?;
    let quickstart = std::fs::read_to_string(folder.path().join("samples/quickstart.yaml"))?;
    let (models, rest) = quickstart.split_once("\n---\n").unwrap();
    folder.write("models.yaml", models)?;
    folder.write("rest.yaml", rest)?;
    let mut up = folder.up(&["rest.yaml"])?;
    up.prints("ModelAPI")?;
    contains(&up.text(), &["agent/assistant", "models"])?;
    folder.kubectl(&["apply", "-f", "models.yaml"])?.ok()?;
    up.ready()?;
    Ok(())
}

#[test]
fn a_python_tool_with_a_syntax_error_is_told() -> Result<()> {
    let folder = Folder::new()?;
    let quickstart = std::fs::read_to_string(folder.path().join("samples/quickstart.yaml"))?;
    folder.write("mine.yaml", &quickstart.replace("return a * b", "return a *"))?;
    let mut up = folder.up(&["mine.yaml"])?;
    let printed = up.prints("line 3")?;
    contains(&printed, &["mcpserver/calculator", "syntax"])
}

#[test]
fn a_missing_python_is_told() -> Result<()> {
    let folder = Folder::new()?;
    let quickstart = std::fs::read_to_string(folder.path().join("samples/quickstart.yaml"))?;
    let without = quickstart.replace(
        "runtime: python-string\n",
        "runtime: python-string\n  container:\n    env:\n      - {name: KAOS_PYTHON, value: /absent/python3}\n",
    );
    folder.write("mine.yaml", &without)?;
    let mut up = folder.up(&["mine.yaml"])?;
    let printed = up.prints("KAOS_PYTHON")?;
    contains(&printed, &["mcpserver/calculator", "/absent/python3"])
}

#[test]
fn an_occupied_port_is_named() -> Result<()> {
    let folder = Folder::new()?;
    let taken = TcpListener::bind("127.0.0.1:0")?;
    let port = taken.local_addr()?.port().to_string();
    let message = folder.up(&["--port", &port])?.ended()?.failed()?;
    contains(&message, &["port", &port, "--port"])
}

#[test]
fn a_second_instance_on_one_folder_is_refused_and_the_first_goes_on() -> Result<()> {
    let folder = Folder::new()?;
    let mut up = folder.up(&["samples/quickstart.yaml"])?;
    up.ready()?;
    let message = folder.up(&["samples/quickstart.yaml"])?.ended()?.failed()?;
    contains(&message, &["in use by a running kaos", "kaos down"])?;
    folder
        .run("kaos", &["chat", "assistant", "What is 2 times 3?"])?
        .ok()?;
    Ok(())
}

#[test]
fn commands_without_an_instance_say_how_to_start_one() -> Result<()> {
    let folder = Folder::new()?;
    for arguments in [&["status"][..], &["chat", "a", "b"], &["logs", "a"]] {
        contains(&folder.run("kaos", arguments)?.failed()?, &["kaos up"])?;
    }
    Ok(())
}

#[test]
fn an_agent_that_does_not_exist_is_told() -> Result<()> {
    let folder = Folder::new()?;
    let mut up = folder.up(&["samples/quickstart.yaml"])?;
    up.ready()?;
    let message = folder.run("kaos", &["chat", "nobody", "hello"])?.failed()?;
    contains(&message, &["no agent is called nobody in namespace default"])
}
