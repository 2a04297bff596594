//! From desired to live objects, and the end of what is no longer desired.

use std::{collections::BTreeSet, sync::Arc};

use kaos_kube_ext::{Others, prune};
use kube::{Client, Resource, core::NamespaceResourceScope};

use super::{
    children::{Children, Configured, Kept, Live, Served},
    context::Context,
    failure::Failure,
    objects::Owner,
    plan::{Keep, Objects},
};

/// What came of an apply. What is missing in `live` was as it is to be, or was not reached: the objects are applied
/// in the order in which they need one another.
#[derive(Debug, Default)]
pub(crate) struct Applied {
    pub(crate) live: Live,
    /// Why the objects without which there are no pods could not all be applied.
    pub(crate) failure: Option<Failure>,
    /// Why the route could not be.
    pub(crate) route_failure: Option<Failure>,
    /// Why something that is to go is still there.
    pub(crate) leftover: Option<Failure>,
}

impl Applied {
    /// Whether nothing failed.
    pub(crate) fn is_complete(&self) -> bool {
        self.failure.is_none() && self.leftover.is_none() && self.route_failure.is_none()
    }
}

/// Applies everything that was built. A route that cannot be applied holds up nothing else.
pub(crate) async fn apply<K>(
    context: &Context<K>,
    children: &Children,
    owner: &Owner,
    objects: &Objects,
) -> Applied
where
    K: Resource<DynamicType = ()> + 'static,
{
    let mut applied = Applied::default();
    if let Err(failure) = workload(context, children, owner, objects, &mut applied.live).await {
        applied.failure = Some(failure);
    }
    if let Some(route) = &objects.route
        && children.routes_served.is_served() == Some(true)
    {
        let seen = children.routes.watched(owner, &route.metadata);
        let seen = seen.map(|seen| seen.fingerprint);
        match context.applier.apply(route, seen, Others::Yield).await {
            Ok(route) => applied.live.route = route.map(Arc::new),
            Err(error) => applied.route_failure = Some(error.into()),
        }
    }
    applied
}

/// The configuration before the pods that read it. Running pods may read it as soon as it is there: where it is to
/// change together with the pods, the server is first asked whether it takes the pods. Else those of before would
/// run with the configuration of those that never come.
async fn workload<K>(
    context: &Context<K>,
    children: &Children,
    owner: &Owner,
    objects: &Objects,
    live: &mut Live,
) -> Result<(), Failure>
where
    K: Resource<DynamicType = ()> + 'static,
{
    if is_reconfigured(context, children, owner, objects).await? {
        let seen = children.deployments.watched(owner, &objects.deployment.metadata);
        let seen = seen.map(|seen| seen.fingerprint);
        if context.applier.would_change(&objects.deployment, seen).await? {
            context.applier.rehearse(&objects.deployment).await?;
        }
    }
    for config_map in &objects.config_maps {
        let seen = children.config_maps.watched(owner, &config_map.metadata);
        let seen = seen.map(|seen| seen.fingerprint);
        let _: Option<Configured> = context.applier.apply(config_map, seen, Others::Yield).await?;
    }
    for service in &objects.services {
        let seen = children.services.watched(owner, &service.metadata);
        let seen = seen.map(|seen| seen.fingerprint);
        let service: Option<Served> = context.applier.apply(service, seen, Others::Yield).await?;
        live.service = service
            .filter(|service| service.metadata.name.as_ref() == Some(&owner.child()))
            .map(Arc::new)
            .or(live.service.take());
    }
    // A spec that no longer says how many pods there are leaves as many as there are.
    if objects.deployment.spec.replicas.is_none()
        && let Some(scaled) = children.deployments.named(owner, &owner.child())
        && scaled.is_scaled_by(context.manager)
    {
        context
            .applier
            .release(&*scaled, &["spec", "replicas"])
            .await
            .map_err(Failure::api(
                "failed to leave the number of replicas of the Deployment as it is",
            ))?;
    }
    let seen = children.deployments.watched(owner, &objects.deployment.metadata);
    let seen = seen.map(|seen| seen.fingerprint);
    let deployment = context
        .applier
        .apply(&objects.deployment, seen, Others::Stay)
        .await?;
    live.deployment = deployment.map(Arc::new);
    Ok(())
}

/// Whether a configuration that is there is to become another.
async fn is_reconfigured<K>(
    context: &Context<K>,
    children: &Children,
    owner: &Owner,
    objects: &Objects,
) -> Result<bool, Failure>
where
    K: Resource<DynamicType = ()> + 'static,
{
    for config_map in &objects.config_maps {
        let seen = children.config_maps.watched(owner, &config_map.metadata);
        let seen = seen.map(|seen| seen.fingerprint);
        if context.applier.would_change(config_map, seen).await? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// What of a resource's objects stays.
#[derive(Debug)]
pub(crate) enum Stays<'a> {
    /// What was built.
    Desired(&'a Objects),
    /// What was built, and the present configuration: pods that read it may still run.
    DesiredAndConfiguration(&'a Objects),
    /// What the plan keeps.
    Kept(Keep),
}

/// Deletes everything of the resource that does not stay, whatever made it. What cannot be deleted holds up no
/// other deletion.
pub(crate) async fn prune_all(
    client: &Client,
    children: &Children,
    owner: &Owner,
    stays: &Stays<'_>,
) -> Result<(), Failure> {
    let (keep, objects) = match stays {
        Stays::Desired(objects) => (
            Keep {
                services: false,
                routes: false,
                config_maps: false,
            },
            Some(*objects),
        ),
        Stays::DesiredAndConfiguration(objects) => (
            Keep {
                services: false,
                routes: false,
                config_maps: true,
            },
            Some(*objects),
        ),
        Stays::Kept(keep) => (*keep, None),
    };
    let names =
        |names: Vec<Option<&String>>| -> BTreeSet<String> { names.into_iter().flatten().cloned().collect() };
    let mut outcome = Ok(());
    if !keep.routes {
        let wanted = objects.and_then(|objects| objects.route.as_ref());
        let wanted = names(vec![wanted.and_then(|route| route.metadata.name.as_ref())]);
        outcome = outcome.and(unwanted(client, &children.routes, owner, &wanted).await);
    }
    if !keep.services {
        let wanted = objects.iter().flat_map(|objects| &objects.services);
        let wanted = names(wanted.map(|service| service.metadata.name.as_ref()).collect());
        outcome = outcome.and(unwanted(client, &children.services, owner, &wanted).await);
    }
    if !keep.config_maps {
        let wanted = objects.iter().flat_map(|objects| &objects.config_maps);
        let wanted = names(
            wanted
                .map(|config_map| config_map.metadata.name.as_ref())
                .collect(),
        );
        outcome = outcome.and(unwanted(client, &children.config_maps, owner, &wanted).await);
    }
    if let Some(objects) = objects {
        let wanted = names(vec![objects.deployment.metadata.name.as_ref()]);
        outcome = outcome.and(unwanted(client, &children.deployments, owner, &wanted).await);
    }
    outcome
}

async fn unwanted<K>(
    client: &Client,
    kept: &Kept<K>,
    owner: &Owner,
    wanted: &BTreeSet<String>,
) -> Result<(), Failure>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned,
{
    let wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
    prune(client, &owner.reference.uid, kept.of(owner), &wanted).await?;
    Ok(())
}
