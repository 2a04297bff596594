//! Crash at every write: the controllers of this project, run on the embedded server in simulated time and
//! disturbed in every way that a cluster may disturb them.
//!
//! A sample of the cases runs by default; `KAOS_PERTURB_FULL=1` runs all, and `KAOS_PERTURB_BRIEF=1` a few
//! cases of a few scenarios, for the inner loop. A failed case prints a line that
//! runs it again, alone, with every request: `KAOS_PERTURB_REPLAY='…' cargo test -p kaos-perturb-tests`.
//! Words on the command line choose scenarios by name. `KAOS_PERTURB_REPORT` names a file for the results as
//! JSON.
#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "only tests are here, and what goes wrong in them fails the test with a message"
)]

mod fields;
mod file;
mod ready;
mod report;
mod subject;
mod tools;

use std::{env, process::ExitCode, thread, time::Instant};

use kaos_perturb::{
    Case,
    sweep::{self, Sample},
};

/// What fits every run: a few minutes. All cases together take about five times as long.
const SAMPLE: Sample = Sample {
    crashes: 2,
    answers: 2,
    watches: 2,
    away: 1,
    fields: 10,
};

/// What fits the inner loop: half a minute.
const BRIEF: Sample = Sample {
    crashes: 1,
    answers: 1,
    watches: 1,
    away: 0,
    fields: 1,
};
/// A brief run has one scenario of so many.
const ONE_OF: usize = 20;

fn main() -> ExitCode {
    let subject = subject::controllers();
    if let Ok(text) = env::var("KAOS_PERTURB_REPLAY") {
        let case: Case =
            serde_json::from_str(&text).expect("KAOS_PERTURB_REPLAY is a case, as it was printed");
        let (trace, violations) = sweep::replay(&subject, &case);
        print!("{trace}");
        return report::replayed(&violations);
    }
    let words: Vec<String> = env::args()
        .skip(1)
        .filter(|word| !word.starts_with('-'))
        .collect();
    let mut scenarios = file::scenarios();
    let missing = fields::missing(&scenarios);
    assert!(missing.is_empty(), "{missing:#?}");
    scenarios.retain(|scenario| {
        words.is_empty() || words.iter().any(|word| scenario.name.contains(word.as_str()))
    });
    if env::args().any(|word| word == "--list") {
        scenarios
            .iter()
            .for_each(|scenario| println!("{}: test", scenario.name));
        return ExitCode::SUCCESS;
    }
    let is_set = |name| env::var_os(name).is_some();
    let sample = match (is_set("KAOS_PERTURB_FULL"), is_set("KAOS_PERTURB_BRIEF")) {
        (true, _) => Sample::ALL,
        (false, true) => BRIEF,
        (false, false) => SAMPLE,
    };
    let all = scenarios.len();
    if is_set("KAOS_PERTURB_BRIEF") {
        scenarios = scenarios.into_iter().step_by(ONE_OF).collect();
    }
    let left_out = all - scenarios.len();
    let threads = thread::available_parallelism().map_or(1, Into::into);
    println!("running {} tests", scenarios.len());
    let began = Instant::now();
    let outcomes = sweep::sweep(&subject, scenarios, sample, threads, &report::done);
    report::report(&subject, &outcomes, left_out, began.elapsed())
}
