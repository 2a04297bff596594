//! The agent: answers the Chat Completions API by asking a model and calling the tools of MCP servers until
//! the model has an answer.
//!
//! [`run`] is the loop itself, a state machine without I/O. Around it: the model's client, the toolbox, the
//! driver that does the steps, and the HTTP server. The agent knows nothing of Kubernetes: its environment
//! tells it what it is ([`Config`]).

mod config;
mod dependencies;
mod drive;
mod model;
mod pace;
pub mod run;
mod server;
#[cfg(test)]
mod testing;
mod tools;

use std::{io, sync::Arc};

use kaos_seams::Seams;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

pub use config::{Config, ConfigError, McpServer};

use crate::{
    dependencies::Dependencies,
    model::{Model, ModelClient},
    server::App,
    tools::{McpSource, ToolSource, Toolbox},
};

/// Why an agent does not serve.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No HTTP client for the model could be made.
    #[error("HTTP client for the model API cannot be set up: {0}")]
    Model(#[source] reqwest::Error),
    /// No client for an MCP server could be made.
    #[error("client for the MCP server {name} cannot be set up: {reason}")]
    McpServer {
        /// The server.
        name: String,
        /// Why.
        reason: String,
    },
    /// The listener failed.
    #[error("agent cannot serve: {0}")]
    Serve(#[source] io::Error),
}

/// Serves the agent on `listener` until `shutdown`; answers that have begun may then end within
/// [`Config::shutdown_grace`].
///
/// A TLS provider must be installed before (`kaos_telemetry::install_crypto_provider`).
///
/// # Errors
/// If a client cannot be set up or the listener fails.
pub async fn serve(
    config: Config,
    listener: TcpListener,
    seams: Seams,
    shutdown: CancellationToken,
) -> Result<(), Error> {
    let model =
        ModelClient::new(&config.model_api_url, config.model_timeout, seams.clone()).map_err(Error::Model)?;
    let model: Arc<dyn Model> = Arc::new(model);
    let mut sources: Vec<Arc<dyn ToolSource>> = Vec::new();
    for server in config.mcp_servers.iter().filter(|_| config.enable_tools) {
        let source = McpSource::new(server, &seams).map_err(|error| Error::McpServer {
            name: server.name.clone(),
            reason: error.to_string(),
        })?;
        sources.push(Arc::new(source));
    }
    let dependencies = Arc::new(Dependencies::new(model, Arc::new(Toolbox::new(sources))));
    server::serve(App::new(config, dependencies, seams), listener, shutdown)
        .await
        .map_err(Error::Serve)
}
