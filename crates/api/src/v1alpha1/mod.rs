//! Version `v1alpha1`, the only one.
#![allow(
    unreachable_pub,
    reason = "KubeSchema repeats each type inside a function, where the lint takes it for the type itself"
)]

mod agent;
mod common;
mod mcp_server;
mod model_api;

pub use agent::{
    Agent, AgentConfig, AgentMemory, AgentNetwork, AgentSpec, AgentStatus, AgenticLoop, MemoryType,
};
pub use common::{ContainerOverride, DeploymentStatus, GatewayRoute, Phase, PodSpecPatch, Telemetry};
pub use mcp_server::{
    MCPServer, MCPServerSpec, MCPServerStatus, OlderServerConfig, OlderServerType, OlderTools,
};
pub use model_api::{
    ApiKey, ApiKeySource, ConfigYaml, HostedConfig, ModelAPI, ModelAPISpec, ModelAPIStatus, ModelApiMode,
    NATIVE_PROVIDERS, ProxyConfig, ProxyRuntime,
};
