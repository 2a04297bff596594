//! The tool server and the MCP client, over HTTP and with real Python workers.

// A test that cannot go on should panic, in its helpers as well.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod bridge;
mod client;
mod common;
mod http;
mod packages;
mod python_tools;
mod source_file;
mod telemetry;
mod workers;
