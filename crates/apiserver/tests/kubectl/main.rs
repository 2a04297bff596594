//! The server as kubectl sees it: the real program against the HTTPS front.
//!
//! `KUBECTL` names the program, else the one in `PATH` is used. Without one the tests say that they are
//! skipped; where `CI` is `true` they fail.

mod fixtures;
mod harness;
mod pods;
mod read;
mod watch;
mod write;
