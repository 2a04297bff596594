//! ReplicaSets: as many pods of one template as are asked for.

use std::{cmp::Reverse, time::Duration};

use jiff::Timestamp;
use k8s_openapi::{
    api::{
        apps::v1::{ReplicaSet, ReplicaSetCondition, ReplicaSetStatus},
        core::v1::{Pod, PodTemplateSpec},
    },
    apimachinery::pkg::apis::meta::v1::{OwnerReference, Time},
};
use kube::{
    Api, Resource as _, ResourceExt as _,
    api::{DeleteParams, ListParams, ObjectMeta, PostParams, Preconditions},
};

use super::{
    Context,
    ownership::{claim, is_active, selector},
};
use crate::{
    events::{Type, reference},
    watch::Key,
};

const REPLICA_FAILURE: &str = "ReplicaFailure";
/// The annotation that orders pods for deletion: the cheaper goes first.
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// Makes the pods of one ReplicaSet as many as asked for, and its status what they are.
pub(super) async fn reconcile(context: &Context, key: &Key) -> Result<Option<Duration>, kube::Error> {
    let api: Api<ReplicaSet> = Api::namespaced(context.client.clone(), &key.0);
    let Some(replica_set) = api.get_opt(&key.1).await? else {
        return Ok(None);
    };
    let Some(selector) = selector(&replica_set.spec.selector) else {
        return Ok(None);
    };
    let pods: Api<Pod> = Api::namespaced(context.client.clone(), &key.0);
    let listed = pods.list(&ListParams::default()).await?.items;
    let mut own = claim(&pods, listed, &replica_set, &selector).await?;

    let mut failure = None;
    if replica_set.metadata.deletion_timestamp.is_none() {
        failure = scale(context, &pods, &replica_set, &mut own).await;
    }
    let now = context.seams.clock.now();
    let status = status(&replica_set, &own, failure.as_ref(), now);
    let again = until_available(&replica_set, &own, now);
    if replica_set.status.as_ref() != Some(&status) {
        let mut written = replica_set.clone();
        written.status = Some(status);
        match api.replace_status(&key.1, &PostParams::default(), &written).await {
            Err(kube::Error::Api(answer)) if answer.is_not_found() => return Ok(None),
            written => drop(written?),
        }
    }
    match failure {
        Some((_, error)) => Err(error),
        None => Ok(again),
    }
}

