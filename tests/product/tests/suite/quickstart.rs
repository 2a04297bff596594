//! The README's first minute, and what must survive it.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kaos_product::{Folder, Output};
use rustix::process::Signal;

/// 1234 × 5678: the mock model cannot multiply, so that only the tool can have said it.
const PRODUCT: &str = "7006652";

/// The line that `kaos up` printed for `command`, as a user would paste it.
fn line(printed: &str, command: &str) -> Result<String> {
    let found = printed
        .lines()
        .map(str::trim)
        .find(|line| line.contains(command) && !line.contains(": "));
    Ok(found
        .with_context(|| format!("no line with {command:?} in:\n{printed}"))?
        .to_owned())
}

fn chat(folder: &Folder, printed: &str) -> Result<Output> {
    let answer = folder.shell(&line(printed, " chat ")?)?.ok()?;
    ensure!(answer.stdout.contains(PRODUCT), "{answer:?}");
    ensure!(
        answer.stdout.contains("[mock]"),
        "a mock says that it is one: {answer:?}"
    );
    ensure!(
        answer.stderr.contains("→ multiply"),
        "the call is shown: {answer:?}"
    );
    ensure!(
        answer.stderr.contains(&format!("← multiply {PRODUCT}")),
        "its result is shown: {answer:?}"
    );
    Ok(answer)
}

fn uid(folder: &Folder) -> Result<String> {
    Ok(folder
        .kubectl(&["get", "agent", "assistant", "-o", "jsonpath={.metadata.uid}"])?
        .ok()?
        .stdout)
}

#[test]
fn the_quickstart_survives_a_kill_and_leaves_no_process_behind() -> Result<()> {
    let folder = Folder::new()?;

    let mut up = folder.up(&["samples/quickstart.yaml"])?;
    let printed = up.ready()?;
    for resource in ["modelapi/models", "mcpserver/calculator", "agent/assistant"] {
        ensure!(printed.contains(&format!("{resource} created")), "{printed}");
    }
    chat(&folder, &printed)?;
    let agents = folder
        .shell(&line(&printed, "kubectl --kubeconfig ")?)?
        .ok()?
        .stdout;
    ensure!(
        agents.contains("assistant") && agents.contains("Ready"),
        "{agents}"
    );
    let status = folder.run("kaos", &["status"])?.ok()?.stdout;
    ensure!(status.matches(" Ready ").count() == 3, "{status}");
    let first_uid = uid(&folder)?;

    let processes = up.processes();
    ensure!(
        processes.len() >= 4,
        "an agent, a proxy, tools and their Python: {processes:?}"
    );
    up.signal(Signal::KILL)?;
    for process in &processes {
        ensure!(
            process.ends_within(Duration::from_secs(10)),
            "an orphan: {process:?}"
        );
    }
    drop(up);

    let mut up = folder.up(&[])?;
    let printed = up.ready()?;
    chat(&folder, &printed)?;
    ensure!(uid(&folder)? == first_uid, "the objects are the same");
    let processes = up.processes();
    up.signal(Signal::INT)?;
    let ended = up.ended()?;
    ensure!(ended.status.success(), "Ctrl-C is no failure: {ended:?}");
    for process in &processes {
        ensure!(
            process.ends_within(Duration::from_secs(1)),
            "an orphan: {process:?}"
        );
    }
    Ok(())
}

#[test]
fn applying_the_same_file_again_changes_nothing() -> Result<()> {
    let folder = Folder::new()?;
    folder.up(&["samples/quickstart.yaml"])?.ready()?;
    let mut up = folder.up(&["samples/quickstart.yaml"])?;
    let printed = up.ready()?;
    ensure!(printed.matches(" unchanged").count() == 3, "{printed}");
    Ok(())
}

#[test]
fn down_stops_an_instance_and_its_processes() -> Result<()> {
    let folder = Folder::new()?;
    let mut up = folder.up(&["samples/quickstart.yaml"])?;
    up.ready()?;
    let processes = up.processes();
    let down = folder.run("kaos", &["down"])?.ok()?;
    ensure!(down.stderr.contains("stopped"), "{down:?}");
    ensure!(up.ended()?.status.success());
    for process in &processes {
        ensure!(
            process.ends_within(Duration::from_secs(1)),
            "an orphan: {process:?}"
        );
    }
    let again = folder.run("kaos", &["down"])?.ok()?;
    ensure!(again.stderr.contains("nothing runs"), "{again:?}");
    Ok(())
}

#[test]
fn logs_are_those_of_the_resource() -> Result<()> {
    let folder = Folder::new()?;
    let mut up = folder.up(&["samples/quickstart.yaml"])?;
    up.ready()?;
    for resource in ["calculator", "mcpserver/calculator", "agent/assistant", "models"] {
        folder
            .run("kaos", &["logs", resource])?
            .ok()
            .with_context(|| resource.to_owned())?;
    }
    let logs = folder.run("kaos", &["logs", "agent/assistant"])?.ok()?.stdout;
    ensure!(!logs.trim().is_empty(), "an agent says that it has started");
    let enough = folder.shell("kaos logs agent/assistant | true")?.ok()?;
    ensure!(
        !enough.stderr.contains("error") && !enough.stderr.contains("panicked"),
        "{enough:?}"
    );
    let unknown = folder.run("kaos", &["logs", "nobody"])?.failed()?;
    ensure!(
        unknown.contains("nothing is called nobody in namespace default"),
        "{unknown}"
    );
    Ok(())
}

#[test]
fn a_changed_tool_is_used_after_applying_it() -> Result<()> {
    let folder = Folder::new()?;
    let mut up = folder.up(&["samples/quickstart.yaml"])?;
    let printed = up.ready()?;
    chat(&folder, &printed)?;
    let changed = std::fs::read_to_string(folder.path().join("samples/quickstart.yaml"))?
        .replace("return a * b", "return f\"{a * b} exactly\"")
        .replace("-> int:", "-> str:");
    folder.write("changed.yaml", &changed)?;
    folder
        .kubectl(&[
            "apply",
            "--server-side",
            "--force-conflicts",
            "-f",
            "changed.yaml",
        ])?
        .ok()?;
    folder
        .kubectl(&[
            "rollout",
            "status",
            "deployment/mcpserver-calculator",
            "--timeout=60s",
        ])?
        .ok()?;
    folder
        .kubectl(&[
            "wait",
            "--for=condition=Ready",
            "agent/assistant",
            "--timeout=60s",
        ])?
        .ok()?;
    let answer = chat(&folder, &printed)?;
    ensure!(answer.stdout.contains("7006652 exactly"), "{answer:?}");
    Ok(())
}

#[test]
fn a_conversation_is_held_on_a_terminal() -> Result<()> {
    let folder = Folder::new()?;
    let mut up = folder.up(&["samples/quickstart.yaml"])?;
    up.ready()?;
    // `script` (util-linux) gives the command a terminal; its own standard input is what is typed.
    let typed = "printf 'What is 2 times 3?\\nWhat is 4 times 5?\\n'";
    let said = folder
        .shell(&format!("{typed} | script -qec 'kaos chat assistant' /dev/null"))?
        .ok()?
        .stdout;
    for part in ["Ctrl-D ends", "answered: 6", "answered: 20"] {
        ensure!(said.contains(part), "no {part:?} in:\n{said}");
    }
    let piped = folder
        .shell("echo 'What is 6 times 7?' | kaos chat assistant")?
        .ok()?
        .stdout;
    ensure!(piped.contains("answered: 42"), "{piped}");
    Ok(())
}
