//! ReplicaSets: as many pods of one template as are asked for.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::{
    api::{
        apps::v1::{ReplicaSet, ReplicaSetCondition, ReplicaSetStatus},
        core::v1::Pod,
    },
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::{
    Api, ResourceExt as _,
    api::{ListParams, PostParams},
};

use super::{
    Context,
    ownership::{claim, is_active, selector},
    pods::{self, of_template, ready_since, worth},
};
use crate::watch::Key;

const REPLICA_FAILURE: &str = "ReplicaFailure";

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
    for _ in active..wanted {
        let pod = of_template(replica_set, replica_set.spec.template.as_ref()?)?;
        match pods::create(context, api, replica_set, &pod).await {
            Ok(pod) => own.push(pod),
            Err(error) => return Some(("FailedCreate", error)),
        }
    }
    let mut victims: Vec<Pod> = own.iter().filter(|pod| is_active(pod)).cloned().collect();
    victims.sort_by_cached_key(worth);
    victims.truncate(active.saturating_sub(wanted));
    for victim in victims {
        if let Err(error) = pods::delete(context, api, replica_set, &victim).await {
            return Some(("FailedDelete", error));
        }
        let uid = victim.uid();
        own.retain(|pod| pod.uid() != uid);
    }
    None
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

    fn pod(ready_since: &str) -> Pod {
        let ready = json!([{ "type": "Ready", "status": "True", "lastTransitionTime": ready_since }]);
        serde_json::from_value(json!({ "metadata": { "name": "a" }, "status": { "conditions": ready } }))
            .unwrap()
    }

    #[test]
    fn a_pod_is_available_when_it_was_ready_for_long_enough() {
        let replica_set: ReplicaSet = serde_json::from_value(
            json!({ "metadata": { "generation": 3 }, "spec": { "selector": {}, "minReadySeconds": 10 } }),
        )
        .unwrap();
        let pods = [pod("2026-01-01T00:00:00Z")];
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
