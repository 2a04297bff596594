//! Everything on one machine: the embedded Kubernetes API, the node, the controllers and the gateway in one
//! process, over one data folder.
//!
//! Owns the data folder and its lock, the identity of the API (certificate and token), the start and stop of
//! an [`Instance`], what is applied to it and how far its resources have come. Nothing below knows that it
//! runs here: the API server knows no kind of ours, the node knows no kind of ours, and the controllers
//! speak to a Kubernetes API like any other.

mod apply;
mod backend;
mod data_dir;
mod defaults;
mod gateway;
mod identity;
mod instance;
mod manifest;
mod progress;
mod routes;

pub use apply::{Applied, ApplyError, Change, apply};
pub use data_dir::{DataDir, DataDirError, Record, running};
pub use defaults::{CONTROL_NAMESPACE, GATEWAY, controllers_config, image_mappings};
pub use gateway::GatewayOptions;
pub use instance::{Instance, Options, StartError, StopError};
pub use kaos_gateway::guard::{NotAnOrigin, Origin};
pub use manifest::{Manifest, ManifestError, load};
pub use progress::{ResourceState, follow};
pub use routes::{RouteAddresses, route_addresses};
