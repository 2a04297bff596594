//! A run held against what must hold, and against the undisturbed run of the same scenario.

use std::{
    collections::{BTreeSet, VecDeque},
    time::Duration,
};

use serde_json::Value;
use tokio::time::Instant;

use crate::{
    Oracle, Subject, Violation,
    fault::Fault,
    mirror::{Change, Key, World},
    normal::{Normal, differences, normal},
    run::{Phase, Run},
    scenario::{Scenario, Step},
};

/// How much longer a status may lag behind where a watch was made blind or an answer was held back.
const HANDICAP: Duration = Duration::from_secs(60);
/// Requests of a quiet minute that are always granted.
const IDLE: usize = 20;

/// What does not hold in the undisturbed run itself.
pub(crate) fn undisturbed(subject: &Subject, scenario: &Scenario, run: &Run) -> Vec<Violation> {
    let mut violations = alone(subject, None, run);
    for (number, step) in scenario.steps.iter().enumerate() {
        // The phase of a step comes after the one of the start.
        let (Some(after), Some(before)) = (run.phases.get(number + 1), number.checked_sub(1)) else {
            continue;
        };
        if *step == Step::Revert {
            let before = normal_of(run, &run.phases[before], &run.managers);
            let after = normal_of(run, after, &run.managers);
            let differing = compare(&before, &after).into_iter().map(|violation| Violation {
                oracle: Oracle::RevertRestores,
                ..violation
            });
            violations.extend(differing.map(|violation| at(&format!("step {number}"), violation)));
        }
    }
    violations
}

/// What is left after the first step, a deletion, that is not there where the object never was, and belongs to
/// nothing that still is.
pub(crate) fn left(run: &Run, never: &Run) -> Vec<Violation> {
    let (Some(after), Some(never)) = (run.phases.get(1), never.phases.first()) else {
        return Vec::new();
    };
    let belongs = |object: &Value| {
        let owners = object["metadata"]["ownerReferences"].as_array();
        owners.is_some_and(|owners| !owners.is_empty())
    };
    after
        .world
        .iter()
        .filter(|(key, object)| !run.base.contains(key) && !belongs(object) && never.world.get(key).is_none())
        .map(|(key, _)| Violation::new(Oracle::Orphan, format!("{key} is left of what was deleted")))
        .collect()
}

/// What does not hold in a run in which something went wrong.
pub(crate) fn perturbed(subject: &Subject, fault: &Fault, reference: &Run, run: &Run) -> Vec<Violation> {
    let mut violations = alone(subject, Some(fault), run);
    let phases = reference.phases.iter().zip(&run.phases).take(reference.steps + 1);
    for (expected, found) in phases {
        violations.extend(same(reference, expected, run, found));
    }
    let (expected, found) = (totals(reference, reference.steps), totals(run, reference.steps));
    violations.extend(bounded(subject, "in all", expected, found));
    violations
}

/// What does not hold after one object was tampered with: phase `number` of `run`.
pub(crate) fn tampered(subject: &Subject, reference: &Run, run: &Run, number: usize) -> Vec<Violation> {
    let (Some(expected), Some(found)) = (reference.phases.last(), run.phases.get(number)) else {
        return Vec::new();
    };
    let mut violations = same(reference, expected, run, found);
    let before = &run.phases[number - 1];
    let caused = (found.requests - before.requests, found.writes - before.writes);
    // To put one object right takes at most what it took to make everything.
    violations.extend(bounded(
        subject,
        &found.name,
        totals(reference, reference.steps),
        caused,
    ));
    violations.extend(late(subject, found, found.began));
    violations
}

/// What can be said of a run without another.
pub(crate) fn alone(subject: &Subject, fault: Option<&Fault>, run: &Run) -> Vec<Violation> {
    let mut violations = run.violations.clone();
    for phase in run.phases.iter().take(run.steps + 1) {
        let since = run.fired.map_or(phase.began, |fired| fired.max(phase.began));
        violations.extend(late(subject, phase, since));
        violations.extend(orphans(&phase.world, &run.base).map(|violation| at(&phase.name, violation)));
        violations.extend(outdated(subject, &phase.world).map(|violation| at(&phase.name, violation)));
    }
    violations.extend(idle(run));
    violations.extend(foreign(run));
    let handicap = match fault {
        Some(Fault::Watch { .. }) => HANDICAP,
        _ => Duration::ZERO,
    };
    violations.extend(ready(subject, run, subject.limits.grace + handicap));
    violations
}

