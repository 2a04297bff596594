//! Agent: a model with instructions, tools and peers, served as a chat API.

use std::collections::BTreeMap;

use k8s_openapi::{api::core::v1::EnvVar, apimachinery::pkg::apis::meta::v1::Condition};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::common::{ContainerOverride, DeploymentStatus, GatewayRoute, Phase, PodSpecPatch, Telemetry};
use crate::{
    names::{self, Kind},
    schema::{agents, embedded, env, mcp_servers, model_api, on},
};

/// An agent: it answers chats with the model of a ModelAPI, the tools of MCPServers and the help of its peers.
#[derive(Clone, Debug, PartialEq, CustomResource, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "kaos.tools",
    version = "v1alpha1",
    kind = "Agent",
    plural = "agents",
    shortname = "agent",
    shortname = "agents",
    category = "kaos",
    namespaced,
    status = "AgentStatus",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    derive = "PartialEq",
    doc = "Agent answers chats with the model of a ModelAPI, the tools of MCPServers and the help of its peers.",
    validation = names::own_name(Kind::Agent),
    validation = Rule::new("!has(self.spec.agentNetwork) || !has(self.spec.agentNetwork.access) || \
                            !(self.metadata.name in self.spec.agentNetwork.access)")
        .message(Message::Expression(
            "'names the agent itself, which cannot be its own peer: remove ' + self.metadata.name".to_owned()))
        .field_path(".spec.agentNetwork.access"),
    printcolumn(name = "ModelAPI", type_ = "string", json_path = ".spec.modelAPI"),
    printcolumn(name = "Model", type_ = "string", json_path = ".spec.model"),
    printcolumn(name = "Ready", type_ = "boolean", json_path = ".status.ready"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct AgentSpec {
    /// The name of a ModelAPI in the same namespace.
    #[serde(rename = "modelAPI")]
    #[schemars(transform = model_api)]
    pub model_api: String,
    /// The model to ask. The ModelAPI has to serve it. May be left out where container.env sets MODEL_NAME.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub model: Option<String>,
    /// Names of MCPServers in the same namespace, whose tools the agent may call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100), transform = mcp_servers)]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub mcp_servers: Vec<String>,
    /// Who reaches the agent, and whom it reaches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_network: Option<AgentNetwork>,
    /// What the agent is and how it works.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<AgentConfig>,
    /// Whether the agent's first pods are made only once its ModelAPI and MCPServers are ready, and it is ready only
    /// while they and its peers are. Default: true.
    #[serde(default = "on")]
    pub wait_for_dependencies: bool,
    /// How many pods. Left out, it is up to whoever scales the Deployment, and one at first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub replicas: Option<i32>,
    /// The agent's route through the Gateway, where the operator has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway_route: Option<GatewayRoute>,
    /// Changes to the generated container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<ContainerOverride>,
    /// Changes to the generated pod: a strategic merge patch. The container is called `agent`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_spec: Option<PodSpecPatch>,
}

impl AgentSpec {
    /// Whether the agent gets a Service.
    pub fn exposed(&self) -> bool {
        self.agent_network.as_ref().is_none_or(|network| network.expose)
    }

    /// The names of the peers, as they were given.
    pub fn peers(&self) -> &[String] {
        self.agent_network
            .as_ref()
            .map(|network| network.access.as_slice())
            .unwrap_or_default()
    }
}

/// Who reaches the agent, and whom it reaches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentNetwork {
    /// Whether the agent gets a Service, and with it an endpoint and a route. Default: true.
    #[serde(default = "on")]
    pub expose: bool,
    /// Names of Agents in the same namespace that this one may delegate to. It is ready when they are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100), transform = agents)]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub access: Vec<String>,
}

/// What the agent is and how it works.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentConfig {
    /// What the agent does, for people and for other agents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The system prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
    /// How often the model may be asked before the agent has to answer, 1 to 20. Default: 5.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 20))]
    pub reasoning_loop_max_steps: Option<i32>,
    /// What the agent remembers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<AgentMemory>,
    /// Where traces, metrics and logs are sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub telemetry: Option<Telemetry>,
    /// Older spelling of reasoningLoopMaxSteps, with switches for tools and delegation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agentic_loop: Option<AgenticLoop>,
    /// Older spelling of container.env, which wins where both name a variable.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = env)]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub env: Vec<EnvVar>,
}

/// How the agent works towards an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgenticLoop {
    /// Older spelling of reasoningLoopMaxSteps, which wins where both are given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 20))]
    pub max_steps: Option<i32>,
    /// Whether the agent may call tools. Default: true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enable_tools: Option<bool>,
    /// Whether the agent may delegate to its peers. Default: true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enable_delegation: Option<bool>,
}

/// What the agent remembers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentMemory {
    /// Whether it remembers anything. Default: true.
    #[serde(default = "on")]
    pub enabled: bool,
    /// Where memory is kept: local, in the agent's own process, gone when its pod goes. Default: local.
    #[serde(default, rename = "type")]
    pub type_: MemoryType,
    /// How many messages of a session are passed on as context, 1 to 100. Default: 6.
    #[serde(default = "context_limit")]
    #[schemars(range(min = 1, max = 100))]
    pub context_limit: i32,
    /// How many sessions are kept, 1 to 100000; beyond it the oldest go. Default: 1000.
    #[serde(default = "max_sessions")]
    #[schemars(range(min = 1, max = 100_000))]
    pub max_sessions: i32,
    /// How many events of a session are kept, 1 to 10000; beyond it the oldest go. Default: 500.
    #[serde(default = "max_session_events")]
    #[schemars(range(min = 1, max = 10_000))]
    pub max_session_events: i32,
}

fn context_limit() -> i32 {
    6
}

fn max_sessions() -> i32 {
    1000
}

fn max_session_events() -> i32 {
    500
}

/// Where memory is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum MemoryType {
    /// In the agent's own memory, gone when its pod goes.
    #[default]
    #[serde(rename = "local")]
    Local,
}

/// How far the agent has come.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentStatus {
    /// The state in one word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// Whether the agent of `observedGeneration` answers.
    #[serde(default)]
    pub ready: bool,
    /// What it waits for, or what has to be changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Where the agent is reached within the cluster. Absent while it has no Service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// The generation that this status tells of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// What the agent uses, by name: its ModelAPI under `modelapi`, each MCPServer under `mcpserver.NAME`, each
    /// peer under `agent.NAME`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub linked_resources: BTreeMap<String, String>,
    /// The state in detail.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = embedded)]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// How many pods there are, for whoever scales the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// The label selector of the pods, as text, for whoever scales the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
    /// What the agent's Deployment says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deployment: Option<DeploymentStatus>,
}
