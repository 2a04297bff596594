//! What the server sets on objects of built-in kinds itself (`pkg/registry/*/strategy.go`). Nobody owns these fields.

use serde_json::{Value, json};

use super::{
    defaults::{object, set},
    jobs, service,
};
use crate::resource::ResourceType;

/// What the server sets on a new object after its fields were tracked: a Namespace's finalizer and phase, the first
/// status of a Pod, the selector of a Job. Not the cluster address of a Service, see [`super::assign_cluster_ip`].
pub(crate) fn prepare_for_create(resource: &ResourceType, value: &mut Value) {
    match (resource.group.as_str(), resource.kind.as_str()) {
        ("", "Namespace") => {
            if let Some(spec) = object(value, "spec") {
                set(spec, "finalizers", json!(["kubernetes"]));
            }
            if let Some(status) = object(value, "status") {
                status.insert("phase".to_owned(), "Active".into());
            }
        }
        ("", "Pod") => {
            let quality = quality_of_service(&value["spec"]);
            if let Some(status) = object(value, "status") {
                status.insert("phase".to_owned(), "Pending".into());
                status.insert("qosClass".to_owned(), quality.into());
            }
        }
        ("", "PersistentVolumeClaim") => {
            if let Some(status) = object(value, "status") {
                status.insert("phase".to_owned(), "Pending".into());
            }
        }
        ("", "Service") => {
            if let Some(status) = object(value, "status") {
                set(status, "loadBalancer", json!({}));
            }
        }
        ("apps", "Deployment" | "ReplicaSet") => {
            if let Some(status) = object(value, "status")
                && resource.kind == "ReplicaSet"
            {
                set(status, "replicas", 0);
            }
        }
        ("batch", "Job") => {
            jobs::generate_selector(value);
            object(value, "status");
        }
        _ => {}
    }
}

/// What an update takes over from the stored object where it is left out, such as a Service's cluster address.
/// Before tracking.
pub(crate) fn prepare_for_update(resource: &ResourceType, new: &mut Value, old: &Value) {
    match (resource.group.as_str(), resource.kind.as_str()) {
        ("", "Service") => service::keep_allocated(new, old),
        // Finalizers of a namespace's spec are only changed through its own subresource.
        ("", "Namespace") => {
            if let (Some(spec), Some(finalizers)) = (object(new, "spec"), old.pointer("/spec/finalizers")) {
                spec.insert("finalizers".to_owned(), finalizers.clone());
            }
        }
        _ => {}
    }
}

/// `Guaranteed` where every container has limits of CPU and memory that equal its requests, `BestEffort` where none
/// asks for anything, else `Burstable` (`pkg/apis/core/v1/helper/qos`).
fn quality_of_service(spec: &Value) -> &'static str {
    let lists = ["containers", "initContainers"].map(|list| spec[list].as_array());
    let containers = lists.into_iter().flatten().flatten();
    let (mut any, mut guaranteed) = (false, true);
    for container in containers {
        let (limits, requests) = (
            &container["resources"]["limits"],
            &container["resources"]["requests"],
        );
        for resource in ["cpu", "memory"] {
            let (limit, request) = (&limits[resource], &requests[resource]);
            any |= !limit.is_null() || !request.is_null();
            guaranteed &= !limit.is_null() && (request.is_null() || request == limit);
        }
    }
    match (any, guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}
