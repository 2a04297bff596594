//! A failing case made small: fewer objects and fewer steps, as long as the same oracle is violated.

use std::sync::Arc;

use serde_json::Value;

use crate::{
    Case, Fault, Key, Oracle, Scenario, Step, Subject,
    lab::Lab,
    sweep::{self, in_simulated_time},
};

/// The smallest case found that still violates one of these oracles.
pub fn shrink(subject: &Arc<Subject>, case: &Case, oracles: &[Oracle]) -> Case {
    in_simulated_time(async {
        let lab = Lab::open(subject.clone()).await;
        let mut best = case.clone();
        loop {
            let mut smaller = None;
            for candidate in candidates(&best) {
                if fails(&lab, subject, &candidate, oracles).await {
                    smaller = Some(candidate);
                    break;
                }
            }
            match smaller {
                Some(candidate) => best = candidate,
                None => return best,
            }
        }
    })
}

async fn fails(lab: &Lab, subject: &Subject, case: &Case, oracles: &[Oracle]) -> bool {
    let reference = sweep::refer(lab, subject, &case.scenario).await;
    let violations = match &case.fault {
        None => reference.violations,
        // The fault has to make the difference.
        Some(_) if !reference.violations.is_empty() => return false,
        Some(fault) => {
            let (fired, violations) = sweep::try_fault(lab, subject, &case.scenario, &reference, fault).await;
            if !fired {
                return false;
            }
            violations
        }
    };
    violations
        .iter()
        .any(|violation| oracles.contains(&violation.oracle))
}

/// The cases that are one part smaller, smallest first.
fn candidates(case: &Case) -> Vec<Case> {
    let scenario = &case.scenario;
    let with = |scenario: Scenario| Case {
        scenario,
        fault: case.fault.clone(),
    };
    let mut candidates = Vec::new();
    let needed = match case.fault {
        Some(Fault::Write { step, .. } | Fault::Away { step } | Fault::Restart { step }) => step + 1,
        _ => 0,
    };
    if scenario.steps.len() > needed {
        let mut shorter = scenario.clone();
        shorter.steps.pop();
        candidates.push(with(shorter));
    }
    for index in 0..scenario.foreign.len() {
        let mut fewer = scenario.clone();
        fewer.foreign.remove(index);
        candidates.push(with(fewer));
    }
    for index in 0..scenario.before.len() {
        if is_changed(scenario, &scenario.before[index]) {
            continue;
        }
        let mut fewer = scenario.clone();
        fewer.before.remove(index);
        candidates.push(with(fewer));
    }
    for (step, change) in scenario.steps.iter().enumerate() {
        if let Step::Apply(objects) = change
            && objects.len() > 1
        {
            for index in 0..objects.len() {
                if is_changed(scenario, &objects[index]) {
                    continue;
                }
                let mut fewer = objects.clone();
                fewer.remove(index);
                let mut smaller = scenario.clone();
                smaller.steps[step] = Step::Apply(fewer);
                candidates.push(with(smaller));
            }
        }
    }
    candidates.sort_by_key(|case| case.scenario.size());
    candidates
}

/// Whether a step is about this object.
fn is_changed(scenario: &Scenario, object: &Value) -> bool {
    let there = Key::of(object);
    scenario.steps.iter().any(|step| match step {
        Step::Merge { object: key, .. } | Step::Delete(key) => {
            (&key.kind, &key.name) == (&there.kind, &there.name)
        }
        Step::Apply(_) | Step::Install(_) | Step::Uninstall(_) | Step::Revert => false,
    })
}
