//! The agent: answers the Chat Completions API by asking a model, calling the tools of MCP servers and handing
//! tasks to other agents until the model has an answer.
//!
//! [`run`] is the loop itself, a state machine without I/O. Around it: the model's client, the toolbox, the
//! peers, the driver that does the steps, the memory of what happened, and the HTTP server. The agent knows
//! nothing of Kubernetes: its environment tells it what it is ([`Config`]).

mod bounded;
mod config;
mod dependencies;
mod drive;
mod http_client;
mod memory;
mod model;
mod operations;
mod pace;
mod peers;
pub mod run;
mod server;
#[cfg(test)]
mod testing;
mod tools;

use std::{io, sync::Arc};

use kaos_seams::Seams;
use kaos_telemetry::Telemetry;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

pub use config::{Config, ConfigError, McpServer, PeerAgent, ToolCalls};
pub use memory::Limits;

use crate::{
    dependencies::Dependencies,
    model::{ModelClient, mock::MockedModel},
    peers::{PeerClient, PeerSource, Peers},
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
    /// No HTTP client for a peer could be made.
    #[error("HTTP client for the agent {name} cannot be set up: {reason}")]
    Peer {
        /// The peer.
        name: String,
        /// Why.
        #[source]
        reason: reqwest::Error,
    },
    /// The listener failed.
    #[error("agent cannot serve: {0}")]
    Serve(#[source] io::Error),
}

/// Serves the agent on `listener` until `shutdown`; answers that have begun may then end within
/// [`Config::shutdown_grace`]. What it does is told to `telemetry`, which is left on.
///
/// A TLS provider must be installed before (`kaos_telemetry::install_crypto_provider`).
///
/// # Errors
/// If a client cannot be set up or the listener fails.
pub async fn serve(
    config: Config,
    listener: TcpListener,
    seams: Seams,
    telemetry: Telemetry,
    shutdown: CancellationToken,
) -> Result<(), Error> {
    let model =
        ModelClient::new(&config.model_api_url, config.model_timeout, seams.clone()).map_err(Error::Model)?;
    let model = MockedModel::before(Arc::new(model), config.mock_responses.clone());
    let mut sources: Vec<Arc<dyn ToolSource>> = Vec::new();
    for server in config.mcp_servers.iter().filter(|_| config.enable_tools) {
        let source = McpSource::new(server, &seams).map_err(|error| Error::McpServer {
            name: server.name.clone(),
            reason: error.to_string(),
        })?;
        sources.push(Arc::new(source));
    }
    let mut peers: Vec<Arc<dyn PeerSource>> = Vec::new();
    for peer in config.peers.iter().filter(|_| config.enable_delegation) {
        let client = PeerClient::new(peer, &config.name, seams.clone()).map_err(|reason| Error::Peer {
            name: peer.name.clone(),
            reason,
        })?;
        peers.push(Arc::new(client));
    }
    let peers = Arc::new(Peers::new(config.name.clone(), peers));
    let dependencies = Arc::new(Dependencies::new(model, Arc::new(Toolbox::new(sources)), peers));
    server::serve(
        App::new(config, dependencies, seams, telemetry),
        listener,
        shutdown,
    )
    .await
    .map_err(Error::Serve)
}
