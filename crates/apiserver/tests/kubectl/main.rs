//! The server as kubectl sees it: the real program against the HTTPS front.
//!
//! `KUBECTL` names the program, else the one in `PATH` is used. Without one the tests say that they are
//! skipped; where `CI` is `true` they fail.

// The harness is test code too, but clippy only knows that of functions marked as tests.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod fixtures;
mod harness;
mod pods;
mod read;
mod watch;
mod write;
