//! Faults on demand: what tests inject at any API call.
//!
//! A test gives the server a [`FaultInjector`]. It is asked before every call on a resource what shall go
//! wrong with it, and told afterwards what the caller saw, so that a test can prove that its fault fired.

use std::{fmt::Debug, time::Duration};

use http::StatusCode;

/// Decides which calls go wrong.
pub trait FaultInjector: Debug + Send + Sync {
    /// Called before the call is handled.
    fn decide(&self, call: &Call) -> Fault;

    /// Called when the answer is known; for a watch, when its stream ends.
    fn observe(&self, call: &Call, fault: &Fault, outcome: &Outcome) {
        let _ = (call, fault, outcome);
    }
}

/// One call on a resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Call {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `apply`, `delete` or `deletecollection`.
    pub verb: &'static str,
    /// The API group, empty for the core group.
    pub group: String,
    /// The resource's plural name.
    pub resource: String,
    /// The namespace of the path.
    pub namespace: Option<String>,
    /// The name of the path.
    pub name: Option<String>,
    /// The subresource, such as `status`.
    pub subresource: Option<String>,
    /// The caller's `User-Agent`.
    pub user_agent: Option<String>,
    /// The caller's `fieldManager`.
    pub field_manager: Option<String>,
}

/// What goes wrong with a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// The call is refused with this status and message before it is handled.
    Error(StatusCode, String),
    /// The call is handled after this time.
    Delay(Duration),
    /// A watch's stream breaks off after so many events (bookmarks included).
    DropWatch {
        /// How many events the caller still sees.
        after_events: usize,
    },
    /// A get or list answers from this many resource versions ago, as far as history reaches.
    StaleRead {
        /// How many resource versions back.
        versions_back: u64,
    },
    /// The server fails after it decided what to write and before it writes: nothing is stored, and the
    /// caller sees a broken connection.
    CrashBeforeCommit,
    /// The server fails after it wrote: the change is stored, and the caller sees a broken connection.
    CrashAfterCommit,
}

/// What the caller saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// An answer with this status.
    Answered(StatusCode),
    /// The connection broke before an answer.
    Disconnected,
    /// A watch's stream ended, by itself or by a fault, after so many events.
    WatchEnded {
        /// How many events the caller saw.
        events: usize,
    },
}
