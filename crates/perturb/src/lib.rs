//! Crash at every write: controllers, disturbed in every way that a cluster may disturb them, and compared
//! with a run in which nothing went wrong.
//!
//! The crate knows no kind and no controller. A [`Subject`] says how to start some and what to install for
//! them, a [`Scenario`] (data) says what a user does. [`sweep`] runs each scenario undisturbed, which shows
//! what there is to disturb, and then once for every [`Fault`]:
//!
//! - each write of the controllers: they crash before it or after it; it is answered with 409, 429 or 500;
//!   it is stored and the answer never comes;
//! - each watch: it breaks after every number of events; what comes after is never seen, but for the last;
//! - the controllers are away while the user acts, or restarted when all is done;
//! - each object they made: deleted, and each field that they own changed or removed by somebody else.
//!
//! Everything happens in one process, on the embedded API server, in simulated time: a case of an hour takes
//! milliseconds. The controllers reach the server over a [wire](wire) of this crate, which sees all that they
//! ask, does the faults, and is cut where they crash: what a crashed process left running reaches nothing.
//! Users, bystanders and the rest of the cluster are not on that wire.
//!
//! Every run is held against the [`Oracle`]s. A case counts only where its fault really happened. What fails
//! is [made small](shrink) and printed as one line of text that [`replay`](sweep::replay) takes.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "only tests use this crate, and what goes wrong in it fails the test with a message"
)]

mod cluster;
mod edit;
mod fault;
mod judge;
mod lab;
mod mirror;
mod normal;
mod oracle;
mod panics;
mod run;
mod sample;
mod scenario;
pub mod shrink;
mod subject;
pub mod surroundings;
pub mod sweep;
mod wire;

pub use cluster::Cluster;
pub use fault::{Fault, Tamper, Through, WatchFault, WriteFault};
pub use mirror::{Key, World};
pub use oracle::{Oracle, Violation};
pub use scenario::{Case, Scenario, Step};
pub use subject::{Limits, ReadyRule, Start, Subject, Surroundings};
