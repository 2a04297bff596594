//! What all kinds share.

use std::fmt;

use k8s_openapi::{
    api::{
        apps::v1::DeploymentCondition,
        core::v1::{EnvVar, PodSpec, ResourceRequirements},
    },
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
};
use kube::KubeSchema;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::schema::{embedded, env, patch, resources};

/// What changes in the generated container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContainerOverride {
    /// The image to run in place of the default one. That of an Agent is started as it was built, without the
    /// generated arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    #[x_kube(validation = Rule::new("self.matches('^[^[:space:]]+$')")
        .message("no image: write its name with a tag or digest and no spaces, such as example.com/agent:1"))]
    pub image: Option<String>,
    /// The program to start, in place of the image's entrypoint.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// The program's arguments, in place of the generated ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// Requested and limited CPU, memory and devices, in place of the default requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = resources)]
    pub resources: Option<ResourceRequirements>,
    /// Environment variables. One that KAOS sets too has the value given here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = env)]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub env: Vec<EnvVar>,
}

/// A resource's route through the Gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct GatewayRoute {
    /// How long a request may take, in h, m, s and ms, such as 30s or 1h30m; 0s is without limit. Default: the
    /// operator's for the kind.
    // The rule is that of the Gateway API's Duration, which refuses longer numbers (GEP-2257).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    #[x_kube(validation = Rule::new("self.matches('^([0-9]{1,5}(h|m|s|ms)){1,4}$')")
        .message("no duration: write one to four numbers of at most five digits, each with a unit h, m, s or ms, \
                  such as 30s or 1h30m"))]
    pub timeout: Option<String>,
}

/// Where traces, metrics and logs are sent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Telemetry {
    /// Whether anything is sent. Default: the operator's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// The address of an OTLP collector (gRPC), such as http://collector:4317. Default: the operator's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub endpoint: Option<String>,
}

/// A strategic merge patch of a pod's spec: whatever a PodSpec has, as a change to the generated one.
///
/// It is kept as it was written: `null` takes a field away, and `$patch: delete` or `replace` in an item or
/// object does what it does in kubectl.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PodSpecPatch(pub Value);

impl JsonSchema for PodSpecPatch {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "PodSpecPatch".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = PodSpec::json_schema(generator);
        patch(&mut schema);
        schema
    }
}

/// How far a resource has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Phase {
    /// Its objects are there; its pods are not ready yet.
    #[default]
    Pending,
    /// Something that it refers to is missing or not ready.
    Waiting,
    /// Its pods run the present specification and are ready.
    Ready,
    /// Something has to be changed before it can go on: see the message.
    Failed,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// What the Deployment said when it was last looked at.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeploymentStatus {
    /// Pods that exist.
    #[serde(default)]
    pub replicas: i32,
    /// Pods that are ready.
    #[serde(default)]
    pub ready_replicas: i32,
    /// Pods that have been ready for long enough.
    #[serde(default)]
    pub available_replicas: i32,
    /// Pods of the present pod template.
    #[serde(default)]
    pub updated_replicas: i32,
    /// The conditions of the Deployment.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = embedded)]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

impl DeploymentStatus {
    /// What `status` says of a Deployment. `absent` is the time of conditions that carry none.
    pub fn observed(status: &k8s_openapi::api::apps::v1::DeploymentStatus, absent: &Time) -> Self {
        let condition = |condition: &DeploymentCondition| Condition {
            type_: condition.type_.clone().unwrap_or_default(),
            status: condition.status.clone().unwrap_or_default(),
            // A Condition must have a reason; a DeploymentCondition need not.
            reason: condition.reason.clone().unwrap_or_else(|| "Unknown".to_owned()),
            message: condition.message.clone().unwrap_or_default(),
            last_transition_time: condition
                .last_transition_time
                .clone()
                .unwrap_or_else(|| absent.clone()),
            observed_generation: None,
        };
        Self {
            replicas: status.replicas.unwrap_or_default(),
            ready_replicas: status.ready_replicas.unwrap_or_default(),
            available_replicas: status.available_replicas.unwrap_or_default(),
            updated_replicas: status.updated_replicas.unwrap_or_default(),
            conditions: status.conditions.iter().flatten().map(condition).collect(),
        }
    }
}