fn at(phase: &str, violation: Violation) -> Violation {
    Violation {
        detail: format!("after {phase}, {}", violation.detail),
        ..violation
    }
}

/// Requests and writes up to the end of a step.
fn totals(run: &Run, steps: usize) -> (usize, usize) {
    let phase = run.phases.get(steps).or(run.phases.last());
    phase
        .map(|phase| (phase.requests, phase.writes))
        .unwrap_or_default()
}

fn bounded(subject: &Subject, what: &str, expected: (usize, usize), found: (usize, usize)) -> Vec<Violation> {
    let limits = subject.limits;
    let mut violations = Vec::new();
    let most = expected.1 + limits.more_writes;
    if found.1 > most {
        let detail = format!("{what}: {} writes, where {most} are enough", found.1);
        violations.push(Violation::new(Oracle::BoundedWrites, detail));
    }
    let most = (expected.0 + 100) * limits.more_requests;
    if found.0 > most {
        let detail = format!("{what}: {} requests, where {most} are enough", found.0);
        violations.push(Violation::new(Oracle::HotLoop, detail));
    }
    violations
}

fn late(subject: &Subject, phase: &Phase, since: Instant) -> Option<Violation> {
    let took = phase.last_write?.saturating_duration_since(since);
    (took > subject.limits.healed_within).then(|| {
        let detail = format!("{}: the last write came after {} s", phase.name, took.as_secs());
        Violation::new(Oracle::HealsSoon, detail)
    })
}

/// Requests of a world at rest.
fn idle(run: &Run) -> Option<Violation> {
    let began = run.phases.last()?.last_write.unwrap_or(run.began) + HANDICAP;
    let minutes = run.ended.saturating_duration_since(began).as_secs() / 60;
    let sent = run.sent.iter().filter(|sent| sent.at > began).count();
    // Each watch ends now and then, and is opened again.
    let most = (IDLE + run.watches.len()) * usize::try_from(minutes).unwrap_or(usize::MAX).max(1);
    (sent > most).then(|| {
        let detail = format!("{sent} requests in {minutes} minutes in which nothing happens");
        Violation::new(Oracle::HotLoop, detail)
    })
}

fn foreign(run: &Run) -> Option<Violation> {
    let touched: Vec<String> = run
        .history
        .iter()
        .filter(|change| run.foreign.contains(&change.key) && !run.by_others.contains(&change.revision))
        .map(|change| {
            let before = change.before.as_deref().unwrap_or(&Value::Null);
            match &change.after {
                Some(after) => format!("{} is changed: {:?}", change.key, differences(before, after, 4)),
                None => format!("{} is deleted", change.key),
            }
        })
        .collect();
    (!touched.is_empty()).then(|| Violation::new(Oracle::ForeignTouched, touched.join("; ")))
}

/// What is at rest with a status of an older generation.
fn outdated<'a>(subject: &'a Subject, world: &'a World) -> impl Iterator<Item = Violation> + 'a {
    let ours = world
        .iter()
        .filter(|(key, _)| subject.primaries.contains(&key.kind));
    let outdated = ours.filter(|(_, object)| {
        let observed = object["status"].get("observedGeneration");
        observed.is_some_and(|observed| *observed != object["metadata"]["generation"])
    });
    outdated.map(|(key, _)| {
        Violation::new(
            Oracle::ReadyTooEarly,
            format!("the status of {key} tells of an older generation"),
        )
    })
}

fn orphans<'a>(world: &'a World, base: &'a BTreeSet<Key>) -> impl Iterator<Item = Violation> + 'a {
    world
        .iter()
        .filter(|(key, _)| !base.contains(key))
        .filter_map(|(key, object)| {
            let owners = object["metadata"]["ownerReferences"].as_array()?;
            let gone = owners
                .iter()
                .find(|owner| owner["uid"].as_str().is_some_and(|uid| !world.has_uid(uid)))?;
            let (kind, name) = (&gone["kind"], &gone["name"]);
            Some(Violation::new(
                Oracle::Orphan,
                format!("{key} is left, though its owner {kind} {name} is gone"),
            ))
        })
}

