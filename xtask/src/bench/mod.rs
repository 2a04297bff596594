//! `cargo xtask bench`: the figures the project promises, measured on the release build.
//!
//! Measurements are never part of the tests: a busy machine would fail them.

mod agent;
mod cluster;
mod instance;
mod load;
mod local;
mod proxy;
mod soak;
mod tools;

use std::fs;
use std::path::PathBuf;
use std::thread;

use anyhow::{Context, Result};
use clap::ValueEnum;

use crate::process;
use crate::workspace::Workspace;

/// What to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// `kaos up` on this machine.
    Local,
    /// The operator on a real API server.
    Cluster,
    /// The model proxy, beside LiteLLM where there is one.
    Proxy,
    /// The tool server, beside FastMCP.
    Tools,
    /// The agent, beside one of Pydantic AI.
    Agent,
    /// Memory of `kaos up` under a load of everything at once.
    Soak,
}

/// How to measure.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// Measure only this
    #[arg(long, value_enum)]
    only: Option<Part>,
    /// How many seconds the operator is watched while nothing happens
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    idle: u64,
    /// How many seconds `kaos up` is under load
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    soak: u64,
    /// Measure this binary, as that of an earlier version, instead of building one
    #[arg(long, value_name = "FILE")]
    kaos: Option<PathBuf>,
}

/// A row of the result.
struct Figure {
    what: String,
    measured: String,
    target: &'static str,
    holds: bool,
}

/// Measures the release binary and prints a table.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let build = |package: &str| {
        let arguments = ["build", "--release", "--locked", "--package", package];
        process::run(workspace.cargo().args(arguments))
    };
    let kaos = match &options.kaos {
        Some(kaos) => std::path::absolute(kaos)?,
        None => {
            build("kaos")?;
            workspace.kaos_binary("release")
        }
    };
    let wanted = |part| options.only.is_none_or(|only| only == part);
    let mut figures = Vec::new();
    if wanted(Part::Local) {
        figures.extend(local::measure(workspace, &kaos)?);
    }
    if wanted(Part::Cluster) {
        build("kaos-load")?;
        figures.extend(cluster::measure(workspace, &kaos, options.idle)?);
    }
    if wanted(Part::Proxy) {
        figures.extend(proxy::measure(workspace, &kaos)?);
    }
    if wanted(Part::Tools) {
        figures.extend(tools::measure(workspace, &kaos)?);
    }
    if wanted(Part::Agent) {
        figures.extend(agent::measure(workspace, &kaos)?);
    }
    if wanted(Part::Soak) {
        figures.extend(soak::measure(workspace, &kaos, options.soak)?);
    }
    println!("{}\n", machine()?);
    println!("| figure | measured | target | |\n|---|---|---|---|");
    for Figure {
        what,
        measured,
        target,
        holds,
    } in &figures
    {
        println!(
            "| {what} | {measured} | {target} | {} |",
            if *holds { "holds" } else { "MISSED" }
        );
    }
    Ok(())
}

/// The machine in one line.
fn machine() -> Result<String> {
    let read = |path: &str| fs::read_to_string(path).with_context(|| format!("cannot read {path}"));
    let (processors, memory) = (read("/proc/cpuinfo")?, read("/proc/meminfo")?);
    let field = |text: &str, name: &str| -> String {
        let line = text
            .lines()
            .find(|line| line.starts_with(name))
            .unwrap_or_default();
        line.split_once(':')
            .map_or("unknown", |(_, value)| value.trim())
            .to_owned()
    };
    let kib: f64 = field(&memory, "MemTotal")
        .trim_end_matches(" kB")
        .parse()
        .unwrap_or_default();
    Ok(format!(
        "{}, {} cores, {:.0} GiB of memory, Linux {}",
        field(&processors, "model name"),
        thread::available_parallelism()?,
        kib / 1024.0 / 1024.0,
        read("/proc/sys/kernel/osrelease")?.trim(),
    ))
}
