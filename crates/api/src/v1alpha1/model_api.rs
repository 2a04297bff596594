//! ModelAPI: models, served as an OpenAI-compatible API.

use k8s_openapi::{
    api::core::v1::{ConfigMapKeySelector, EnvVar, SecretKeySelector},
    apimachinery::pkg::apis::meta::v1::Condition,
};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::common::{ContainerOverride, DeploymentStatus, GatewayRoute, Phase, PodSpecPatch, Telemetry};
use crate::{
    names::{self, Kind},
    schema::{embedded, env, key_ref},
};

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
    validation = names::own_name(Kind::ModelApi),
    printcolumn(name = "Mode", type_ = "string", json_path = ".spec.mode"),
    printcolumn(name = "Ready", type_ = "boolean", json_path = ".status.ready"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self.mode != 'Proxy' || has(self.proxyConfig)")
    .message("mode Proxy needs it: add proxyConfig with at least one name in models")
    .field_path(".proxyConfig").reason(Reason::FieldValueRequired))]
#[x_kube(validation = Rule::new(
    "self.mode != 'Hosted' || (has(self.hostedConfig) && has(self.hostedConfig.model)) || \
     (has(self.serverConfig) && has(self.serverConfig.model))")
    .message("mode Hosted needs it: add hostedConfig with the Ollama model in model, such as smollm2:135m")
    .field_path(".hostedConfig").reason(Reason::FieldValueRequired))]
pub struct ModelAPISpec {
    /// Where the models are: Proxy passes requests on to a provider, Hosted runs a model with Ollama.
    pub mode: ModelApiMode,
    /// The models of mode Proxy and their provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_config: Option<ProxyConfig>,
    /// The model of mode Hosted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hosted_config: Option<HostedConfig>,
    /// Older spelling of hostedConfig, which wins where both are given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_config: Option<HostedConfig>,
    /// Where traces, metrics and logs are sent. Ollama sends none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub telemetry: Option<Telemetry>,
    /// The API's route through the Gateway, where the operator has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway_route: Option<GatewayRoute>,
    /// Changes to the generated container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<ContainerOverride>,
    /// Changes to the generated pod: a strategic merge patch. The container is called `model-api`, the step that
    /// pulls a hosted model `pull-model`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_spec: Option<PodSpecPatch>,
}

/// Where the models are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ModelApiMode {
    /// With a provider, to which requests are passed on.
    Proxy,
    /// In the cluster, run by Ollama.
    Hosted,
}

/// The model that Ollama runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct HostedConfig {
    /// The model, as Ollama names it: smollm2:135m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    #[x_kube(validation = Rule::new("!self.matches('[[:space:]]')")
        .message("no model: the names that Ollama knows have no spaces, such as smollm2:135m"))]
    pub model: Option<String>,
    /// Older spelling of container.env, which wins where both name a variable.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = env)]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub env: Vec<EnvVar>,
}

/// The program that passes requests on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ProxyRuntime {
    /// LiteLLM, which speaks to many providers.
    #[default]
    #[serde(rename = "LiteLLM")]
    LiteLlm,
    /// The proxy that comes with KAOS: the usual providers, servers that speak the OpenAI API, and mock, a test model.
    Native,
}

/// CEL: whether the requests go to the provider mock.
const ASKS_MOCK: &str = "has(self.provider) ? self.provider == 'mock' : \
    has(self.models) ? self.models.exists(m, m == 'mock' || m.startsWith('mock/')) : \
    has(self.model) && (self.model == 'mock' || self.model.startsWith('mock/'))";
/// The providers that the native proxy has, as LiteLLM names them.
pub const NATIVE_PROVIDERS: &[&str] = &[
    "anthropic",
    "azure",
    "cerebras",
    "custom_openai",
    "dashscope",
    "deepinfra",
    "deepseek",
    "gemini",
    "github",
    "groq",
    "hosted_vllm",
    "litellm_proxy",
    "llamafile",
    "lm_studio",
    "meta_llama",
    "mistral",
    "mock",
    "moonshot",
    "nvidia_nim",
    "ollama",
    "ollama_chat",
    "openai",
    "openrouter",
    "perplexity",
    "sambanova",
    "together_ai",
    "xai",
];
/// CEL: whether the provider is one that the native proxy has.
fn is_native_provider() -> String {
    format!("self.provider in ['{}']", NATIVE_PROVIDERS.join("', '"))
}
/// CEL: whether all models name their provider. Which the native proxy has is not asked here: that would cost more
/// than an API server grants.
const MODELS_NAME_PROVIDERS: &str = "(has(self.models) ? self.models.all(m, m == 'mock' || m.contains('/')) : \
    self.model == 'mock' || self.model.contains('/'))";

