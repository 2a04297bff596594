//! `cargo xtask check`: the inner loop. Format, lints and every test that needs no other program.

use anyhow::Result;

use crate::process;
use crate::report::{Done, Report};
use crate::suites::Suites;
use crate::test::PRODUCT;
use crate::workspace::Workspace;

/// Runs it.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let mut report = Report::default();
    report.step("format", || format(workspace));
    report.step("clippy", || clippy(workspace));
    match report.step_with("build", || Ok((Done::Ok, Suites::build(workspace)?))) {
        Some(suites) => {
            report.step("tests", || Ok(Done::Tested(suites.run_except(&[PRODUCT])?)));
        }
        None => report.not_run(&["tests"], "build"),
    }
    report.finish()
}

/// Whether the sources are formatted.
pub(crate) fn format(workspace: &Workspace) -> Result<Done> {
    process::run(workspace.cargo().args(["fmt", "--all", "--check"]))?;
    Ok(Done::Ok)
}

/// Whether clippy has nothing to say.
pub(crate) fn clippy(workspace: &Workspace) -> Result<Done> {
    let arguments = [
        "clippy",
        "--workspace",
        "--all-targets",
        "--locked",
        "--quiet",
        "--",
        "-D",
        "warnings",
    ];
    process::run(workspace.cargo().args(arguments))?;
    Ok(Done::Ok)
}
