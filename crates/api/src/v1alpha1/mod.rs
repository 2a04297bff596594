//! Version `v1alpha1`, the only one.
#![allow(
    unreachable_pub,
    reason = "KubeSchema repeats each type inside a function, where the lint takes it for the type itself"
)]

mod agent;
mod common;
mod mcp_server;
mod model_api;

pub use agent::{Agent, AgentConfig, AgentNetwork, AgentSpec, AgentStatus};
pub use common::{ContainerOverride, DeploymentStatus, Phase};
pub use mcp_server::{MCPServer, MCPServerSpec, MCPServerStatus};
pub use model_api::{
    ApiKey, ApiKeySource, ModelAPI, ModelAPISpec, ModelAPIStatus, ModelApiMode, ProxyConfig, ProxyRuntime,
};
