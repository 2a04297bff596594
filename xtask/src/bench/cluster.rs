//! The operator on a real API server with many Agents: `tests/load` does it and counts.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde::Deserialize;

use super::Figure;
use crate::cluster::{Cluster, ClusterLifetime, Level};
use crate::process;
use crate::tools::go;
use crate::workspace::Workspace;

/// What `tests/load` prints.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Measured {
    created_seconds: f64,
    ready_seconds: f64,
    creations: u32,
    writes_per_agent: f64,
    idle_seconds: u64,
    idle_writes: u32,
    agent_writes_after_annotation: u32,
    writes_after_annotation: u32,
    processor_seconds: f64,
    peak_mib: f64,
}

/// Measures it, with `idle` seconds in which nothing happens.
pub(super) fn measure(workspace: &Workspace, kaos: &Path, idle: u64) -> Result<Vec<Figure>> {
    let programs = go::cluster_programs(workspace)?.required()?;
    let cluster = Cluster::of_this_process(workspace)?;
    // Without Kubernetes' own controllers: what they cost is not the operator's.
    cluster.up(Level::Api, &programs, ClusterLifetime::TiedToThisProcess)?;
    let load = kaos.with_file_name("kaos-load");
    let text = process::output(
        Command::new(load)
            .arg("--kubeconfig")
            .arg(cluster.kubeconfig())
            .arg("--kaos")
            .arg(kaos)
            .arg(format!("--idle={idle}")),
    )?;
    eprintln!("{}", text.trim_end());
    let measured: Measured = serde_json::from_str(&text).context("tests/load printed no figures")?;
    Ok(figures(&measured))
}

fn figures(measured: &Measured) -> Vec<Figure> {
    let Measured {
        created_seconds: created,
        ready_seconds: ready,
        creations,
        writes_per_agent: writes,
        idle_seconds: idle,
        idle_writes,
        agent_writes_after_annotation: after,
        writes_after_annotation: all_after,
        processor_seconds: processor,
        peak_mib: peak,
    } = *measured;
    vec![
        Figure {
            what: "1,000 Agents, 20 ModelAPIs, 50 MCPServers, from the first to all ready".to_owned(),
            measured: format!(
                "{ready:.1} s, of which creating the resources {created:.1} s; {creations} objects made"
            ),
            target: "≤ 13 s",
            holds: ready <= 13.0,
        },
        Figure {
            what: "writes per Agent beyond the creation of its objects".to_owned(),
            measured: format!("{writes:.2}"),
            target: "≤ 3",
            holds: writes <= 3.0,
        },
        Figure {
            what: format!("writes in {idle} idle seconds"),
            measured: idle_writes.to_string(),
            target: "0",
            holds: idle_writes == 0,
        },
        Figure {
            what: "writes on Agents after an annotation on each ModelAPI".to_owned(),
            measured: format!("{after} ({all_after} in all)"),
            target: "0",
            holds: after == 0,
        },
        Figure {
            what: "operator: resident memory at its peak".to_owned(),
            measured: format!("{peak:.0} MiB"),
            target: "≤ 40 MiB",
            holds: peak <= 40.0,
        },
        Figure {
            what: "operator: processor time until all is ready".to_owned(),
            measured: format!("{processor:.1} s"),
            target: "≤ 3 s",
            holds: processor <= 3.0,
        },
    ]
}
