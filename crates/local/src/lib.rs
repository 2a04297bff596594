//! Everything on one machine: the embedded Kubernetes API, the node, the controllers and the gateway in one
//! process, over one data folder.
//!
//! Owns the data folder and its lock, the identity of the API (certificate and token), the start and stop of
//! an [`Instance`], what is applied to it and how far its resources have come. Nothing below knows that it
//! runs here: the API server knows no kind of ours, the node knows no kind of ours, and the controllers
//! speak to a Kubernetes API like any other.

mod apply;
mod backend;
mod changes;
mod convert;
mod data_dir;
mod defaults;
mod doctor;
mod env_file;
mod export;
mod finding;
mod format;
mod gateway;
mod identity;
mod instance;
mod inventory;
mod manifest;
mod offline;
mod positions;
mod progress;
mod references;
mod refusal;
mod routes;

pub use apply::{Applied, ApplyError, Change, apply};
pub use changes::Changes;
pub use convert::{Converted, convert_file};
pub use data_dir::{DataDir, DataDirError, Record, running};
pub use defaults::{CONTROL_NAMESPACE, GATEWAY};
pub use doctor::{Check, Examined, Outcome, examine};
pub use env_file::{ENV_SECRET, env_secrets, restart_readers};
pub use export::{Exported, export};
pub use finding::{Finding, Findings, Severity};
pub use gateway::GatewayOptions;
pub use instance::{Begin, Instance, Options, StartError, StopError};
pub use inventory::{BringError, Brought, Entry, Gone, bring};
pub use kaos_gateway::guard::{NotAnOrigin, Origin};
pub use manifest::{Manifest, load, manifest_files};
pub use offline::{OfflineError, Rendered, Validated, render, validate};
pub use progress::{ResourceState, follow, has_resources};
pub use routes::{RouteAddresses, route_addresses};
