//! What Agents, ModelAPIs and MCPServers become: Deployments, Services and ConfigMaps, and a status.
//!
//! One folder per kind, the same files in each: `resolve` reads what a resource refers to, `validate` makes
//! of it a type that cannot be wrong, `build` the desired objects, `apply` the live ones, and `status` tells
//! what was observed. Each step takes only what the step before it returned; `mod.rs` puts them in order.
//!
//! The controllers speak the Kubernetes API and nothing else (except to the tool servers, whose tools they
//! list). They do not know whether a cluster is behind it or the local node.

mod agent;
mod common;
mod config;
mod mcp_server;
mod model_api;
mod run;

pub use config::{Config, Images, RoleImage, Runtime};
pub use run::{Error, run};
