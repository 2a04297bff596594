//! The controllers of this project against a Kubernetes API.
//!
//! Seen from outside only: a test writes resources as a user would, plays the kubelet, and looks at the
//! objects and the status that come of it.

mod agent;
mod defects;
mod defects_mcp_server;
mod defects_model_api;
mod defects_routes;
mod failing;
mod faults;
mod leftovers;
mod mcp_server;
mod model_api;
mod quiet;
mod refused;
mod world;
