//! MCPServer: tools, served over the Model Context Protocol.

use k8s_openapi::{
    api::core::v1::{EnvVar, SecretKeySelector},
    apimachinery::pkg::apis::meta::v1::Condition,
};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::common::{ContainerOverride, DeploymentStatus, GatewayRoute, Phase, PodSpecPatch, Telemetry};
use crate::{
    names::{self, Kind},
    schema::{embedded, env, key_ref, object_name},
};

/// Tools, served over the Model Context Protocol.
#[derive(Clone, Debug, PartialEq, CustomResource, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "kaos.tools",
    version = "v1alpha1",
    kind = "MCPServer",
    plural = "mcpservers",
    shortname = "mcp",
    shortname = "mcps",
    category = "kaos",
    namespaced,
    status = "MCPServerStatus",
    derive = "PartialEq",
    doc = "MCPServer serves tools over the Model Context Protocol.",
    validation = names::own_name(Kind::McpServer),
    printcolumn(name = "Runtime", type_ = "string", json_path = ".spec.runtime"),
    printcolumn(name = "Ready", type_ = "boolean", json_path = ".status.ready"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.runtime) || has(self.type)")
    .message("name one that the operator knows, such as python-string, or write custom and add container.image")
    .field_path(".runtime").reason(Reason::FieldValueRequired))]
#[x_kube(validation = Rule::new(
    "has(self.runtime) || !has(self.type) || (has(self.config) && \
     (has(self.config.tools) || has(self.config.mcp) || has(self.config.toolsString)))")
    .message("type needs tools: add config.tools with one of fromPackage, fromString and fromSecretKeyRef, or better \
              write runtime and params in place of type and config")
    .field_path(".config").reason(Reason::FieldValueRequired))]
#[x_kube(validation = Rule::new(
    "has(self.runtime) || !has(self.type) || self.type != 'node-runtime' || !has(self.config) || \
     (has(self.config.tools) ? has(self.config.tools.fromPackage) : has(self.config.mcp) || !has(self.config.toolsString))")
    .message("node-runtime serves packages of npm: name one in config.tools.fromPackage, or write type: python-runtime \
              for Python functions")
    .field_path(".type"))]
#[x_kube(validation = Rule::new(
    "!has(self.runtime) || self.runtime != 'custom' || (has(self.container) && has(self.container.image))")
    .message("runtime custom needs container.image: name the image that serves the tools on port 8000")
    .field_path(".container").reason(Reason::FieldValueRequired))]
#[x_kube(validation = Rule::new("!has(self.runtime) || self.runtime != 'custom' || !has(self.params)")
    .message("runtime custom takes no params: remove them, and give the image what it needs in container.env")
    .field_path(".params").reason(Reason::FieldValueForbidden))]
pub struct MCPServerSpec {
    /// The program that serves the tools: a runtime that the operator knows, or custom, which is the image of
    /// container.image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub runtime: Option<String>,
    /// What the runtime is to serve; to python-string the source of Python functions, each of which is a tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub params: Option<String>,
    /// The name of the pods' ServiceAccount in the same namespace, for tools that speak to the Kubernetes API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    #[x_kube(validation = object_name())]
    pub service_account_name: Option<String>,
    /// Where traces, metrics and logs are sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub telemetry: Option<Telemetry>,
    /// The server's route through the Gateway, where the operator has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway_route: Option<GatewayRoute>,
    /// Changes to the generated container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<ContainerOverride>,
    /// Changes to the generated pod: a strategic merge patch. The container is called `mcp-server`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_spec: Option<PodSpecPatch>,
    /// Older spelling of runtime, which wins where both are given.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "type")]
    pub type_: Option<OlderServerType>,
    /// Older spelling of params and container.env, read together with type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<OlderServerConfig>,
}

// What begins with a dash is an option to the program that installs.
const PACKAGE_RULE: &str = "!self.startsWith('-')";
const PACKAGE_MESSAGE: &str = "no package: write its name, with a version if need be, such as my-tools==1.2";

/// The language of the tools, in the older spelling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OlderServerType {
    /// Python.
    #[serde(rename = "python-runtime")]
    Python,
    /// Node.js.
    #[serde(rename = "node-runtime")]
    Node,
}

/// What is served, in the older spelling.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.mcp) || !has(self.toolsString)")
    .message("mcp and toolsString both give the tools: remove one of them"))]
pub struct OlderServerConfig {
    /// Where the tools are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<OlderTools>,
    /// The oldest spelling of tools.fromPackage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    #[x_kube(validation = Rule::new(PACKAGE_RULE).message(PACKAGE_MESSAGE))]
    pub mcp: Option<String>,
    /// The oldest spelling of tools.fromString.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub tools_string: Option<String>,
    /// Older spelling of container.env, which wins where both name a variable.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = env)]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub env: Vec<EnvVar>,
}

/// Where the tools are, in the older spelling.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new(
    "[has(self.fromPackage), has(self.fromString), has(self.fromSecretKeyRef)].filter(given, given).size() == 1")
    .message("give exactly one of fromPackage, fromString and fromSecretKeyRef"))]
pub struct OlderTools {
    /// A package that is a tool server, with a version if need be: of PyPI with type python-runtime, of npm with
    /// type node-runtime.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    #[x_kube(validation = Rule::new(PACKAGE_RULE).message(PACKAGE_MESSAGE))]
    pub from_package: Option<String>,
    /// The source of Python functions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub from_string: Option<String>,
    /// The source of Python functions, in a Secret of the same namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = key_ref)]
    pub from_secret_key_ref: Option<SecretKeySelector>,
}

/// How far the MCPServer has come.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct MCPServerStatus {
    /// The state in one word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// Whether the server of `observedGeneration` answers.
    #[serde(default)]
    pub ready: bool,
    /// What it waits for, or what has to be changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Where the server is reached within the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// The tools that the running server lists.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub available_tools: Vec<String>,
    /// The generation that this status tells of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The state in detail.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = embedded)]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// How many pods there are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// The label selector of the pods, as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
    /// What the Deployment says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deployment: Option<DeploymentStatus>,
}
