//! The test binaries of the workspace: built once with everything else, then run one by one.
//!
//! They are run directly and not by `cargo test --package`, which would build the dependencies again with
//! the features of that package alone.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use crate::process;
use crate::report::{Skip, Tally};
use crate::workspace::Workspace;

/// One test binary.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Suite {
    /// The folder of its package under the root, `crates/node` for example, and the target.
    pub(crate) name: String,
    /// The folder of its package, in which tests expect to run.
    folder: PathBuf,
    executable: PathBuf,
}

/// Every test binary of the workspace.
#[derive(Clone, Debug)]
pub(crate) struct Suites(Vec<Suite>);

/// A line of cargo's `--message-format=json`, as far as it matters here.
#[derive(Deserialize)]
struct Message {
    reason: String,
    manifest_path: Option<PathBuf>,
    target: Option<Target>,
    profile: Option<Profile>,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

impl Suites {
    /// Builds everything in the workspace, tests and programs.
    pub(crate) fn build(workspace: &Workspace) -> Result<Self> {
        let mut command = workspace.cargo();
        command
            .args(["build", "--workspace", "--all-targets", "--locked"])
            .arg("--message-format=json-render-diagnostics")
            .stdout(Stdio::piped());
        let line = process::display(&command);
        let mut child = command
            .spawn()
            .with_context(|| format!("cannot start `{line}`"))?;
        let output = child.stdout.take().context("the output is piped")?;
        let mut suites = BTreeSet::new();
        for message in BufReader::new(output).lines() {
            let message: Message = serde_json::from_str(&message?).context("cargo printed no JSON")?;
            suites.extend(Suite::of(workspace, message));
        }
        let status = child.wait()?;
        ensure!(status.success(), "`{line}` failed: {status}");
        Ok(Self(suites.into_iter().collect()))
    }

    /// Runs all but those of the packages in `except`.
    pub(crate) fn run_except(&self, except: &[&str]) -> Result<Tally> {
        let mut tally = Tally::default();
        for suite in &self.0 {
            if !except.iter().any(|package| suite.is_of(package)) {
                tally.add(suite.run(&[])?);
            }
        }
        Ok(tally)
    }

    /// Runs those of the package in a folder of the workspace, with variables set.
    pub(crate) fn run(&self, package: &str, variables: &[(&str, PathBuf)]) -> Result<Tally> {
        let mut tally = Tally::default();
        for suite in self.0.iter().filter(|suite| suite.is_of(package)) {
            tally.add(suite.run(variables)?);
        }
        if tally.total() == 0 {
            bail!("{package} has no tests, and must have some");
        }
        Ok(tally)
    }
}

impl Suite {
    fn of(workspace: &Workspace, message: Message) -> Option<Self> {
        if message.reason != "compiler-artifact" || !message.profile?.test {
            return None;
        }
        let (target, executable) = (message.target?, message.executable?);
        let folder = message.manifest_path?.parent()?.to_path_buf();
        let package = folder
            .strip_prefix(&workspace.root)
            .ok()?
            .to_string_lossy()
            .into_owned();
        let kind = target.kind.first()?;
        let name = if kind == "test" {
            format!("{package} {}", target.name)
        } else {
            format!("{package} {kind}")
        };
        Some(Self {
            name,
            folder,
            executable,
        })
    }

    fn is_of(&self, package: &str) -> bool {
        self.name.split(' ').next() == Some(package)
    }

    /// Runs it, its output passed on, and reads the numbers from what it prints.
    fn run(&self, variables: &[(&str, PathBuf)]) -> Result<Tally> {
        println!("--- {}", self.name);
        let mut command = Command::new(&self.executable);
        command
            .current_dir(&self.folder)
            .env("CARGO_MANIFEST_DIR", &self.folder)
            .envs(variables.iter().map(|(name, value)| (name, value)));
        run_tests(&mut command, &mut std::io::stdout()).with_context(|| self.name.clone())
    }
}

/// The documentation tests of the workspace.
pub(crate) fn run_documentation_tests(workspace: &Workspace) -> Result<Tally> {
    let mut command = workspace.cargo();
    command.args(["test", "--workspace", "--doc", "--locked", "--quiet"]);
    run_tests(&mut command, &mut std::io::stdout())
}

/// Runs something that prints as Rust's test runner does, and passes on what it prints.
fn run_tests(command: &mut Command, shown: &mut impl Write) -> Result<Tally> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot be started")?;
    let output = child.stdout.take().context("the output is piped")?;
    let mut reader = Reader::default();
    let mut lines = BufReader::new(output);
    let mut line = Vec::new();
    // Not `lines()`: a test may print what is not UTF-8.
    while lines.read_until(b'\n', &mut line)? > 0 {
        shown.write_all(&line)?;
        reader.read(String::from_utf8_lossy(&line).trim_end());
        line.clear();
    }
    let status = child.wait()?;
    let tally = reader.finish()?;
    // A runner that fails without a failed test was killed, or could not run.
    ensure!(status.success() || tally.failed > 0, "{status}");
    Ok(tally)
}

