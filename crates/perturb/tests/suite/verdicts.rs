//! What the harness says of controllers with known mistakes.

use std::collections::BTreeSet;

use kaos_perturb::{
    Case, Fault, Key, Oracle, Scenario, Step,
    shrink::shrink,
    sweep::{Outcome, Sample, replay, sweep},
};
use serde_json::{Value, json};

use super::toy::{GADGETS, Mistake, subject};

fn widget(name: &str, text: &str) -> Value {
    json!({
        "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": {"text": text},
    })
}

/// A widget that is made and tampered with, one that changes and changes back, and one that goes.
fn scenarios() -> Vec<Scenario> {
    let key = Key::new("Widget", "", "a");
    let changed = json!({"spec": {"text": "other"}});
    vec![
        Scenario {
            name: "made".to_owned(),
            absent: Vec::new(),
            before: vec![widget("b", "there")],
            foreign: Vec::new(),
            steps: vec![Step::Apply(vec![widget("a", "text")])],
            tamper: true,
        },
        Scenario {
            name: "changed".to_owned(),
            absent: Vec::new(),
            before: vec![widget("a", "text")],
            foreign: Vec::new(),
            steps: vec![
                Step::Merge {
                    object: key.clone(),
                    patch: changed,
                },
                Step::Revert,
            ],
            tamper: false,
        },
        Scenario {
            name: "deleted".to_owned(),
            absent: Vec::new(),
            before: vec![widget("a", "text")],
            foreign: Vec::new(),
            steps: vec![Step::Delete(key)],
            tamper: false,
        },
    ]
}

/// The undisturbed run, and a restart.
const FEW: Sample = Sample {
    crashes: 0,
    answers: 0,
    watches: 0,
    away: 0,
    fields: 0,
};

fn outcomes(mistake: Mistake) -> Vec<Outcome> {
    outcomes_of(mistake, scenarios(), Sample::ALL)
}

/// The undisturbed run of the first scenario, and little else: of a mistake that shows at once and costs time.
fn briefly(mistake: Mistake) -> Vec<Outcome> {
    let mut scenarios = scenarios();
    scenarios.truncate(1);
    outcomes_of(mistake, scenarios, FEW)
}

fn outcomes_of(mistake: Mistake, scenarios: Vec<Scenario>, sample: Sample) -> Vec<Outcome> {
    let outcomes = sweep(&subject(mistake), scenarios, sample, 1, &|_| {});
    for outcome in &outcomes {
        println!("{outcome}");
        for failure in &outcome.failures {
            let fault = failure
                .case
                .fault
                .as_ref()
                .map_or("undisturbed".to_owned(), ToString::to_string);
            println!("  {fault}: {:?}", failure.violations);
        }
    }
    outcomes
}

fn found(mistake: Mistake) -> BTreeSet<Oracle> {
    let outcomes = outcomes(mistake);
    let failures = outcomes.iter().flat_map(|outcome| &outcome.failures);
    failures.flat_map(|failure| failure.oracles.clone()).collect()
}

#[test]
fn a_right_controller_passes_every_case_and_every_class_of_fault_happens() {
    let outcomes = outcomes(Mistake::None);
    let mut classes = BTreeSet::new();
    for outcome in &outcomes {
        assert!(outcome.failures.is_empty(), "{:#?}", outcome.failures);
        classes.extend(outcome.classes.keys().copied());
        assert!(outcome.fired > 0, "{outcome}");
    }
    assert_eq!(classes.len(), 13, "{classes:?}");
}

#[test]
fn an_object_without_an_owner_is_left_behind() {
    let outcomes = outcomes(Mistake::ForgetsTheOwner);
    let failure = &outcomes[2].failures[0];
    assert_eq!(
        (&failure.case.fault, &failure.oracles[..]),
        (&None, &[Oracle::Orphan][..])
    );
}

#[test]
fn a_status_that_comes_before_its_truth_is_seen_without_any_fault() {
    let outcomes = outcomes(Mistake::SaysReadyFirst);
    let failure = &outcomes[0].failures[0];
    assert_eq!(failure.case.fault, None);
    assert_eq!(failure.oracles, [Oracle::ReadyTooEarly]);
}

#[test]
fn a_controller_that_answers_its_own_writes_loops() {
    let outcomes = briefly(Mistake::WritesWhatItReads);
    assert!(outcomes[0].failures[0].oracles.contains(&Oracle::HotLoop));
}

#[test]
fn a_controller_that_tries_again_at_once_is_too_much() {
    let outcomes = briefly(Mistake::NeverWaits);
    assert!(outcomes[0].failures[0].oracles.contains(&Oracle::HotLoop));
}

