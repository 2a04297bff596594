//! kubectl against a running instance: what a platform engineer types without thinking.

use std::{process::Stdio, time::Duration};

use anyhow::{Result, ensure};
use kaos_product::{Folder, Up};

fn running() -> Result<(Folder, Up)> {
    let folder = Folder::new()?;
    let mut up = folder.up(&["samples/quickstart.yaml"])?;
    up.ready()?;
    Ok((folder, up))
}

fn says(folder: &Folder, arguments: &[&str], parts: &[&str]) -> Result<String> {
    let output = folder.kubectl(arguments)?.ok()?;
    for part in parts {
        ensure!(
            output.stdout.contains(part),
            "kubectl {arguments:?}: no {part:?} in:\n{}",
            output.stdout
        );
    }
    Ok(output.stdout)
}

#[test]
fn resources_are_shown_in_every_form() -> Result<()> {
    let (folder, _up) = running()?;
    says(
        &folder,
        &["get", "agents"],
        &[
            "NAME",
            "MODELAPI",
            "MODEL",
            "READY",
            "PHASE",
            "AGE",
            "assistant",
            "true",
        ],
    )?;
    says(&folder, &["get", "kaos"], &["agent", "modelapi", "mcpserver"])?;
    says(
        &folder,
        &["get", "pods", "-o", "wide"],
        &["1/1", "Running", "NODE", "local"],
    )?;
    says(
        &folder,
        &["get", "deploy,rs,svc,cm,events"],
        &["deployment.apps/agent-assistant", "litellm-config-models"],
    )?;
    says(
        &folder,
        &["get", "agent", "assistant", "-o", "yaml"],
        &["kind: Agent", "type: Ready", "observedGeneration"],
    )?;
    says(
        &folder,
        &["get", "mcps", "-o", "name"],
        &["mcpserver.kaos.tools/calculator"],
    )?;
    // The tools are listed off the controller's passes, a moment after the server is ready.
    let listed = "--for=jsonpath={.status.availableTools[0]}=multiply";
    says(
        &folder,
        &["wait", listed, "mcpserver/calculator", "--timeout=60s"],
        &["condition met"],
    )?;
    says(
        &folder,
        &[
            "get",
            "mcp",
            "calculator",
            "-o",
            "jsonpath={.status.availableTools}",
        ],
        &["multiply"],
    )?;
    says(
        &folder,
        &["describe", "agent", "assistant"],
        &["Conditions", "Ready", "models"],
    )?;
    says(
        &folder,
        &["describe", "pod", "-l", "agent=assistant"],
        &["MODEL_API_URL", "Started"],
    )?;
    says(
        &folder,
        &["describe", "deployment", "agent-assistant"],
        &["1 available", "RollingUpdate"],
    )?;
    says(
        &folder,
        &["explain", "agent.spec.config"],
        &[
            "What the agent is and how it works.",
            "instructions\t<string>",
            "The system prompt.",
            "reasoningLoopMaxSteps\t<integer>",
            "How often the model may be asked",
            "Older spelling of container.env",
        ],
    )?;
    says(
        &folder,
        &["api-resources", "--api-group", "kaos.tools"],
        &["agents", "mcpservers", "modelapis"],
    )?;
    Ok(())
}

#[test]
fn a_change_of_each_kind_is_made_and_waited_for() -> Result<()> {
    let (folder, _up) = running()?;
    let steps = |value: &str| {
        says(
            &folder,
            &[
                "get",
                "agent",
                "assistant",
                "-o",
                "jsonpath={.spec.config.reasoningLoopMaxSteps}",
            ],
            &[value],
        )
    };
    let merge = r#"{"spec":{"config":{"reasoningLoopMaxSteps":7}}}"#;
    says(
        &folder,
        &["patch", "agent", "assistant", "--type", "merge", "-p", merge],
        &["patched"],
    )?;
    steps("7")?;
    let json = r#"[{"op":"replace","path":"/spec/config/reasoningLoopMaxSteps","value":8}]"#;
    says(
        &folder,
        &["patch", "agent", "assistant", "--type", "json", "-p", json],
        &["patched"],
    )?;
    steps("8")?;
    let strategic = r#"{"spec":{"template":{"metadata":{"annotations":{"touched":"yes"}}}}}"#;
    says(
        &folder,
        &["patch", "deployment", "agent-assistant", "-p", strategic],
        &["patched"],
    )?;
    says(&folder, &["label", "agent", "assistant", "team=a"], &["labeled"])?;
    says(
        &folder,
        &["get", "agents", "-l", "team=a", "-o", "name"],
        &["assistant"],
    )?;
    says(
        &folder,
        &["annotate", "agent", "assistant", "note=b"],
        &["annotated"],
    )?;
    says(
        &folder,
        &[
            "wait",
            "--for=condition=Ready",
            "agent/assistant",
            "--timeout=60s",
        ],
        &["condition met"],
    )?;
    says(&folder, &["logs", "-l", "agent=assistant"], &[])?;
    Ok(())
}

#[test]
fn apply_of_both_kinds_and_delete_leave_what_they_should() -> Result<()> {
    let (folder, _up) = running()?;
    says(
        &folder,
        &["apply", "-f", "samples/quickstart.yaml"],
        &["agent.kaos.tools/assistant"],
    )?;
    says(
        &folder,
        &["apply", "-f", "samples/quickstart.yaml"],
        &["agent.kaos.tools/assistant unchanged"],
    )?;
    says(
        &folder,
        &[
            "apply",
            "--server-side",
            "--force-conflicts",
            "-f",
            "samples/quickstart.yaml",
        ],
        &["agent.kaos.tools/assistant serverside-applied"],
    )?;
    says(&folder, &["delete", "agent", "assistant"], &["deleted"])?;
    says(
        &folder,
        &[
            "wait",
            "--for=delete",
            "pod",
            "-l",
            "agent=assistant",
            "--timeout=60s",
        ],
        &[],
    )?;
    let left = folder
        .kubectl(&["get", "deploy,svc,rs,pods", "-l", "agent=assistant"])?
        .ok()?;
    ensure!(left.stderr.contains("No resources found"), "{left:?}");
    Ok(())
}

#[test]
fn a_watch_shows_changes_and_logs_follow() -> Result<()> {
    let (folder, _up) = running()?;
    let mut watch = folder.command(kaos_product::kubectl());
    let mut watch = watch
        .args([
            "--kubeconfig",
            ".kaos/kubeconfig",
            "get",
            "agents",
            "-w",
            "-o",
            "name",
        ])
        .stdout(Stdio::piped())
        .spawn()?;
    let mut logs = folder.command(kaos_product::kubectl());
    let mut logs = logs
        .args([
            "--kubeconfig",
            ".kaos/kubeconfig",
            "logs",
            "-f",
            "-l",
            "mcpserver=calculator",
        ])
        .stdout(Stdio::piped())
        .spawn()?;
    // Both have begun once the API has answered a request made after them.
    std::thread::sleep(Duration::from_millis(300));
    says(
        &folder,
        &["label", "agent", "assistant", "seen=yes"],
        &["labeled"],
    )?;
    says(&folder, &["delete", "mcpserver", "calculator"], &["deleted"])?;
    let followed = logs.wait()?;
    ensure!(
        followed.success(),
        "following ends with the container: {followed}"
    );
    watch.kill()?;
    let shown = String::from_utf8(watch.wait_with_output()?.stdout)?;
    ensure!(
        shown.matches("agent.kaos.tools/assistant").count() >= 2,
        "{shown}"
    );
    Ok(())
}
