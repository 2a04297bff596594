//! Where tools come from.

use std::time::Duration;

use async_trait::async_trait;
use kaos_mcp::client::{ClientError, McpClient, ToolInfo, ToolOutcome};
use kaos_seams::Seams;
use kaos_telemetry::TraceContext;
use serde_json::{Map, Value};
use url::Url;

use crate::config::McpServer;

/// A server of tools.
#[async_trait]
pub(crate) trait ToolSource: Send + Sync {
    /// Its name among the agent's servers.
    fn name(&self) -> &str;

    /// Where it is, if that is known.
    fn url(&self) -> Option<&Url> {
        None
    }

    /// Its tools.
    async fn list_tools(&self, deadline: Duration) -> Result<Vec<ToolInfo>, ClientError>;

    /// Calls one of them, as part of `trace`. A tool that ran and failed is an outcome; an error says that it may not have run.
    async fn call_tool(
        &self,
        tool: &str,
        arguments: Map<String, Value>,
        deadline: Duration,
        trace: &TraceContext,
    ) -> Result<ToolOutcome, ClientError>;
}

/// An MCP server.
#[derive(Debug)]
pub(crate) struct McpSource {
    name: String,
    client: McpClient,
}

impl McpSource {
    /// The server of a configuration.
    pub(crate) fn new(server: &McpServer, seams: &Seams) -> Result<Self, ClientError> {
        Ok(Self {
            name: server.name.clone(),
            client: McpClient::new(server.url.as_str(), seams)?,
        })
    }
}

#[async_trait]
impl ToolSource for McpSource {
    fn name(&self) -> &str {
        &self.name
    }

    fn url(&self) -> Option<&Url> {
        Some(self.client.endpoint())
    }

    async fn list_tools(&self, deadline: Duration) -> Result<Vec<ToolInfo>, ClientError> {
        self.client.list_tools(deadline).await
    }

    async fn call_tool(
        &self,
        tool: &str,
        arguments: Map<String, Value>,
        deadline: Duration,
        trace: &TraceContext,
    ) -> Result<ToolOutcome, ClientError> {
        self.client.call_tool_in(trace, tool, arguments, deadline).await
    }
}