/// The models of a proxy and their provider.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.models) || has(self.model) || has(self.apiBase) || has(self.configYaml)")
    .message("name at least one model, or * for all that the provider has")
    .field_path(".models").reason(Reason::FieldValueRequired))]
#[x_kube(validation = Rule::new(format!("self.runtime != 'LiteLLM' || !({ASKS_MOCK})"))
    .message("LiteLLM, the default runtime, has no provider mock: add runtime: Native").field_path(".runtime"))]
#[x_kube(validation = Rule::new(format!("!has(self.apiBase) || !({ASKS_MOCK})"))
    .message(Message::Expression("'the provider mock asks no server: remove apiBase ' + self.apiBase".to_owned()))
    .field_path(".apiBase").reason(Reason::FieldValueForbidden))]
#[x_kube(validation = Rule::new(format!("!has(self.apiKey) || !({ASKS_MOCK})"))
    .message("the provider mock needs no key: remove apiKey")
    .field_path(".apiKey").reason(Reason::FieldValueForbidden))]
#[x_kube(validation = Rule::new(format!(
    "self.runtime != 'Native' || has(self.configYaml) || !has(self.provider) || {}", is_native_provider()))
    .message(Message::Expression(
        "'runtime Native has no provider ' + self.provider + ': write provider: openai and its apiBase for a server \
         that speaks the OpenAI API, or runtime: LiteLLM'".to_owned()))
    .field_path(".provider"))]
#[x_kube(validation = Rule::new(format!(
    "self.runtime != 'Native' || has(self.configYaml) || has(self.provider) || has(self.apiBase) || \
     !(has(self.models) || has(self.model)) || {MODELS_NAME_PROVIDERS}"))
    .message("runtime Native needs to know where the models are: add provider, such as openai, or apiBase")
    .field_path(".provider").reason(Reason::FieldValueRequired))]
pub struct ProxyConfig {
    /// The program that passes requests on: LiteLLM, which speaks to many providers, or Native, the proxy that
    /// comes with KAOS, for the usual ones, for servers that speak the OpenAI API and for the provider mock.
    /// Default: LiteLLM.
    #[serde(default)]
    pub runtime: ProxyRuntime,
    /// The models that may be asked for: names, PREFIX/* for all that begin with PREFIX/, or * for all.
    // The bounds keep the cost of the rules above within what an API server grants.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 1000), inner(length(min = 1, max = 256)))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub models: Vec<String>,
    /// Older spelling of models, for one model; models wins where both are given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub model: Option<String>,
    /// The provider, as LiteLLM names it: openai, anthropic, ollama, and others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub provider: Option<String>,
    /// The address of the provider's API, such as http://models.example.com:8000/v1. Default: the provider's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    #[x_kube(validation = Rule::new("self.matches('^https?://[^/?#[:space:]][^[:space:]]*$')")
        .message("no address: write http:// or https:// and a host, such as http://models.example.com:8000/v1"))]
    pub api_base: Option<String>,
    /// The key for the provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key: Option<ApiKey>,
    /// The proxy's configuration file, in place of a generated one. Models that it names have to be in models.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_yaml: Option<ConfigYaml>,
    /// Older spelling of container.env, which wins where both name a variable.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = env)]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub env: Vec<EnvVar>,
}

/// A configuration file in LiteLLM's form.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.fromString) != has(self.fromSecretKeyRef)")
    .message("give exactly one of fromString and fromSecretKeyRef"))]
pub struct ConfigYaml {
    /// The file itself. Whoever may read this object reads it: a key belongs in a Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub from_string: Option<String>,
    /// The file in a Secret of the same namespace. Pods mount it; the operator never reads it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = key_ref)]
    pub from_secret_key_ref: Option<SecretKeySelector>,
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
    #[schemars(transform = key_ref)]
    pub secret_key_ref: Option<SecretKeySelector>,
    /// A key of a ConfigMap in the same namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = key_ref)]
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
