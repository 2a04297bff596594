//! The gateway beside a Kubernetes API, embedded or real, with backends on loopback: what it serves, whom it lets
//! in, and what it says in statuses.

// A test that cannot go on should panic, in its helpers as well.
#![allow(clippy::unwrap_used, clippy::panic)]

mod access;
mod routing;
mod statuses;
mod streams;
mod support;
