//! What Agents, ModelAPIs and MCPServers become: Deployments, Services, ConfigMaps and routes, and a status.
//!
//! One folder per kind, the same steps in each: `resolve` reads what a resource refers to, `validate` makes of it a
//! type that cannot be wrong, and `build` the desired objects. What happens to objects is the same for all kinds
//! and stands in `common`: `apply` makes the live objects what was built, `status` tells what was observed, and
//! `driver` puts the steps in order. Each step takes only what the step before it returned.
//!
//! The controllers speak the Kubernetes API and nothing else (except to the tool servers, whose tools they
//! list). They do not know whether a cluster is behind it or the local node.

mod agent;
mod common;
mod config;
mod listing;
mod mcp_server;
mod model_api;
mod run;
#[cfg(test)]
mod texts;

pub use config::{
    Config, ConfigMapRef, Gateway, Images, RoleImage, RouteTimeouts, Runtime, TelemetryDefaults,
};
pub use listing::Listing;
pub use run::{Error, run, run_telling};
