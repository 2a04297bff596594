//! The finalizer that keeps a pod until its Job has counted it.

use std::time::Duration;

use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};
use kube::{
    Api, ResourceExt as _,
    api::{Patch, PatchParams},
    core::{Selector, SelectorExt as _},
};
use serde_json::json;

use super::{Context, controller, finished, is_ours, owner_key};
use crate::watch::Key;

/// The finalizer.
pub(super) const FINALIZER: &str = "batch.kubernetes.io/job-tracking";

/// Whether a pod is not counted yet.
pub(super) fn is_tracked(pod: &Pod) -> bool {
    pod.finalizers().iter().any(|finalizer| finalizer == FINALIZER)
}

/// Takes the finalizer off exactly this pod, as it was read; `None` when it is gone.
pub(super) async fn untrack(pods: &Api<Pod>, pod: &Pod) -> Result<Option<Pod>, kube::Error> {
    let left: Vec<&String> = pod
        .finalizers()
        .iter()
        .filter(|finalizer| *finalizer != FINALIZER)
        .collect();
    set_finalizers(pods, pod, &left).await
}

async fn set_finalizers(
    pods: &Api<Pod>,
    pod: &Pod,
    finalizers: &[&String],
) -> Result<Option<Pod>, kube::Error> {
    let meta = &pod.metadata;
    let patch = json!({ "metadata": {
        "uid": meta.uid, "resourceVersion": meta.resource_version, "finalizers": finalizers,
    } });
    let params = PatchParams::default();
    match pods.patch(&pod.name_any(), &params, &Patch::Merge(&patch)).await {
        Ok(pod) => Ok(Some(pod)),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Gives the finalizer to those pods that are nobody's and which the Job is about to take in.
pub(super) async fn adopt(
    pods: &Api<Pod>,
    listed: Vec<Pod>,
    job: &Job,
    selector: &Selector,
) -> Result<Vec<Pod>, kube::Error> {
    let mut adopted = Vec::with_capacity(listed.len());
    for pod in listed {
        let leaving = pod.metadata.deletion_timestamp.is_some() || job.metadata.deletion_timestamp.is_some();
        let taken_in = controller(&pod.metadata).is_none() && selector.matches(pod.labels());
        if !taken_in || leaving || is_tracked(&pod) {
            adopted.push(pod);
            continue;
        }
        let finalizer = FINALIZER.to_owned();
        let finalizers: Vec<&String> = pod.finalizers().iter().chain([&finalizer]).collect();
        adopted.extend(set_finalizers(pods, &pod, &finalizers).await?);
    }
    Ok(adopted)
}

/// Takes the finalizer off a pod that no Job will count: its Job is gone or done, or it has none.
pub(super) async fn release(context: &Context, key: &Key) -> Result<Option<Duration>, kube::Error> {
    let pods: Api<Pod> = Api::namespaced(context.client.clone(), &key.0);
    let Some(pod) = pods.get_opt(&key.1).await?.filter(is_tracked) else {
        return Ok(None);
    };
    if let Some(owner) = controller(&pod.metadata) {
        let Some(owner_key) = owner_key::<_, Job>(&pod) else {
            return Ok(None);
        };
        let jobs: Api<Job> = Api::namespaced(context.client.clone(), &key.0);
        let job = jobs.get_opt(&owner_key.1).await?;
        let counts = |job: &Job| {
            let others = job.spec.as_ref().is_some_and(|spec| !is_ours(spec));
            others || finished(job).is_none()
        };
        if job.is_some_and(|job| job.metadata.uid.as_ref() == Some(&owner.uid) && counts(&job)) {
            return Ok(None);
        }
    }
    untrack(&pods, &pod).await?;
    Ok(None)
}
