//! Agent: a model with instructions and tools, served as a chat API.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use super::common::{ContainerOverride, DeploymentStatus, Phase};
use crate::{
    names,
    schema::{embedded, on},
};

/// An agent: it answers chats with the model of a ModelAPI and the tools of MCPServers.
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
    derive = "PartialEq",
    doc = "Agent answers chats with the model of a ModelAPI and the tools of MCPServers.",
    validation = Rule::new(names::NAME_RULE_AGENT).message(names::NAME_MESSAGE_AGENT),
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
    #[schemars(length(min = 1))]
    pub model_api: String,
    /// The model to ask. The ModelAPI has to serve it.
    #[schemars(length(min = 1))]
    pub model: String,
    /// Names of MCPServers in the same namespace, whose tools the agent may call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(inner(length(min = 1)))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub mcp_servers: Vec<String>,
    /// Who reaches the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_network: Option<AgentNetwork>,
    /// What the agent is and how it works.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<AgentConfig>,
    /// Whether the agent's pods are made only once its ModelAPI and MCPServers are ready.
    #[serde(default = "on")]
    pub wait_for_dependencies: bool,
    /// Changes to the generated container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<ContainerOverride>,
}

impl AgentSpec {
    /// Whether the agent gets a Service.
    pub fn exposed(&self) -> bool {
        self.agent_network.as_ref().is_none_or(|network| network.expose)
    }
}

/// Who reaches the agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentNetwork {
    /// Whether the agent gets a Service, and with it an endpoint.
    #[serde(default = "on")]
    pub expose: bool,
}

/// What the agent is and how it works.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentConfig {
    /// What the agent does, for people and for other agents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The system prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
    /// How often the model may be asked before the agent has to answer.
    #[serde(default = "steps")]
    #[schemars(range(min = 1, max = 20))]
    pub reasoning_loop_max_steps: i32,
}

fn steps() -> i32 {
    5
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
    /// What the agent uses, by name: its ModelAPI under `modelapi`, each MCPServer under `mcpserver.NAME`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub linked_resources: BTreeMap<String, String>,
    /// The state in detail.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = embedded)]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// What the agent's Deployment says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deployment: Option<DeploymentStatus>,
}
