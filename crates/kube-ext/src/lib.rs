//! What kube-rs lacks for our controllers: watches that back off one by one, server-side apply that sends
//! nothing without need, pruning by owner, conditions, and a backoff for each object.
//!
//! Everything here works on any kind. It knows none of ours, and decides nothing about what an object is to
//! contain.

mod apply;
mod backoff;
mod compare;
mod conditions;
mod owner;
mod prune;
mod status;
mod watch;

pub use apply::{Applier, ApplyError, Operation};
pub use backoff::Backoff;
pub use conditions::{Observed, condition, set_condition};
pub use owner::{controller_of, is_controlled_by};
pub use prune::prune;
pub use status::apply_status;
pub use watch::watched;
