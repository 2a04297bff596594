//! What a task did: its steps with their times, what was tested, and what was not and why.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::workspace::in_ci;

/// Numbers of tests, as their runners print them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Tests that passed.
    pub(crate) passed: usize,
    /// Tests that failed.
    pub(crate) failed: usize,
    /// Tests that did not run, each with the reason it states.
    pub(crate) skipped: Vec<Skip>,
}

/// Tests that did not run for one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Skip {
    /// The test, or the group of tests.
    pub(crate) what: String,
    /// How many tests that is.
    pub(crate) tests: usize,
    /// Why.
    pub(crate) reason: String,
}

impl Tally {
    /// How many tests there are.
    pub(crate) fn total(&self) -> usize {
        self.passed + self.failed + self.skipped.iter().map(|skip| skip.tests).sum::<usize>()
    }

    /// Adds the numbers of another run.
    pub(crate) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped.extend(other.skipped);
    }
}

/// How a step ended, if nothing went wrong with it.
#[derive(Debug)]
pub(crate) enum Done {
    /// It has no tests to count.
    Ok,
    /// It ran tests, some of which may have failed.
    Tested(Tally),
    /// It could not run here. In CI that is a failure.
    Skipped(Skip),
}

struct Step {
    name: &'static str,
    outcome: Outcome,
    time: Duration,
}

enum Outcome {
    Done(Done),
    Failed(String),
    NotRun(&'static str),
}

/// The steps of a task so far.
#[derive(Default)]
pub(crate) struct Report {
    steps: Vec<Step>,
}

impl Report {
    /// Runs a step. Says whether it succeeded.
    pub(crate) fn step(&mut self, name: &'static str, work: impl FnOnce() -> Result<Done>) -> bool {
        self.step_with(name, || Ok((work()?, ()))).is_some()
    }

    /// Runs a step that gives something to later steps. `None` if it failed.
    pub(crate) fn step_with<T>(
        &mut self,
        name: &'static str,
        work: impl FnOnce() -> Result<(Done, T)>,
    ) -> Option<T> {
        eprintln!("\n=== {name}");
        let started = Instant::now();
        let (outcome, value) = match work() {
            Ok((done, value)) => (Outcome::Done(done), Some(value)),
            Err(error) => {
                eprintln!("{name} failed: {error:#}");
                (Outcome::Failed(format!("{error:#}")), None)
            }
        };
        let step = Step {
            name,
            outcome,
            time: started.elapsed(),
        };
        let value = value.filter(|_| !step.failed());
        self.steps.push(step);
        value
    }

    /// Notes steps that cannot run because one before them failed.
    pub(crate) fn not_run(&mut self, names: &[&'static str], because: &'static str) {
        for name in names {
            self.steps.push(Step {
                name,
                outcome: Outcome::NotRun(because),
                time: Duration::ZERO,
            });
        }
    }

    /// Prints the table and the sums.
    ///
    /// # Errors
    /// When a step failed, did not run, or was skipped in CI.
    pub(crate) fn finish(self) -> Result<()> {
        println!("\n{}", self.render());
        let failed: Vec<&str> = self
            .steps
            .iter()
            .filter(|step| step.failed())
            .map(|step| step.name)
            .collect();
        if !failed.is_empty() {
            bail!("failed: {}", failed.join(", "));
        }
        Ok(())
    }

    fn render(&self) -> String {
        let width = self
            .steps
            .iter()
            .map(|step| step.name.len())
            .max()
            .unwrap_or_default();
        let mut lines = Vec::new();
        let mut sum = Tally::default();
        for step in &self.steps {
            let seconds = step.time.as_secs_f64();
            lines.push(format!(
                "{:width$}  {seconds:>7.1} s  {}",
                step.name,
                step.describe()
            ));
            match &step.outcome {
                Outcome::Done(Done::Tested(tally)) => sum.add(tally.clone()),
                Outcome::Done(Done::Skipped(skip)) => sum.skipped.push(skip.clone()),
                _ => {}
            }
        }
        for Skip { what, tests, reason } in &sum.skipped {
            lines.push(format!("skipped: {what} ({tests}): {reason}"));
        }
        let skipped: usize = sum.skipped.iter().map(|skip| skip.tests).sum();
        lines.push(format!(
            "{} passed, {} failed, {skipped} skipped",
            sum.passed, sum.failed
        ));
        lines.join("\n")
    }
}

impl Step {
    fn failed(&self) -> bool {
        match &self.outcome {
            Outcome::Done(Done::Ok) => false,
            Outcome::Done(Done::Tested(tally)) => tally.failed > 0,
            Outcome::Done(Done::Skipped(_)) => in_ci(),
            Outcome::Failed(_) | Outcome::NotRun(_) => true,
        }
    }

    fn describe(&self) -> String {
        match &self.outcome {
            Outcome::Done(Done::Ok) => "ok".to_owned(),
            Outcome::Done(Done::Tested(tally)) => {
                let verdict = if tally.failed == 0 { "ok" } else { "FAILED" };
                format!("{verdict}, {} of {} tests passed", tally.passed, tally.total())
            }
            Outcome::Done(Done::Skipped(_)) if in_ci() => {
                "FAILED: skipped, which CI does not allow".to_owned()
            }
            Outcome::Done(Done::Skipped(_)) => "skipped".to_owned(),
            Outcome::Failed(error) => format!("FAILED: {}", error.lines().next().unwrap_or_default()),
            Outcome::NotRun(because) => format!("NOT RUN: {because} failed"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(passed: usize, failed: usize) -> Tally {
        Tally {
            passed,
            failed,
            skipped: Vec::new(),
        }
    }

    #[test]
    fn the_last_line_sums_all_steps() {
        let mut report = Report::default();
        assert!(report.step("one", || Ok(Done::Tested(tally(3, 0)))));
        assert!(!report.step("two", || Ok(Done::Tested(tally(2, 1)))));
        assert_eq!(
            report.render().lines().last(),
            Some("5 passed, 1 failed, 0 skipped")
        );
        assert_eq!(
            report.finish().expect_err("a test failed").to_string(),
            "failed: two"
        );
    }

    #[test]
    fn a_skip_is_counted_and_its_reason_printed() {
        let mut report = Report::default();
        let skip = Skip {
            what: "real".into(),
            tests: 7,
            reason: "no go".into(),
        };
        report.step("real", || Ok(Done::Skipped(skip)));
        let text = report.render();
        assert!(text.contains("skipped: real (7): no go"), "{text}");
        assert!(text.ends_with("0 passed, 0 failed, 7 skipped"), "{text}");
    }

    #[test]
    fn what_did_not_run_is_a_failure() {
        let mut report = Report::default();
        report.step("build", || bail!("no"));
        report.not_run(&["tests"], "build");
        assert_eq!(
            report.finish().expect_err("nothing ran").to_string(),
            "failed: build, tests"
        );
    }
}
