//! The tasks of this workspace: `cargo xtask <task>`.
//!
//! It owns checks, tests against real servers, generated files and measurements. Nothing of it ships.

mod bench;
mod builtin_schemas;
mod check;
mod cluster;
mod external;
mod generate;
mod process;
mod report;
mod suites;
mod test;
mod tools;
mod workspace;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::{Parser, Subcommand};

use crate::cluster::{Cluster, ClusterLifetime, Level};
use crate::generate::Mode;
use crate::tools::go;
use crate::workspace::Workspace;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "The tasks of this workspace")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// The inner loop: format, lints, and every test that needs no other program
    Check,
    /// Everything: also licences, generated files, a real API server, and the built binary as its users run it
    Test(test::Options),
    /// Write the generated files
    Generate {
        /// Write nothing; fail if a file is out of date
        #[arg(long)]
        check: bool,
    },
    /// Measure the figures of the release build on this machine
    Bench(bench::Options),
    /// A real etcd, API server and kube-controller-manager for tests, on loopback ports
    #[command(subcommand)]
    Cluster(ClusterTask),
    /// Become a program that ends when the given process does
    #[command(hide = true)]
    Tied {
        /// The process to be tied to; it must be this one's parent
        parent: i32,
        /// The program to become, and its arguments
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
}

#[derive(Subcommand)]
enum ClusterTask {
    /// Start it, or what of it does not run, and wait until it answers
    Up {
        /// How much of Kubernetes to run
        #[arg(long, value_enum, default_value = "controllers")]
        level: Level,
        /// The folder of its state [default: one per clone, in the cache folder]
        #[arg(long)]
        dir: Option<PathBuf>,
    },
    /// End its processes and forget what it holds
    Down {
        /// The folder given to `up`
        #[arg(long)]
        dir: Option<PathBuf>,
    },
    /// Print the shell variables that lead to it: `eval "$(cargo xtask cluster env)"`
    Env {
        /// The folder given to `up`
        #[arg(long)]
        dir: Option<PathBuf>,
    },
}

fn main() -> ExitCode {
    match run(Arguments::parse().task) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(task: Task) -> Result<()> {
    if let Task::Tied { parent, command } = &task {
        let Some((program, arguments)) = command.split_first() else {
            bail!("no program is named")
        };
        return process::become_tied(*parent, program, arguments);
    }
    let workspace = Workspace::find()?;
    match task {
        Task::Check => check::run(&workspace),
        Task::Test(options) => test::run(&workspace, options),
        Task::Generate { check } => run_generate(&workspace, if check { Mode::Check } else { Mode::Write }),
        Task::Bench(options) => bench::run(&workspace, &options),
        Task::Cluster(task) => run_cluster_task(&workspace, task),
        Task::Tied { .. } => Ok(()),
    }
}

fn run_generate(workspace: &Workspace, mode: Mode) -> Result<()> {
    generate::run(workspace, mode, || {
        process::run(workspace.cargo().args(["build", "--quiet", "--package", "kaos"]))?;
        Ok(workspace.kaos_binary("debug"))
    })
}

fn run_cluster_task(workspace: &Workspace, task: ClusterTask) -> Result<()> {
    let cluster = |dir: Option<PathBuf>| -> Result<Cluster> {
        Ok(match dir {
            Some(dir) => Cluster::at(std::path::absolute(dir)?),
            None => Cluster::of_clone(workspace),
        })
    };
    match task {
        ClusterTask::Up { level, dir } => {
            let cluster = cluster(dir)?;
            let programs = go::cluster_programs(workspace)?.required()?;
            cluster.up(level, &programs, ClusterLifetime::UntilDown)?;
            eprintln!("{}", cluster::describe(&cluster, &programs)?);
        }
        ClusterTask::Down { dir } => {
            let was_there = cluster(dir)?.down()?;
            eprintln!(
                "{}",
                if was_there {
                    "the cluster is down"
                } else {
                    "there was no cluster"
                }
            );
        }
        ClusterTask::Env { dir } => {
            let cluster = cluster(dir)?;
            if !cluster.is_running()? {
                bail!("no cluster runs: start one with `cargo xtask cluster up`");
            }
            let programs = go::cluster_programs(workspace)?.required()?;
            cluster::print_env(&cluster, &programs);
        }
    }
    Ok(())
}