fn normal_of(run: &Run, phase: &Phase, managers: &BTreeSet<String>) -> Normal {
    normal(&phase.world, &run.base, &run.names, managers)
}

fn same(reference: &Run, expected: &Phase, run: &Run, found: &Phase) -> Vec<Violation> {
    let a = normal_of(reference, expected, &reference.managers);
    let b = normal_of(run, found, &reference.managers);
    let violations = compare(&a, &b).into_iter();
    violations.map(|violation| at(&found.name, violation)).collect()
}

fn compare(expected: &Normal, found: &Normal) -> Vec<Violation> {
    let mut violations = Vec::new();
    let keys: BTreeSet<&Key> = expected.keys().chain(found.keys()).collect();
    for key in keys {
        let violation = match (expected.get(key), found.get(key)) {
            (Some(a), Some(b)) if a == b => continue,
            (Some(a), Some(b)) => {
                let differing = differences(a, b, 6).join("; ");
                let dying = |object: &Value| object["metadata"].get("deletionTimestamp").is_some();
                let oracle = match dying(b) && !dying(a) {
                    true => Oracle::CrashSafeDeletion,
                    false => Oracle::SameWorld,
                };
                Violation::new(oracle, format!("{key} is different: {differing}"))
            }
            (Some(_), None) => Violation::new(Oracle::SameWorld, format!("{key} is missing")),
            (None, Some(b)) if b["metadata"].get("deletionTimestamp").is_some() => Violation::new(
                Oracle::CrashSafeDeletion,
                format!("{key} is still there, being deleted"),
            ),
            (None, _) => Violation::new(Oracle::Orphan, format!("{key} is there, and should not be")),
        };
        violations.push(violation);
    }
    violations
}

/// What said that it was ready, and was not.
fn ready(subject: &Subject, run: &Run, grace: Duration) -> Option<Violation> {
    let rule = |object: &Value, world: &World| (subject.ready)(object, world);
    let ours = |key: &Key| subject.primaries.contains(&key.kind);
    let mut world = run.start.clone();
    let mut since = run.began;
    // The worlds of the last while, with when each of them ended.
    let mut recent: VecDeque<(Instant, World)> = VecDeque::new();
    for change in &run.history {
        if change.at.saturating_duration_since(since) > subject.limits.healed_within {
            let standing = world.iter().filter(|(key, _)| ours(key));
            for (key, object) in standing {
                if let Err(why) = rule(object, &world) {
                    let lasted = change.at.saturating_duration_since(since).as_secs();
                    let detail = format!("{key} says so for {lasted} s, and {why}");
                    return Some(Violation::new(Oracle::ReadyTooEarly, detail));
                }
            }
        }
        if change.at > since {
            recent.push_back((change.at, world.clone()));
            since = change.at;
        }
        while recent
            .front()
            .is_some_and(|(ended, _)| *ended + grace < change.at)
        {
            recent.pop_front();
        }
        world.apply(change);
        if ours(&change.key)
            && is_of_status(change)
            && let Some(object) = change.after.as_deref()
            && let Err(why) = rule(object, &world)
            && recent.iter().all(|(_, world)| rule(object, world).is_err())
        {
            let when = change.at.saturating_duration_since(run.began).as_secs_f64();
            let detail = format!("{} says so after {when:.3} s, and {why}", change.key);
            return Some(Violation::new(Oracle::ReadyTooEarly, detail));
        }
    }
    let last = world.iter().filter(|(key, _)| ours(key));
    let wrong = last.filter_map(|(key, object)| Some((key, rule(object, &world).err()?)));
    wrong
        .map(|(key, why)| {
            Violation::new(
                Oracle::ReadyTooEarly,
                format!("{key} says so at the end, and {why}"),
            )
        })
        .next()
}

fn is_of_status(change: &Change) -> bool {
    let status =
        |object: &Option<std::sync::Arc<Value>>| object.as_deref().map(|object| object["status"].clone());
    status(&change.before) != status(&change.after)
}