/// Reads the output of Rust's test runner.
#[derive(Default)]
struct Reader {
    tally: Tally,
    summaries: usize,
    ignored: usize,
}

impl Reader {
    fn read(&mut self, line: &str) {
        if let Some(summary) = line.strip_prefix("test result: ") {
            self.summaries += 1;
            let number = |what: &str| -> usize {
                summary
                    .split(['.', ';'])
                    .find_map(|part| part.trim().strip_suffix(what)?.trim().parse().ok())
                    .unwrap_or_default()
            };
            self.tally.passed += number("passed");
            self.tally.failed += number("failed");
            self.ignored += number("ignored");
        } else if let Some((name, reason)) = line
            .strip_prefix("test ")
            .and_then(|test| test.split_once(" ... ignored, "))
        {
            self.tally.skipped.push(Skip {
                what: name.to_owned(),
                tests: 1,
                reason: reason.to_owned(),
            });
        }
    }

    fn finish(self) -> Result<Tally> {
        ensure!(self.summaries > 0, "the tests ended without a summary");
        let stated = self.tally.skipped.len();
        ensure!(
            stated == self.ignored,
            "{} tests are ignored, {stated} of them with a reason",
            self.ignored
        );
        Ok(self.tally)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Tally> {
        let mut reader = Reader::default();
        text.lines().for_each(|line| reader.read(line));
        reader.finish()
    }

    #[test]
    fn the_numbers_are_the_runners_own() {
        let tally = read(
            "running 3 tests\ntest a ... ok\ntest b ... FAILED\ntest c ... ignored, needs a moon\n\n\
             test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 4 filtered out; finished in 0.31s",
        )
        .expect("it is complete");
        assert_eq!((tally.passed, tally.failed), (1, 1));
        assert_eq!(
            tally.skipped,
            [Skip {
                what: "c".into(),
                tests: 1,
                reason: "needs a moon".into()
            }]
        );
    }

    #[test]
    fn a_runner_that_died_is_not_taken_for_one_that_passed() {
        assert!(read("running 3 tests\ntest a ... ok").is_err());
        let mut died = Command::new("sh");
        died.args([
            "-c",
            "echo 'test result: ok. 1 passed; 0 failed; 0 ignored;'; exit 101",
        ]);
        // Not shown: whoever runs this test would count it.
        assert!(run_tests(&mut died, &mut std::io::sink()).is_err());
    }

    #[test]
    fn a_test_ignored_without_a_reason_is_an_error() {
        let error = read("test c ... ignored\ntest result: ok. 0 passed; 0 failed; 1 ignored; 0 measured");
        assert_eq!(
            error.expect_err("no reason").to_string(),
            "1 tests are ignored, 0 of them with a reason"
        );
    }

    #[test]
    fn only_test_binaries_are_suites() {
        let workspace = Workspace {
            root: "/w".into(),
            cache: "/c".into(),
        };
        let message = |test: bool| {
            let text = format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"/w/crates/a/Cargo.toml","executable":"/t/a",
                "target":{{"name":"main","kind":["test"]}},"profile":{{"test":{test}}}}}"#
            );
            serde_json::from_str::<Message>(&text).expect("a message")
        };
        let suite = Suite::of(&workspace, message(true)).expect("a suite");
        assert_eq!(suite.name, "crates/a main");
        assert!(suite.is_of("crates/a") && !suite.is_of("crates"));
        assert_eq!(Suite::of(&workspace, message(false)), None);
    }
}
