//! What goes wrong, as data: printed, sampled, made smaller and replayed.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::mirror::Key;

/// One thing that goes wrong in a run.
///
/// A write or a watch is named by what it is about and which of its like it is, not by a running number: the
/// order among different objects may differ from run to run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum Fault {
    /// A write of the controllers goes wrong.
    Write {
        /// The step of the scenario in which it is sent, from 0.
        step: usize,
        /// What is written, such as `apply deployments.apps work/web`.
        write: String,
        /// Which of the writes of that step that read the same, from 0.
        nth: usize,
        /// What goes wrong.
        how: WriteFault,
    },
    /// A watch of the controllers goes wrong.
    Watch {
        /// What is watched, such as `deployments.apps app=web`.
        watch: String,
        /// Which of the watches that read the same, in the order they were opened, from 0.
        nth: usize,
        /// How many events still come.
        after: usize,
        /// What goes wrong.
        how: WatchFault,
    },
    /// The controllers are away while the user does this step.
    Away {
        /// The step, from 0.
        step: usize,
    },
    /// The controllers are started anew when this step has settled. Nothing is left for them to do.
    Restart {
        /// The step, from 0.
        step: usize,
    },
    /// Somebody else changes or deletes an object of the controllers, when all steps have settled.
    Tamper {
        /// The object.
        object: Key,
        /// What is done to it.
        how: Tamper,
    },
}

/// What goes wrong with a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum WriteFault {
    /// The controllers crash before it reaches the server.
    CrashBefore,
    /// The controllers crash when the server has stored it, before they know.
    CrashAfter,
    /// Answered with 409 Conflict, and not done.
    Conflict,
    /// Answered with 429 Too Many Requests and `Retry-After`, and not done.
    TooManyRequests,
    /// Answered with 500 Internal Server Error, and not done.
    InternalError,
    /// Done, and the answer never comes.
    TimeoutAfterCommit,
}

impl WriteFault {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::CrashBefore,
        Self::CrashAfter,
        Self::Conflict,
        Self::TooManyRequests,
        Self::InternalError,
        Self::TimeoutAfterCommit,
    ];
}

/// What goes wrong with a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum WatchFault {
    /// The connection breaks. What came after can still be had.
    Breaks,
    /// The connection breaks, and for a while no list and no watch of the same can be had; then the past is
    /// forgotten: of all that happened meanwhile only the outcome is seen.
    Loses,
}

impl WatchFault {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Breaks, Self::Loses];
}

/// What somebody else does to an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum Tamper {
    /// Deletes it.
    Delete,
    /// Gives a field another value.
    Change {
        /// The field, in the syntax of `managedFields`: names and list keys, separated by `/`.
        field: String,
        /// How it is written.
        through: Through,
    },
    /// Takes a field away.
    Remove {
        /// As in [`Tamper::Change`].
        field: String,
    },
}

/// How somebody else writes a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Through {
    /// With an update of the whole object.
    Update,
    /// With a forced server-side apply of that field.
    Apply,
}

impl Fault {
    /// Its class, for the counts of a report.
    pub fn class(&self) -> &'static str {
        match self {
            Self::Write { how, .. } => match how {
                WriteFault::CrashBefore => "crash before a write",
                WriteFault::CrashAfter => "crash after a write",
                WriteFault::Conflict => "409",
                WriteFault::TooManyRequests => "429",
                WriteFault::InternalError => "500",
                WriteFault::TimeoutAfterCommit => "timeout after commit",
            },
            Self::Watch { how, .. } => match how {
                WatchFault::Breaks => "watch breaks",
                WatchFault::Loses => "watch loses events",
            },
            Self::Away { .. } => "away during a step",
            Self::Restart { .. } => "restart",
            Self::Tamper { how, .. } => match how {
                Tamper::Delete => "child deleted",
                Tamper::Change { .. } => "child edited",
                Tamper::Remove { .. } => "field removed",
            },
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Write { step, write, nth, .. } => {
                write!(f, "{} (step {step}: {write}, number {nth})", self.class())
            }
            Self::Watch {
                watch, nth, after, ..
            } => write!(f, "{} after {after} events ({watch}, number {nth})", self.class()),
            Self::Away { step } | Self::Restart { step } => write!(f, "{} (step {step})", self.class()),
            Self::Tamper { object, how } => match how {
                Tamper::Delete => write!(f, "{object} is deleted"),
                Tamper::Change {
                    field,
                    through: Through::Update,
                } => write!(f, "{object}: {field} is changed"),
                Tamper::Change {
                    field,
                    through: Through::Apply,
                } => write!(f, "{object}: {field} is taken over"),
                Tamper::Remove { field } => write!(f, "{object}: {field} is removed"),
            },
        }
    }
}
