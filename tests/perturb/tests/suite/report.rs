//! What a run prints, and leaves in a file.

use std::{collections::BTreeMap, env, fs, process::ExitCode, sync::Arc, time::Duration};

use kaos_perturb::{
    Subject, Violation, shrink,
    sweep::{Failure, Outcome},
};
use serde_json::json;

/// How many failures of one run are made small and printed whole.
const WHOLE: usize = 8;

/// Prints a scenario that is done as Rust's test runner prints a test.
pub(crate) fn done(outcome: &Outcome) {
    let result = if outcome.failures.is_empty() {
        "ok"
    } else {
        "FAILED"
    };
    println!("test {outcome} ... {result}");
    for unfired in outcome.unfired.iter().filter(|unfired| !is_expected(unfired)) {
        println!("    did not happen: {unfired}");
    }
    for failure in &outcome.failures {
        let fault = failure
            .case
            .fault
            .as_ref()
            .map_or("undisturbed".to_owned(), ToString::to_string);
        println!(
            "    {fault}: {}",
            failure.violations.first().map(String::as_str).unwrap_or_default()
        );
    }
}

/// Prints what failed, with the smallest case of each sort, and the counts of all scenarios but those left out.
pub(crate) fn report(
    subject: &Arc<Subject>,
    outcomes: &[Outcome],
    left_out: usize,
    took: Duration,
) -> ExitCode {
    let failures = groups(outcomes);
    for (number, (what, of_it)) in failures.iter().enumerate() {
        println!("\n{what}: {} cases", of_it.len());
        let Some(first) = of_it.iter().min_by_key(|failure| size(failure)) else {
            continue;
        };
        if number < WHOLE {
            let small = shrink::shrink(subject, &first.case, &first.oracles);
            let fault = first
                .case
                .fault
                .as_ref()
                .map_or("undisturbed".to_owned(), ToString::to_string);
            println!("  {}: {fault}", first.case.scenario.name);
            for violation in first.violations.iter().take(5) {
                println!("    {violation}");
            }
            println!(
                "  KAOS_PERTURB_REPLAY='{}'",
                json!(small).to_string().replace('\'', "'\\''")
            );
        }
    }
    let sum = |count: fn(&Outcome) -> usize| outcomes.iter().map(count).sum::<usize>();
    let mut classes = BTreeMap::<&str, usize>::new();
    for (class, count) in outcomes.iter().flat_map(|outcome| &outcome.classes) {
        *classes.entry(class).or_default() += count;
    }
    println!();
    for (class, count) in &classes {
        println!("{class}: {count}");
    }
    let (cases, fired) = (sum(|outcome| outcome.cases), sum(|outcome| outcome.fired));
    let (unfired, violations) = (
        sum(|outcome| outcome.unfired.len()),
        sum(|outcome| outcome.failures.len()),
    );
    println!(
        "{cases} cases of {} scenarios in {} s: {fired} faults fired, {unfired} could not, {violations} violations",
        outcomes.len(),
        took.as_secs(),
    );
    if let Some(path) = env::var_os("KAOS_PERTURB_REPORT") {
        let report = json!({
            "subject": subject.name, "cases": cases, "fired": fired, "unfired": unfired,
            "violations": violations, "classes": classes, "scenarios": outcomes,
        });
        fs::write(path, report.to_string()).expect("the report can be written");
    }
    let failed = outcomes
        .iter()
        .filter(|outcome| !outcome.failures.is_empty())
        .count();
    let result = if failed == 0 { "ok" } else { "FAILED" };
    println!(
        "\ntest result: {result}. {} passed; {failed} failed; 0 ignored; 0 measured; {left_out} filtered out; finished in {:.2}s",
        outcomes.len() - failed,
        took.as_secs_f64(),
    );
    if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(101)
    }
}

/// What is said of a case that was run again.
pub(crate) fn replayed(violations: &[Violation]) -> ExitCode {
    for violation in violations {
        println!("{violation}");
    }
    println!("{} violations", violations.len());
    if violations.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(101)
    }
}

/// The server refuses some edits: the field cannot be changed, and nothing can go wrong with it.
fn is_expected(unfired: &str) -> bool {
    unfired.contains("is refused")
}

/// Failures that look alike: the same oracle, and the same class of fault.
fn groups(outcomes: &[Outcome]) -> BTreeMap<String, Vec<&Failure>> {
    let mut groups = BTreeMap::<_, Vec<_>>::new();
    for failure in outcomes.iter().flat_map(|outcome| &outcome.failures) {
        let class = failure
            .case
            .fault
            .as_ref()
            .map_or("undisturbed", |fault| fault.class());
        let oracle = failure
            .oracles
            .first()
            .map(ToString::to_string)
            .unwrap_or_default();
        groups
            .entry(format!("{oracle}, {class}"))
            .or_default()
            .push(failure);
    }
    groups
}

fn size(failure: &Failure) -> usize {
    json!(failure.case).to_string().len()
}
