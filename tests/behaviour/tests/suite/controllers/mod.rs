//! The controllers of this project against a Kubernetes API.
//!
//! Seen from outside only: a test writes resources as a user would, plays the kubelet, and looks at the
//! objects and the status that come of it.

mod admission;
mod agent;
mod faults;
mod mcp_server;
mod model_api;
mod quiet;
mod world;
