//! What controllers do to their pods: made of a template, deleted, and which goes first.

use std::cmp::Reverse;

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Pod, PodTemplateSpec},
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{
    Api, Resource, ResourceExt as _,
    api::{DeleteParams, ObjectMeta, PostParams, Preconditions},
};

use super::Context;
use crate::events::{Type, reference};

/// The annotation that orders pods for deletion: the cheaper goes first.
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// A pod of `owner`'s template, which `owner` controls. `None` for an owner that the API does not know yet.
pub(super) fn of_template<O: Resource<DynamicType = ()>>(
    owner: &O,
    template: &PodTemplateSpec,
) -> Option<Pod> {
    let PodTemplateSpec { metadata, spec } = template.clone();
    let template = metadata.unwrap_or_default();
    let reference = owner.controller_owner_ref(&())?;
    Some(Pod {
        metadata: ObjectMeta {
            generate_name: Some(format!("{}-", owner.name_any())),
            namespace: owner.namespace(),
            labels: template.labels,
            annotations: template.annotations,
            finalizers: template.finalizers,
            owner_references: Some(vec![OwnerReference {
                block_owner_deletion: Some(true),
                ..reference
            }]),
            ..ObjectMeta::default()
        },
        spec,
        ..Pod::default()
    })
}

/// Creates a pod of `owner`, and tells so on `owner`.
pub(super) async fn create<O: Resource<DynamicType = ()>>(
    context: &Context,
    api: &Api<Pod>,
    owner: &O,
    pod: &Pod,
) -> Result<Pod, kube::Error> {
    let created = api.create(&PostParams::default(), pod).await;
    let (kind, reason, message) = match &created {
        Ok(pod) => (
            Type::Normal,
            "SuccessfulCreate",
            format!("Created pod: {}", pod.name_any()),
        ),
        Err(error) => (Type::Warning, "FailedCreate", format!("Error creating: {error}")),
    };
    context.events.report(reference(owner), kind, reason, message);
    created
}

/// Deletes exactly this pod of `owner`, and tells so on `owner`. One that is gone already is no failure.
pub(super) async fn delete<O: Resource<DynamicType = ()>>(
    context: &Context,
    api: &Api<Pod>,
    owner: &O,
    pod: &Pod,
) -> Result<(), kube::Error> {
    let name = pod.name_any();
    let params = DeleteParams {
        preconditions: Some(Preconditions {
            uid: pod.uid(),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    let report = |kind, reason, message| context.events.report(reference(owner), kind, reason, message);
    match api.delete(&name, &params).await {
        Ok(_) => report(Type::Normal, "SuccessfulDelete", format!("Deleted pod: {name}")),
        Err(kube::Error::Api(status)) if status.is_not_found() => {}
        Err(error) => {
            report(Type::Warning, "FailedDelete", format!("Error deleting: {error}"));
            return Err(error);
        }
    }
    Ok(())
}

/// What a pod is worth when some must go: the smallest goes first, by the rules of Kubernetes.
pub(super) fn worth(pod: &Pod) -> impl Ord + use<> {
    let status = pod.status.as_ref();
    let bound = pod
        .spec
        .as_ref()
        .is_some_and(|spec| spec.node_name.as_deref().is_some_and(|n| !n.is_empty()));
    let phase = match status.and_then(|status| status.phase.as_deref()) {
        Some("Running") => 2,
        Some("Unknown") => 1,
        _ => 0,
    };
    let ready_since = ready_since(pod);
    let cost: i32 = pod
        .annotations()
        .get(DELETION_COST)
        .and_then(|cost| cost.parse().ok())
        .unwrap_or(0);
    let restarts = status
        .and_then(|status| status.container_statuses.as_ref())
        .and_then(|containers| containers.iter().map(|container| container.restart_count).max())
        .unwrap_or(0);
    let created = pod.creation_timestamp().map(|time| time.0);
    // Ready for longer and older are worth more; the name only makes the order certain.
    (
        bound,
        phase,
        ready_since.is_some(),
        cost,
        Reverse(ready_since),
        Reverse(restarts),
        Reverse(created),
        pod.name_any(),
    )
}

/// Since when a pod is ready; `None` for one that is not.
pub(super) fn ready_since(pod: &Pod) -> Option<Timestamp> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let ready = conditions
        .iter()
        .find(|condition| condition.type_ == "Ready" && condition.status == "True")?;
    Some(
        ready
            .last_transition_time
            .as_ref()
            .map(|time| time.0)
            .unwrap_or_default(),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(name: &str, node: &str, ready: Option<&str>, extra: serde_json::Value) -> Pod {
        let mut value = json!({ "metadata": { "name": name, "creationTimestamp": "2026-01-01T00:00:00Z" },
            "spec": { "containers": [], "nodeName": node },
            "status": { "phase": "Running", "conditions": ready.map(|since|
                vec![json!({ "type": "Ready", "status": "True", "lastTransitionTime": since })]) } });
        for (key, field) in extra.as_object().unwrap() {
            value["metadata"][key] = field.clone();
        }
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn the_least_useful_pod_goes_first() {
        let early = Some("2026-01-01T00:00:01Z");
        let late = Some("2026-01-01T00:00:09Z");
        let mut pods = [
            pod("ready-long", "n", early, json!({})),
            pod(
                "costly",
                "n",
                late,
                json!({ "annotations": { DELETION_COST: "5" } }),
            ),
            pod("ready-short", "n", late, json!({})),
            pod("unbound", "", None, json!({})),
            pod("not-ready", "n", None, json!({})),
        ];
        pods.sort_by_cached_key(worth);
        let names: Vec<String> = pods.iter().map(kube::ResourceExt::name_any).collect();
        assert_eq!(
            names,
            ["unbound", "not-ready", "ready-short", "ready-long", "costly"]
        );
    }
}
