//! The conditions of a Job, and what they say of its end.

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{Job, JobCondition, JobStatus};

use super::{Pass, second};
use crate::events::{Type, reference};

/// Whether an end is a good one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Complete,
    Failed,
}

impl Outcome {
    /// The condition that says so before the last pod has ended.
    pub(super) fn interim(self) -> &'static str {
        match self {
            Self::Complete => "SuccessCriteriaMet",
            Self::Failed => "FailureTarget",
        }
    }

    /// The condition that says so for good.
    pub(super) fn terminal(self) -> &'static str {
        match self {
            Self::Complete => "Complete",
            Self::Failed => "Failed",
        }
    }
}

/// How a Job ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct End {
    pub(super) outcome: Outcome,
    pub(super) reason: String,
    pub(super) message: String,
}

impl End {
    pub(super) fn completed() -> Self {
        Self {
            outcome: Outcome::Complete,
            reason: "CompletionsReached".to_owned(),
            message: "Reached expected number of succeeded pods".to_owned(),
        }
    }

    pub(super) fn failed(reason: &str, message: &str) -> Self {
        Self {
            outcome: Outcome::Failed,
            reason: reason.to_owned(),
            message: message.to_owned(),
        }
    }
}

fn held<'a>(status: &'a JobStatus, kind: &str) -> Option<&'a JobCondition> {
    let mut conditions = status.conditions.iter().flatten();
    conditions.find(|condition| condition.type_ == kind && condition.status == "True")
}

/// Since when a Job is over; `None` for one that is not.
pub(super) fn finished(job: &Job) -> Option<Timestamp> {
    let status = job.status.as_ref()?;
    let condition = [Outcome::Complete, Outcome::Failed]
        .into_iter()
        .find_map(|outcome| held(status, outcome.terminal()))?;
    let since = condition.last_transition_time.as_ref();
    Some(since.map(|time| time.0).unwrap_or_default())
}

impl Pass<'_> {
    /// The end that an earlier pass decided on.
    pub(super) fn known_end(&self) -> Option<End> {
        [Outcome::Complete, Outcome::Failed]
            .into_iter()
            .find_map(|outcome| {
                let condition = held(&self.status, outcome.interim())?;
                Some(End {
                    outcome,
                    reason: condition.reason.clone().unwrap_or_default(),
                    message: condition.message.clone().unwrap_or_default(),
                })
            })
    }

    /// Says on the Job whether it is suspended. A deadline counts from when it goes on.
    pub(super) fn tell_suspension(&mut self) {
        let suspended = self.is_suspended();
        let (holds, condition, event, message) = if suspended {
            ("True", "JobSuspended", "Suspended", "Job suspended")
        } else {
            ("False", "JobResumed", "Resumed", "Job resumed")
        };
        if !self.set("Suspended", holds, condition, message) {
            return;
        }
        let events = &self.context.events;
        events.report(reference(&self.job), Type::Normal, event, message);
        self.status.start_time = (!suspended).then(|| second(self.now));
    }

    /// Sets a condition; whether that changed something. One that never held is not there.
    pub(super) fn set(&mut self, kind: &str, holds: &str, reason: &str, message: &str) -> bool {
        let new = JobCondition {
            type_: kind.to_owned(),
            status: holds.to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            last_probe_time: Some(second(self.now)),
            last_transition_time: Some(second(self.now)),
        };
        let conditions = self.status.conditions.get_or_insert_default();
        let told = |old: &JobCondition| (old.status.clone(), old.reason.clone(), old.message.clone());
        let changed = match conditions.iter_mut().find(|old| old.type_ == kind) {
            Some(old) if told(old) == told(&new) => false,
            Some(old) => {
                *old = new;
                true
            }
            None if holds == "False" => false,
            None => {
                conditions.push(new);
                true
            }
        };
        if conditions.is_empty() {
            self.status.conditions = None;
        }
        changed
    }
}
