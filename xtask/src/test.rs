//! `cargo xtask test`: everything that must hold before a change is taken.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, ensure};

use crate::cluster::{self, Cluster, ClusterLifetime, Level};
use crate::generate;
use crate::process;
use crate::report::{Done, Report, Skip, Tally};
use crate::suites::{self, Suites};
use crate::tools::go::{self, ClusterPrograms};
use crate::tools::{Tool, cargo_deny, node, python};
use crate::workspace::Workspace;
use crate::{check, workspace};

/// The tests of the built binary.
pub(crate) const PRODUCT: &str = "tests/product";
/// The packages whose tests run on the embedded and on a real API server.
const BEHAVIOUR: [&str; 2] = ["tests/behaviour", "crates/gateway"];
/// The controllers, disturbed at every write.
const PERTURB: &str = "tests/perturb";

/// The steps that need the build.
const AFTER_BUILD: [&str; 6] = [
    "generated files",
    "tests",
    "documentation tests",
    "embedded API server",
    "real API server",
    "product",
];

/// What to run beyond, or short of, the usual.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub(crate) struct Options {
    /// Also what does not fit every run: known vulnerabilities of dependencies (a database is downloaded), every
    /// perturbation of the controllers, and the product's tests on the release build
    #[arg(long)]
    full: bool,
    /// Leave out the tests on a real API server; refused in CI
    #[arg(long)]
    no_real: bool,
}

/// Runs it.
pub(crate) fn run(workspace: &Workspace, options: Options) -> Result<()> {
    ensure!(
        !(options.no_real && workspace::in_ci()),
        "--no-real is not for CI, where nothing may be skipped"
    );
    let mut report = Report::default();
    report.step("format", || check::format(workspace));
    report.step("clippy", || check::clippy(workspace));
    report.step("licences, bans, sources", || {
        deny(workspace, &["bans", "licenses", "sources"])
    });
    if options.full {
        report.step("advisories", || deny(workspace, &["advisories"]));
    }
    match report.step_with("build", || Ok((Done::Ok, Suites::build(workspace)?))) {
        Some(suites) => run_built(workspace, options, &mut report, &suites),
        None => report.not_run(&AFTER_BUILD, "build"),
    }
    report.finish()
}

fn run_built(workspace: &Workspace, options: Options, report: &mut Report, suites: &Suites) {
    let kaos = workspace.kaos_binary("debug");
    report.step("generated files", || {
        generate::run(workspace, generate::Mode::Check, || Ok(kaos.clone()))?;
        Ok(Done::Ok)
    });
    report.step("tests", || {
        let elsewhere: Vec<&str> = BEHAVIOUR.into_iter().chain([PRODUCT]).collect();
        Ok(Done::Tested(suites.run_except(&elsewhere)?))
    });
    report.step("documentation tests", || {
        Ok(Done::Tested(suites::run_documentation_tests(workspace)?))
    });
    let mut embedded = 0;
    report.step("embedded API server", || {
        let tally = run_behaviour(suites, &[])?;
        embedded = tally.total();
        Ok(Done::Tested(tally))
    });
    let mut programs = None;
    report.step("real API server", || {
        let skipped = |reason: &str| {
            Done::Skipped(Skip {
                what: "the behaviour suite on a real API server".into(),
                tests: embedded,
                reason: reason.into(),
            })
        };
        if options.no_real {
            return Ok(skipped("--no-real was given"));
        }
        match go::cluster_programs(workspace)? {
            Tool::Ready(built) => {
                let tally = run_on_real_server(workspace, suites, &built)?;
                programs = Some(built);
                ensure!(
                    tally.total() == embedded,
                    "{} tests ran on the real server and {embedded} on the embedded one",
                    tally.total()
                );
                Ok(Done::Tested(tally))
            }
            Tool::Missing(reason) => Ok(skipped(&reason)),
        }
    });
    report.step("product", || {
        Ok(Done::Tested(run_product(
            workspace,
            suites,
            kaos,
            programs.as_ref(),
        )?))
    });
    if options.full {
        report.step("every perturbation", || {
            Ok(Done::Tested(
                suites.run(PERTURB, &[("KAOS_PERTURB_FULL", PathBuf::from("1"))])?,
            ))
        });
        report.step("product, release build", || {
            process::run(
                workspace
                    .cargo()
                    .args(["build", "--release", "--locked", "--package", "kaos"]),
            )?;
            let kaos = workspace.kaos_binary("release");
            Ok(Done::Tested(run_product(
                workspace,
                suites,
                kaos,
                programs.as_ref(),
            )?))
        });
    }
}

fn deny(workspace: &Workspace, checks: &[&str]) -> Result<Done> {
    let mut command = Command::new(cargo_deny::cargo_deny(workspace)?);
    command
        .current_dir(&workspace.root)
        .args(["--locked", "check", "--hide-inclusion-graph"]);
    process::run(command.args(checks))?;
    Ok(Done::Ok)
}

fn run_on_real_server(workspace: &Workspace, suites: &Suites, programs: &ClusterPrograms) -> Result<Tally> {
    // Not the clone's own cluster, which somebody may be using.
    let cluster = Cluster::of_this_process(workspace)?;
    cluster.up(Level::Controllers, programs, ClusterLifetime::TiedToThisProcess)?;
    eprintln!("{}", cluster::describe(&cluster, programs)?);
    run_behaviour(suites, &[("KAOS_TEST_KUBECONFIG", cluster.kubeconfig())])
}

fn run_behaviour(suites: &Suites, variables: &[(&str, PathBuf)]) -> Result<Tally> {
    let mut tally = Tally::default();
    for package in BEHAVIOUR {
        tally.add(suites.run(package, variables)?);
    }
    Ok(tally)
}

fn run_product(
    workspace: &Workspace,
    suites: &Suites,
    kaos: PathBuf,
    programs: Option<&ClusterPrograms>,
) -> Result<Tally> {
    let mut variables = vec![("KAOS_BIN", kaos)];
    if let Some(programs) = programs {
        variables.push(("KUBECTL", programs.kubectl.clone()));
    }
    let python = python::environment(workspace, "tests/product/requirements.txt")?.required()?;
    variables.push(("KAOS_TEST_PYTHON", python));
    let node = node::modules(workspace, "tests/product/node")?.required()?;
    variables.push(("KAOS_TEST_NODE", node));
    // What tool servers install is kept from run to run.
    variables.push(("KAOS_CACHE_DIR", workspace.cache.clone()));
    // A fresh one: the operator is to find nothing of KAOS.
    let cluster = Cluster::of_this_process(workspace)?;
    if let Some(programs) = programs {
        cluster.up(Level::Controllers, programs, ClusterLifetime::TiedToThisProcess)?;
        variables.push(("KAOS_TEST_KUBECONFIG", cluster.kubeconfig()));
    }
    suites.run(PRODUCT, &variables)
}
