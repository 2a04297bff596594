//! What was seen in one run.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use tokio::time::Instant;

use crate::{
    Violation,
    fault::{Fault, Tamper},
    mirror::{Change, Key, World},
    normal::Names,
    scenario::Scenario,
    wire::{Opened, Sent},
};

/// What is to be run.
#[derive(Clone, Debug)]
pub(crate) struct Plan<'a> {
    pub(crate) scenario: &'a Scenario,
    /// What goes wrong on the wire or around it.
    pub(crate) fault: Option<&'a Fault>,
    /// What somebody else does, one after the other, when all steps have settled.
    pub(crate) tampers: &'a [(Key, Tamper)],
    /// Objects of others, beside those of the scenario: made from what the controllers make.
    pub(crate) bystanders: &'a [serde_json::Value],
    /// How long is watched that nothing more is written.
    pub(crate) vigil: Duration,
    /// How many requests are answered.
    pub(crate) most: usize,
}

/// One stretch of a run that ended in rest.
#[derive(Clone, Debug)]
pub(crate) struct Phase {
    pub(crate) name: String,
    pub(crate) began: Instant,
    /// The last write of the controllers within it.
    pub(crate) last_write: Option<Instant>,
    /// Requests up to its end, and how many of them write, since the run began.
    pub(crate) requests: usize,
    pub(crate) writes: usize,
    /// What there is at its end.
    pub(crate) world: World,
    /// The tampering that began it was refused by the server: nothing happened in it.
    pub(crate) refused: bool,
}

/// What was seen in one run.
#[derive(Debug)]
pub(crate) struct Run {
    /// The first one is before the first step; then one for each step; then one for each tampering.
    pub(crate) phases: Vec<Phase>,
    pub(crate) steps: usize,
    pub(crate) began: Instant,
    pub(crate) sent: Vec<Sent>,
    /// How many events each watch saw.
    pub(crate) watches: BTreeMap<Opened, usize>,
    /// When the fault happened; never, where it did not.
    pub(crate) fired: Option<Instant>,
    /// When the last phase had settled and the vigil had ended.
    pub(crate) ended: Instant,
    /// What there was when the controllers were first started, and each change since.
    pub(crate) start: World,
    pub(crate) history: Vec<Change>,
    pub(crate) names: Names,
    /// Under which names the controllers write.
    pub(crate) managers: BTreeSet<String>,
    /// Objects that users of the scenario wrote.
    pub(crate) users: BTreeSet<Key>,
    /// Objects that nobody may touch.
    pub(crate) foreign: BTreeSet<Key>,
    /// Revisions of changes that neither the controllers nor the user made.
    pub(crate) by_others: BTreeSet<u64>,
    /// Objects that are not part of any case.
    pub(crate) base: BTreeSet<Key>,
    /// What was wrong at once, without comparison.
    pub(crate) violations: Vec<Violation>,
}

impl Run {
    /// The objects that the controllers made and that are there at the end.
    pub(crate) fn made(&self) -> Vec<Key> {
        let Some(last) = self.phases.last() else {
            return Vec::new();
        };
        let theirs = last
            .world
            .iter()
            .map(|(key, _)| key)
            .filter(|key| self.is_made(key));
        theirs.cloned().collect()
    }

    pub(crate) fn is_made(&self, key: &Key) -> bool {
        !self.base.contains(key) && !self.users.contains(key) && !self.foreign.contains(key)
    }

    /// The requests, one line each, as a replay prints them.
    pub(crate) fn trace(&self) -> String {
        let mut lines: Vec<(Instant, String)> = Vec::new();
        for sent in &self.sent {
            let body = match &sent.body {
                Some(body) => format!("\n{:>24}{}", "", String::from_utf8_lossy(body)),
                None => String::new(),
            };
            let number = if sent.writes {
                format!(" (number {})", sent.nth)
            } else {
                String::new()
            };
            lines.push((
                sent.at,
                format!(
                    "process {} {}{number} -> {}{body}",
                    sent.process, sent.what, sent.outcome
                ),
            ));
        }
        for change in &self.history {
            let what = match (&change.before, &change.after) {
                (None, _) => "appears",
                (_, Some(_)) => "changes",
                (_, None) => "is gone",
            };
            lines.push((
                change.at,
                format!("    {} {what} at {}", change.key, change.revision),
            ));
        }
        for (number, phase) in self.phases.iter().enumerate() {
            lines.push((phase.began, format!("--- phase {number}: {}", phase.name)));
        }
        if let Some(fired) = self.fired {
            lines.push((fired, "*** the fault".to_owned()));
        }
        lines.sort_by_key(|(at, _)| *at);
        let lines = lines.into_iter().map(|(at, line)| {
            let since = at.saturating_duration_since(self.began).as_secs_f64();
            format!("{since:>10.3}s {line}\n")
        });
        lines.collect()
    }
}
