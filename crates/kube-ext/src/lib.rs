//! What kube-rs lacks for our controllers: watches that back off one by one, server-side apply that sends
//! nothing without need and touches nothing foreign, taking over from another program, pruning by owner,
//! strategic merge of pod specs, conditions, and a backoff for each object.
//!
//! Everything here works on any kind. It knows none of ours, and decides nothing about what an object is to
//! contain.

mod answer;
mod apply;
mod backoff;
mod compare;
mod conditions;
mod election;
mod finalizers;
mod handover;
mod merge;
mod optional;
mod owner;
mod prune;
mod quantity;
mod readable;
mod release;
mod seen;
mod settled;
mod status;
mod version;
mod watch;

pub use answer::answer;
pub use apply::{Applier, ApplyError, Operation, Others};
pub use backoff::Backoff;
pub use conditions::{Observed, condition, set_condition};
pub use election::{Candidate, Leader, Lost, Terms};
pub use finalizers::drop_finalizers;
pub use merge::{MergeError, merge_pod_spec};
pub use optional::{Availability, watched_optional};
pub use owner::{controller_of, is_controlled_by};
pub use prune::{PruneError, prune};
pub use seen::Fingerprint;
pub use version::is_older;
pub use watch::{watched, watched_modified};
