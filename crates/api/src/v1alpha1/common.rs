//! What all kinds share.

use std::fmt;

use k8s_openapi::{
    api::{apps::v1::DeploymentCondition, core::v1::EnvVar},
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema::embedded;

/// What changes in the generated container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContainerOverride {
    /// Environment variables. One that KAOS sets too has the value given here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = embedded)]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub env: Vec<EnvVar>,
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
