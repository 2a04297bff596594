//! Every command of the documents runs.
//!
//! Code blocks marked `sh` are run in order in one folder; a line that starts with `kaos up`,
//! `cargo run --release -- up` or `kaos serve operator` is kept running for those after it, as in a second terminal,
//! and what a line exports holds for those after it. The two commands that set a machine up are the ones this suite
//! itself was started by.

use anyhow::{Context, Result, ensure};
use kaos_product::{Cluster, Folder, repository};

/// The blocks of a language, each as its lines.
fn blocks<'a>(document: &'a str, language: &str) -> Vec<Vec<&'a str>> {
    let mut blocks = Vec::new();
    let mut open: Option<Vec<&str>> = None;
    for line in document.lines() {
        match (line.strip_prefix("```"), &mut open) {
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some(found), None) if found.trim() == language => open = Some(Vec::new()),
            (None, Some(block)) => block.push(line),
            _ => {}
        }
    }
    blocks
}

/// The lines of the blocks marked `sh`.
fn commands(document: &str) -> Vec<&str> {
    let lines = blocks(document, "sh").into_iter().flatten().map(str::trim);
    lines
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .collect()
}

fn runs(document: &str) -> Result<()> {
    runs_in(&Folder::new()?, "", document)
}

/// As [`runs`], in a folder and a shell where something was done before.
fn runs_in(folder: &Folder, before: &str, document: &str) -> Result<()> {
    let mut shell = before.to_owned();
    let text = std::fs::read_to_string(repository().join(document))?;
    let commands = commands(&text);
    let shows = !blocks(&text, "yaml").is_empty();
    ensure!(
        shows || !commands.is_empty(),
        "{document} shows neither commands nor manifests"
    );
    let mut running = None;
    for command in commands {
        let line = command.replace("cargo run --release -- ", "kaos ");
        if line.starts_with("cargo xtask ") || line.starts_with("git clone ") || line.starts_with("cd ") {
            continue;
        }
        let stays = !line.contains(" --detach");
        if let Some(arguments) = line.strip_prefix("kaos up ").filter(|_| stays) {
            drop(running.take());
            let mut up = folder.up(&arguments.split_whitespace().collect::<Vec<_>>())?;
            up.ready().with_context(|| format!("{document}: {command}"))?;
            running = Some(up);
            continue;
        }
        if let Some(flags) = line.strip_prefix("kaos serve operator") {
            drop(running.take());
            // Without probes: their port is one for the whole machine, whose tests run side by side.
            let mut arguments = vec!["serve", "operator", "--health-probe-bind-address=0"];
            arguments.extend(flags.split_whitespace());
            let mut operator = folder.start_with(&arguments, &[("KUBECONFIG", ".kaos/kubeconfig")])?;
            operator
                .prints("controllers started")
                .with_context(|| format!("{document}: {command}"))?;
            running = Some(operator);
            continue;
        }
        if line.starts_with("export ") {
            shell.extend([line.as_str(), "; "]);
            continue;
        }
        folder
            .shell(&format!("{shell}{line}"))?
            .ok()
            .with_context(|| format!("{document}: {command}"))?;
    }
    // A manifest that is shown is one that the API takes.
    if running.is_none() && shows {
        let mut up = folder.up(&[])?;
        up.prints("API:")?;
        running = Some(up);
    }
    for manifest in blocks(&text, "yaml") {
        folder.write("shown.yaml", &manifest.join("\n"))?;
        let arguments = ["apply", "--dry-run=server", "-f", "shown.yaml"];
        folder
            .kubectl(&arguments)?
            .ok()
            .with_context(|| format!("{document}: {manifest:#?}"))?;
    }
    drop(running);
    Ok(())
}

#[test]
fn the_commands_of_the_readme_run() -> Result<()> {
    runs("README.md")
}

#[test]
fn the_commands_of_getting_started_run() -> Result<()> {
    runs("docs/getting-started.md")
}

#[test]
fn the_commands_of_laptop_to_cluster_run() -> Result<()> {
    runs("docs/laptop-to-cluster.md")
}

#[test]
fn the_commands_of_the_agents_run() -> Result<()> {
    runs("docs/agents.md")
}

#[test]
fn the_manifests_of_the_models_are_taken() -> Result<()> {
    runs("docs/models.md")
}

#[test]
fn the_commands_of_the_tools_run() -> Result<()> {
    runs("docs/tools.md")
}

#[test]
fn the_commands_of_the_resources_run() -> Result<()> {
    runs("docs/resources.md")
}

#[test]
fn the_commands_of_the_operator_run_on_a_cluster() -> Result<()> {
    let folder = Folder::new()?;
    let _cluster = Cluster::embedded(&folder)?;
    runs_in(
        &folder,
        "export KUBECONFIG=.kaos/kubeconfig; ",
        "docs/operator.md",
    )
}

#[test]
fn cargo_run_is_kaos() -> Result<()> {
    // In the profile that is built already: which binary is run does not depend on it.
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = std::process::Command::new(cargo)
        .args(["run", "--quiet", "--locked", "--", "version"])
        .current_dir(repository())
        .output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success() && said.starts_with("kaos "), "{output:?}");
    Ok(())
}
