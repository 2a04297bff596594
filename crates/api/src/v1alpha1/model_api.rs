//! ModelAPI: models, served as an OpenAI-compatible API.

use k8s_openapi::{
    api::core::v1::{ConfigMapKeySelector, SecretKeySelector},
    apimachinery::pkg::apis::meta::v1::Condition,
};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::common::{ContainerOverride, DeploymentStatus, Phase};
use crate::{names, schema::embedded};

/// Models, served as an OpenAI-compatible API.
#[derive(Clone, Debug, PartialEq, CustomResource, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "kaos.tools",
    version = "v1alpha1",
    kind = "ModelAPI",
    plural = "modelapis",
    shortname = "api",
    shortname = "apis",
    category = "kaos",
    namespaced,
    status = "ModelAPIStatus",
    derive = "PartialEq",
    doc = "ModelAPI serves models as an OpenAI-compatible API.",
    validation = Rule::new(names::NAME_RULE_MODEL_API).message(names::NAME_MESSAGE_MODEL_API),
    printcolumn(name = "Mode", type_ = "string", json_path = ".spec.mode"),
    printcolumn(name = "Ready", type_ = "boolean", json_path = ".status.ready"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self.mode != 'Proxy' || has(self.proxyConfig)")
    .message("proxyConfig is required where mode is Proxy: add it, with at least one name in proxyConfig.models"))]
pub struct ModelAPISpec {
    /// Where the models are: Proxy passes requests on to a provider.
    pub mode: ModelApiMode,
    /// The models of mode Proxy and their provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_config: Option<ProxyConfig>,
    /// Changes to the generated container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<ContainerOverride>,
}

/// Where the models are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ModelApiMode {
    /// With a provider, to which requests are passed on.
    Proxy,
}

/// The program that passes requests on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ProxyRuntime {
    /// LiteLLM, which speaks to many providers.
    #[default]
    #[serde(rename = "LiteLLM")]
    LiteLlm,
    /// The proxy that comes with KAOS: providers that speak the OpenAI API, and mock, a test model.
    Native,
}

/// The models of a proxy and their provider.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new(
    "self.runtime != 'LiteLLM' || !((has(self.provider) && self.provider == 'mock') || \
     (!has(self.provider) && self.models.exists(m, m == 'mock' || m.startsWith('mock/'))))")
    .message("LiteLLM, the default runtime, has no provider mock: add runtime: Native"))]
#[x_kube(validation = Rule::new(
    "self.runtime != 'Native' || !has(self.provider) || self.provider in ['openai', 'mock']")
    .message("runtime Native has only the providers openai and mock: for a server that speaks the OpenAI API \
              write provider: openai and its apiBase, for anything else runtime: LiteLLM"))]
#[x_kube(validation = Rule::new(
    "!(has(self.apiBase) || has(self.apiKey)) || !((has(self.provider) && self.provider == 'mock') || \
     (!has(self.provider) && self.models.exists(m, m == 'mock' || m.startsWith('mock/'))))")
    .message("the provider mock asks no server: remove apiBase and apiKey"))]
#[x_kube(validation = Rule::new(
    "self.runtime != 'Native' || has(self.provider) || has(self.apiBase) || \
     self.models.all(m, m == 'mock' || m.startsWith('mock/') || m.startsWith('openai/'))")
    .message("runtime Native needs to know where the models are: add provider (openai or mock) or apiBase"))]
pub struct ProxyConfig {
    /// The program that passes requests on.
    #[serde(default)]
    pub runtime: ProxyRuntime,
    /// The models that may be asked for: names, PREFIX/* for all that begin so, or * for all.
    // The bounds keep the cost of the rules above within what an API server grants.
    #[schemars(length(min = 1, max = 1000), inner(length(min = 1, max = 256)))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub models: Vec<String>,
    /// The provider, as LiteLLM names it: openai, anthropic, ollama, and others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub provider: Option<String>,
    /// The address of the provider's API, where it is not the provider's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub api_base: Option<String>,
    /// The key for the provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key: Option<ApiKey>,
}

/// A key, or where to find it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.value) != has(self.valueFrom)")
    .message("give exactly one of value and valueFrom"))]
pub struct ApiKey {
    /// The key itself. Whoever may read this object reads it: better name a Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub value: Option<String>,
    /// Where the key is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value_from: Option<ApiKeySource>,
}

/// Where a key is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.secretKeyRef) != has(self.configMapKeyRef)")
    .message("give exactly one of secretKeyRef and configMapKeyRef"))]
pub struct ApiKeySource {
    /// A key of a Secret in the same namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = embedded)]
    pub secret_key_ref: Option<SecretKeySelector>,
    /// A key of a ConfigMap in the same namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = embedded)]
    pub config_map_key_ref: Option<ConfigMapKeySelector>,
}

/// How far the ModelAPI has come.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelAPIStatus {
    /// The state in one word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// Whether the API of `observedGeneration` answers.
    #[serde(default)]
    pub ready: bool,
    /// What it waits for, or what has to be changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Where the API is reached within the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// The generation that this status tells of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The state in detail.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = embedded)]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// What the Deployment says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deployment: Option<DeploymentStatus>,
}
