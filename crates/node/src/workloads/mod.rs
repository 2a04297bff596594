//! Deployments, ReplicaSets and Jobs, as the controllers of a cluster run them: pods of a new template replace
//! those of the old one as far as the strategy and the new pods' readiness allow, and those of a Job come until
//! enough have succeeded.
//!
//! They only speak the API and only know pods as objects: whoever runs these pods, or marks them ready, may
//! be anybody. Each pass reads what it decides on from the API itself, not from what a watch has seen so
//! far, so that no pod is ever created twice.

mod conditions;
mod deployment;
mod job;
mod ownership;
mod pods;
mod queue;
mod replicaset;
mod revision;
mod rollout;
mod template;

use std::sync::Arc;

use k8s_openapi::api::{
    apps::v1::{Deployment, ReplicaSet},
    core::v1::Pod,
};
use kaos_seams::Seams;
use kube::{Api, Client, Resource, ResourceExt};
use tokio_util::sync::CancellationToken;

use crate::{
    events::Recorder,
    watch::{Cache, Change, Key, follow, key},
};
use job::Jobs;
use ownership::controller;
use queue::Queue;

/// What the controllers work with.
#[derive(Clone)]
struct Context {
    client: Client,
    seams: Seams,
    events: Recorder,
}

/// Runs the controllers until `stop`.
pub async fn run(client: Client, seams: Seams, stop: CancellationToken) {
    let recorder = |component| Recorder::start(client.clone(), &seams, component, None);
    let context = |component| Context {
        client: client.clone(),
        seams: seams.clone(),
        events: recorder(component),
    };
    let (deployments, deployment_keys) = Queue::new();
    let (replica_sets, replica_set_keys) = Queue::new();
    let deployment_cache: Arc<Cache<Deployment>> = Arc::default();
    let replica_set_cache: Arc<Cache<ReplicaSet>> = Arc::default();

    let watch_deployments = {
        let deployments = deployments.clone();
        follow(
            Api::all(client.clone()),
            deployment_cache.clone(),
            stop.clone(),
            move |change| {
                each(&change, |deployment| deployments.add(key(deployment)));
            },
        )
    };
    let watch_replica_sets = {
        let (deployments, known) = (deployments.clone(), deployment_cache);
        let replica_sets = replica_sets.clone();
        follow(
            Api::all(client.clone()),
            replica_set_cache.clone(),
            stop.clone(),
            move |change| {
                each(&change, |replica_set: &ReplicaSet| {
                    replica_sets.add(key(replica_set));
                    match owner_key::<_, Deployment>(replica_set) {
                        Some(owner) => deployments.add(owner),
                        // Nobody's: one of the Deployments may take it.
                        None => same_namespace(&known, replica_set).for_each(|key| deployments.add(key)),
                    }
                });
            },
        )
    };
    let pods: Arc<Cache<Pod>> = Arc::default();
    let (jobs, job_keys) = Jobs::new(pods.clone());
    let watch_pods = {
        let (known, jobs) = (replica_set_cache, jobs.clone());
        follow(
            Api::all(client.clone()),
            pods,
            stop.clone(),
            move |change: Change<Pod>| {
                jobs.pod_changed(&change);
                let gone = change.new.is_none();
                each(&change, |pod| match owner_key::<_, ReplicaSet>(pod) {
                    Some(owner) => {
                        // A Deployment that recreates waits for the last pod of its old ReplicaSets.
                        if gone && let Some(replica_set) = known.get(&owner.0, &owner.1) {
                            owner_key::<_, Deployment>(&*replica_set)
                                .into_iter()
                                .for_each(|key| deployments.add(key));
                        }
                        replica_sets.add(owner);
                    }
                    None if controller(pod.meta()).is_none() => {
                        same_namespace(&known, pod).for_each(|key| replica_sets.add(key));
                    }
                    None => {}
                });
            },
        )
    };
    let reconcile_deployments = {
        let context = context("deployment-controller");
        queue::run(deployment_keys, seams.clone(), stop.clone(), move |key| {
            let context = context.clone();
            async move { deployment::reconcile(&context, &key).await }
        })
    };
    let reconcile_replica_sets = {
        let context = context("replicaset-controller");
        queue::run(replica_set_keys, seams.clone(), stop.clone(), move |key| {
            let context = context.clone();
            async move { replicaset::reconcile(&context, &key).await }
        })
    };
    let run_jobs = jobs.run(job_keys, context("job-controller"), stop);
    tokio::join!(
        watch_deployments,
        watch_replica_sets,
        watch_pods,
        reconcile_deployments,
        reconcile_replica_sets,
        run_jobs
    );
}

/// The object before and after the change: either may have an owner that the other has not.
fn each<K>(change: &Change<K>, mut with: impl FnMut(&K)) {
    change
        .old
        .as_deref()
        .into_iter()
        .chain(change.new.as_deref())
        .for_each(&mut with);
}

/// The key of the `Owner` that controls `object`.
fn owner_key<K: Resource, Owner: Resource<DynamicType = ()>>(object: &K) -> Option<Key> {
    let owner = controller(object.meta())?;
    let namespace = object.meta().namespace.clone().unwrap_or_default();
    (owner.kind == Owner::kind(&())).then(|| (namespace, owner.name.clone()))
}

fn same_namespace<K: ResourceExt, O: ResourceExt>(known: &Cache<K>, object: &O) -> impl Iterator<Item = Key> {
    let namespace = object.namespace();
    known
        .all()
        .into_iter()
        .filter(move |other| other.namespace() == namespace)
        .map(|other| key(&*other))
}
