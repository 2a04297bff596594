//! What must hold, whatever goes wrong.

use std::fmt;

use serde::{Deserialize, Serialize};

/// One thing that must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Oracle {
    /// After each step the world is the one of the undisturbed run, up to uids, versions and times.
    SameWorld,
    /// A change and its revert lead back to the world before.
    RevertRestores,
    /// No object is left whose owner is gone, and none that the undisturbed run has not.
    Orphan,
    /// What others own is as they left it.
    ForeignTouched,
    /// A fault causes a bounded number of writes.
    BoundedWrites,
    /// Nothing that writes is sent once the world has settled.
    QuietOnceConverged,
    /// Requests of any sort are bounded, too.
    HotLoop,
    /// The world settles.
    Settles,
    /// It does so soon, and not only when a periodic resync comes by.
    HealsSoon,
    /// What says that it is ready is.
    ReadyTooEarly,
    /// What is deleted goes, with all that belongs to it.
    CrashSafeDeletion,
    /// The controllers run until they are stopped: no panic and no early end.
    StaysUp,
}

impl fmt::Display for Oracle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SameWorld => "same world",
            Self::RevertRestores => "revert restores",
            Self::Orphan => "no orphan",
            Self::ForeignTouched => "nothing foreign touched",
            Self::BoundedWrites => "bounded writes",
            Self::QuietOnceConverged => "quiet once converged",
            Self::HotLoop => "no hot loop",
            Self::Settles => "settles",
            Self::HealsSoon => "heals soon",
            Self::ReadyTooEarly => "never ready too early",
            Self::CrashSafeDeletion => "crash-safe deletion",
            Self::StaysUp => "stays up",
        })
    }
}

/// Something that did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// What should have held.
    pub oracle: Oracle,
    /// What was found instead.
    pub detail: String,
}

impl Violation {
    pub(crate) fn new(oracle: Oracle, detail: impl Into<String>) -> Self {
        Self {
            oracle,
            detail: detail.into(),
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.oracle, self.detail)
    }
}
