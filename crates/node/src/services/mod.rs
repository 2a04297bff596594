//! Addresses of Services: a loopback port for each `(namespace, service, port)`, kept for as long as the
//! data folder lives, with a forwarder behind it.
//!
//! Owns the table and its file, the forwarders, the EndpointSlices that show what is behind them, and the
//! rewriting of names in the text a program gets. It never starts a process and never decides readiness.

mod allocation;
mod endpoints;
mod forward;
pub mod rewrite;
pub(crate) mod supported;
mod table;
#[cfg(test)]
mod tests;
mod unanswered;

pub(crate) use endpoints::{Endpoints, write_slices};
pub(crate) use table::Moved;
pub use table::{ServiceTable, TableError};