#[test]
fn an_object_made_before_it_is_noted_is_made_twice_after_a_crash() {
    let outcomes = outcomes(Mistake::MakesTwo);
    let failures: Vec<_> = outcomes[0]
        .failures
        .iter()
        .filter(|failure| failure.oracles.contains(&Oracle::Orphan))
        .collect();
    let classes: BTreeSet<_> = failures
        .iter()
        .filter_map(|failure| Some(failure.case.fault.as_ref()?.class()))
        .collect();
    assert!(classes.contains("crash after a write"), "{classes:?}");
    assert!(classes.contains("timeout after commit"), "{classes:?}");
}

#[test]
fn a_deleted_object_that_is_not_made_again_is_missed() {
    let outcomes = outcomes(Mistake::NeverLooksAtItsObjects);
    let failures = &outcomes[0].failures;
    assert!(failures.iter().any(|failure| {
        matches!(&failure.case.fault, Some(Fault::Tamper { .. }))
            && failure.oracles.contains(&Oracle::SameWorld)
    }));
}

#[test]
fn an_object_of_somebody_else_that_goes_is_missed() {
    assert!(found(Mistake::PrunesByLabel).contains(&Oracle::ForeignTouched));
}

#[test]
fn a_controller_that_ends_is_noticed() {
    assert!(found(Mistake::StopsAtAnError).contains(&Oracle::StaysUp));
}

#[test]
fn what_an_edit_leaves_behind_is_found_by_its_revert() {
    let outcomes = outcomes(Mistake::LeavesTheOldBehind);
    let failure = &outcomes[1].failures[0];
    assert_eq!(failure.case.fault, None);
    assert_eq!(failure.oracles, [Oracle::RevertRestores]);
}

#[test]
fn a_deletion_that_a_crash_can_stop_for_good_is_found() {
    assert!(found(Mistake::ForgetsItsFinalizer).contains(&Oracle::CrashSafeDeletion));
}

/// A scenario around a kind that need not be installed.
fn with_gadgets(absent: &[&str], steps: Vec<Step>) -> Scenario {
    Scenario {
        name: "gadgets".to_owned(),
        absent: absent.iter().map(|&name| name.to_owned()).collect(),
        before: vec![widget("a", "text")],
        foreign: Vec::new(),
        steps,
        tamper: false,
    }
}

fn gadget() -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Gadget", "metadata": {"name": "g"}, "spec": {"text": "t"}})
}

#[test]
fn a_kind_comes_and_goes_with_its_objects() {
    let steps = vec![
        Step::Install(GADGETS.to_owned()),
        Step::Apply(vec![gadget()]),
        Step::Uninstall(GADGETS.to_owned()),
        Step::Revert,
    ];
    let case = Case {
        scenario: with_gadgets(&[GADGETS], steps),
        fault: None,
    };
    let (trace, violations) = replay(&subject(Mistake::None), &case);
    for part in ["Gadget/work/g appears", "Gadget/work/g is gone"] {
        assert!(trace.contains(part), "{trace}");
    }
    // The kind is back, and its objects are not.
    let left: Vec<_> = violations
        .iter()
        .filter(|violation| violation.oracle != Oracle::RevertRestores)
        .collect();
    assert!(left.is_empty(), "{left:?}");
    assert_eq!(violations.len(), 1, "{violations:?}");
}

#[test]
fn a_controller_that_cannot_do_without_a_kind_is_found_when_it_goes() {
    let steps = vec![
        Step::Uninstall(GADGETS.to_owned()),
        Step::Apply(vec![widget("b", "text")]),
    ];
    let scenarios = vec![with_gadgets(&[], steps)];
    let right = outcomes_of(Mistake::None, scenarios.clone(), Sample::ALL);
    assert!(
        right[0].failures.is_empty() && right[0].fired > 0,
        "{:#?}",
        right[0]
    );
    // It asks again and again.
    let wrong = outcomes_of(Mistake::NeedsAnotherKind, scenarios, FEW);
    let oracles: Vec<_> = wrong[0].failures.iter().map(|failure| &failure.oracles).collect();
    assert!(
        oracles.iter().any(|found| found.contains(&Oracle::HotLoop)),
        "{oracles:?}"
    );
}

#[test]
fn a_failure_is_made_small_and_replays_from_its_text() {
    let subject = subject(Mistake::MakesTwo);
    let outcomes = outcomes(Mistake::MakesTwo);
    let failure = outcomes[0]
        .failures
        .iter()
        .find(|failure| {
            failure.oracles.contains(&Oracle::Orphan)
                && failure
                    .case
                    .fault
                    .as_ref()
                    .is_some_and(|fault| fault.class() == "crash after a write")
        })
        .unwrap();
    let small = shrink(&subject, &failure.case, &[Oracle::Orphan]);
    assert!(small.scenario.before.is_empty(), "{small:?}");
    let text = serde_json::to_string(&small).unwrap();
    let case: Case = serde_json::from_str(&text).unwrap();
    let (trace, violations) = replay(&subject, &case);
    assert!(
        violations
            .iter()
            .any(|violation| violation.oracle == Oracle::Orphan),
        "{violations:?}"
    );
    assert!(trace.contains("the controllers crash"), "{trace}");
}
