//! Which cases there are, seen from an undisturbed run, and which of them are run.

use rand_chacha::ChaCha8Rng;
use rand_core::RngCore;
use serde_json::{Value, json};

use crate::{Fault, Key, Scenario, Tamper, Through, WatchFault, WriteFault, edit, run::Run};

/// How many of the cases of a scenario are run.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// How many crashes before or after a write.
    pub crashes: usize,
    /// How many wrong answers to a write.
    pub answers: usize,
    /// How many faults of watches.
    pub watches: usize,
    /// How many steps the controllers are away during.
    pub away: usize,
    /// How many tamperings with fields in embedded core types, and as many with others.
    pub fields: usize,
}

impl Sample {
    /// All of them.
    pub const ALL: Self = Self {
        crashes: usize::MAX,
        answers: usize::MAX,
        watches: usize::MAX,
        away: usize::MAX,
        fields: usize::MAX,
    };
}

/// Objects of others that look like what the controllers made: with the same labels, one without an owner and
/// the next with another one, by turns.
pub(crate) fn bystanders_of(run: &Run, namespace: &str) -> Vec<Value> {
    let owner = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "bystander", "namespace": namespace},
    });
    let Some(last) = run.phases.last() else {
        return Vec::new();
    };
    let mut bystanders = vec![owner];
    for (number, key) in run.made().iter().enumerate() {
        let Some(object) = last.world.get(key) else {
            continue;
        };
        let mut object = object.clone();
        let labels = object["metadata"]["labels"].take();
        object["metadata"] = json!({"name": format!("bystander-{}", key.name), "namespace": key.namespace});
        if labels.is_object() {
            object["metadata"]["labels"] = labels;
        }
        if number % 2 == 1 && key.namespace == namespace {
            object["metadata"]["ownerReferences"] = json!([
                {"apiVersion": "v1", "kind": "ConfigMap", "name": "bystander", "uid": "", "controller": true},
            ]);
        }
        if let Some(fields) = object.as_object_mut() {
            fields.shift_remove("status");
        }
        if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
            spec.shift_remove("clusterIP");
            spec.shift_remove("clusterIPs");
        }
        bystanders.push(object);
    }
    bystanders
}

/// The faults of a scenario, sampled.
pub(crate) fn faults_of(
    run: &Run,
    scenario: &Scenario,
    sample: Sample,
    random: &mut ChaCha8Rng,
) -> Vec<Fault> {
    let writes = run.sent.iter().filter(|sent| sent.writes);
    let (mut crashes, mut answers) = (Vec::new(), Vec::new());
    for (step, sent) in writes.filter_map(|sent| Some((sent.step?, sent))) {
        for how in WriteFault::ALL {
            let of_its_sort = match how {
                WriteFault::CrashBefore | WriteFault::CrashAfter => &mut crashes,
                _ => &mut answers,
            };
            of_its_sort.push(Fault::Write {
                step,
                write: sent.what.clone(),
                nth: sent.nth,
                how,
            });
        }
    }
    let mut faults = pick(crashes, sample.crashes, random);
    faults.extend(pick(answers, sample.answers, random));
    let watches: Vec<Fault> = run
        .watches
        .iter()
        .filter(|(_, events)| **events > 0)
        .flat_map(|(opened, events)| {
            (0..=*events).flat_map(|after| {
                WatchFault::ALL.map(|how| Fault::Watch {
                    watch: opened.watch.clone(),
                    nth: opened.nth,
                    after,
                    how,
                })
            })
        })
        .collect();
    faults.extend(pick(watches, sample.watches, random));
    let away = (0..scenario.steps.len()).map(|step| Fault::Away { step });
    faults.extend(pick(away.collect(), sample.away, random));
    faults.extend(
        scenario
            .steps
            .len()
            .checked_sub(1)
            .map(|step| Fault::Restart { step }),
    );
    faults
}

/// What somebody else may do to the objects of the controllers, sampled.
pub(crate) fn tampers_of(run: &Run, sample: Sample, random: &mut ChaCha8Rng) -> Vec<(Key, Tamper)> {
    let Some(last) = run.phases.last() else {
        return Vec::new();
    };
    let (mut deletions, mut own, mut core) = (Vec::new(), Vec::new(), Vec::new());
    for key in run.made() {
        let Some(object) = last.world.get(&key) else {
            continue;
        };
        deletions.push((key.clone(), Tamper::Delete));
        for field in edit::owned(object, &run.managers) {
            let embedded = field.starts_with("spec/template/spec");
            let fields = if embedded { &mut core } else { &mut own };
            let last = field.rsplit('/').next().unwrap_or_default();
            // An item of a list is changed through its fields.
            if !last.starts_with("k:") && !edit::is_key(&field) {
                for through in [Through::Update, Through::Apply] {
                    let field = field.clone();
                    fields.push((key.clone(), Tamper::Change { field, through }));
                }
            }
            fields.push((key.clone(), Tamper::Remove { field }));
        }
    }
    deletions.extend(pick(own, sample.fields, random));
    deletions.extend(pick(core, sample.fields, random));
    deletions
}

/// `most` of the numbers below `count`.
fn choose(count: usize, most: usize, random: &mut ChaCha8Rng) -> Vec<usize> {
    let mut numbers: Vec<usize> = (0..count).collect();
    for index in (1..count).rev() {
        let other = usize::try_from(random.next_u64() % (index as u64 + 1)).unwrap_or_default();
        numbers.swap(index, other);
    }
    numbers.truncate(most);
    numbers.sort_unstable();
    numbers
}

fn pick<T>(all: Vec<T>, most: usize, random: &mut ChaCha8Rng) -> Vec<T> {
    let chosen = choose(all.len(), most, random);
    let numbered = all.into_iter().enumerate();
    numbered
        .filter(|(number, _)| chosen.binary_search(number).is_ok())
        .map(|(_, one)| one)
        .collect()
}
