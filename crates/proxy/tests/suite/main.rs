//! The proxy over HTTP, before upstreams that behave well and badly.

// A test that cannot go on should panic, in its helpers as well.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod balancing;
mod draining;
mod forwarding;
mod front;
mod limits;
mod providers;
mod reload;
mod setup;
mod transport;
mod watching;
