//! A node with real processes against an API server.
#![allow(clippy::unwrap_used, reason = "what goes wrong here fails the test")]

mod ends;
mod jobs;
mod lifecycle;
mod pods;
mod ports;
mod probes;
mod support;
mod volumes;