/// Creates or deletes pods, and keeps `own` like what is there then. A failure comes with its reason.
async fn scale(
    context: &Context,
    api: &Api<Pod>,
    replica_set: &ReplicaSet,
    own: &mut Vec<Pod>,
) -> Option<(&'static str, kube::Error)> {
    let wanted = replica_set.spec.replicas.unwrap_or(1);
    let wanted = usize::try_from(wanted).unwrap_or(0);
    let active = own.iter().filter(|pod| is_active(pod)).count();
    let object = || reference(replica_set);
    for _ in active..wanted {
        let pod = new_pod(replica_set)?;
        match api.create(&PostParams::default(), &pod).await {
            Ok(pod) => {
                let message = format!("Created pod: {}", pod.name_any());
                context
                    .events
                    .report(object(), Type::Normal, "SuccessfulCreate", message);
                own.push(pod);
            }
            Err(error) => {
                context.events.report(
                    object(),
                    Type::Warning,
                    "FailedCreate",
                    format!("Error creating: {error}"),
                );
                return Some(("FailedCreate", error));
            }
        }
    }
    let mut victims: Vec<Pod> = own.iter().filter(|pod| is_active(pod)).cloned().collect();
    victims.sort_by_cached_key(worth);
    victims.truncate(active.saturating_sub(wanted));
    for victim in victims {
        let name = victim.name_any();
        let params = DeleteParams {
            preconditions: Some(Preconditions {
                uid: victim.uid(),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        match api.delete(&name, &params).await {
            Ok(_) => {
                let message = format!("Deleted pod: {name}");
                context
                    .events
                    .report(object(), Type::Normal, "SuccessfulDelete", message);
                let uid = victim.uid();
                own.retain(|pod| pod.uid() != uid);
            }
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            Err(error) => {
                context.events.report(
                    object(),
                    Type::Warning,
                    "FailedDelete",
                    format!("Error deleting: {error}"),
                );
                return Some(("FailedDelete", error));
            }
        }
    }
    None
}

/// A pod of the ReplicaSet's template.
fn new_pod(replica_set: &ReplicaSet) -> Option<Pod> {
    let PodTemplateSpec { metadata, spec } = replica_set.spec.template.clone()?;
    let template = metadata.unwrap_or_default();
    let owner = replica_set.controller_owner_ref(&())?;
    Some(Pod {
        metadata: ObjectMeta {
            generate_name: Some(format!("{}-", replica_set.name_any())),
            namespace: replica_set.namespace(),
            labels: template.labels,
            annotations: template.annotations,
            finalizers: template.finalizers,
            owner_references: Some(vec![OwnerReference {
                block_owner_deletion: Some(true),
                ..owner
            }]),
            ..ObjectMeta::default()
        },
        spec,
        ..Pod::default()
    })
}

/// What a pod is worth when some must go: the smallest goes first, by the rules of Kubernetes.
fn worth(pod: &Pod) -> impl Ord + use<> {
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
fn ready_since(pod: &Pod) -> Option<Timestamp> {
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

fn min_ready(replica_set: &ReplicaSet) -> Duration {
    let seconds = replica_set.spec.min_ready_seconds.unwrap_or(0);
    Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
}

/// How long until a ready pod counts as available.
fn time_left(pod: &Pod, min_ready: Duration, now: Timestamp) -> Option<Duration> {
    let ready_for = now.duration_since(ready_since(pod)?);
    Some(min_ready.saturating_sub(Duration::try_from(ready_for).unwrap_or_default()))
}

fn until_available(replica_set: &ReplicaSet, own: &[Pod], now: Timestamp) -> Option<Duration> {
    let min_ready = min_ready(replica_set);
    let left = own
        .iter()
        .filter(|pod| is_active(pod))
        .filter_map(|pod| time_left(pod, min_ready, now));
    left.filter(|left| !left.is_zero()).min()
}

fn status(
    replica_set: &ReplicaSet,
    own: &[Pod],
    failure: Option<&(&'static str, kube::Error)>,
    now: Timestamp,
) -> ReplicaSetStatus {
    let template_labels = replica_set
        .spec
        .template
        .as_ref()
        .and_then(|template| template.metadata.as_ref()?.labels.clone())
        .unwrap_or_default();
    let min_ready = min_ready(replica_set);
    let active: Vec<&Pod> = own.iter().filter(|pod| is_active(pod)).collect();
    let count = |holds: &dyn Fn(&Pod) -> bool| {
        i32::try_from(active.iter().filter(|pod| holds(pod)).count()).unwrap_or(i32::MAX)
    };
    let some = |count: i32| (count != 0).then_some(count);
    let labelled = |pod: &Pod| {
        template_labels
            .iter()
            .all(|(key, value)| pod.labels().get(key) == Some(value))
    };
    let terminating = own
        .iter()
        .filter(|pod| pod.metadata.deletion_timestamp.is_some())
        .count();
    let before = replica_set.status.as_ref();
    let mut conditions = before
        .and_then(|status| status.conditions.clone())
        .unwrap_or_default();
    match failure {
        None => conditions.retain(|condition| condition.type_.as_deref() != Some(REPLICA_FAILURE)),
        Some((reason, error)) => {
            let known = conditions.iter().any(|condition| {
                condition.type_.as_deref() == Some(REPLICA_FAILURE)
                    && condition.reason.as_deref() == Some(reason)
            });
            if !known {
                conditions.retain(|condition| condition.type_.as_deref() != Some(REPLICA_FAILURE));
                conditions.push(ReplicaSetCondition {
                    type_: Some(REPLICA_FAILURE.to_owned()),
                    status: Some("True".to_owned()),
                    reason: Some((*reason).to_owned()),
                    message: Some(error.to_string()),
                    last_transition_time: Some(Time(Timestamp::from_second(now.as_second()).unwrap_or(now))),
                });
            }
        }
    }
    ReplicaSetStatus {
        replicas: count(&|_| true),
        fully_labeled_replicas: some(count(&labelled)),
        ready_replicas: some(count(&|pod| ready_since(pod).is_some())),
        available_replicas: some(count(&|pod| {
            time_left(pod, min_ready, now).is_some_and(|left| left.is_zero())
        })),
        terminating_replicas: Some(i32::try_from(terminating).unwrap_or(i32::MAX)),
        observed_generation: replica_set.metadata.generation,
        conditions: (!conditions.is_empty()).then_some(conditions),
    }
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

    #[test]
    fn a_pod_is_available_when_it_was_ready_for_long_enough() {
        let replica_set: ReplicaSet = serde_json::from_value(
            json!({ "metadata": { "generation": 3 }, "spec": { "selector": {}, "minReadySeconds": 10 } }),
        )
        .unwrap();
        let pods = [pod("a", "n", Some("2026-01-01T00:00:00Z"), json!({}))];
        let at = |text: &str| text.parse().unwrap();
        let early = status(&replica_set, &pods, None, at("2026-01-01T00:00:04Z"));
        assert_eq!((early.ready_replicas, early.available_replicas), (Some(1), None));
        let left = until_available(&replica_set, &pods, at("2026-01-01T00:00:04Z"));
        assert_eq!(left, Some(Duration::from_secs(6)));
        let late = status(&replica_set, &pods, None, at("2026-01-01T00:00:10Z"));
        assert_eq!(
            (late.available_replicas, late.observed_generation),
            (Some(1), Some(3))
        );
        assert_eq!(
            until_available(&replica_set, &pods, at("2026-01-01T00:00:10Z")),
            None
        );
    }
}
