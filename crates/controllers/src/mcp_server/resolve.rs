//! What an MCPServer refers to: a runtime of the configuration.

use kaos_api::v1alpha1::MCPServer;

use crate::config::{Config, Runtime};

/// The runtime that the MCPServer names, or the names there are.
pub(crate) fn runtime<'a>(server: &MCPServer, config: &'a Config) -> Result<&'a Runtime, Vec<&'a str>> {
    let known = || config.runtimes.keys().map(String::as_str).collect();
    config.runtimes.get(&server.spec.runtime).ok_or_else(known)
}
