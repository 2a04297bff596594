//! One pass over a resource of any kind: what it is to become, its objects, and its status.
//!
//! A kind says what its resources become ([`Workload`]); everything that happens to objects happens here.
//!
//! Desired state is written by server-side apply, each kind under a field manager of its own. What is written in
//! another way, and why:
//!
//! - Deletions of objects that are no longer wanted: each names the uid it is meant for.
//! - The finalizers of the operator of KAOS in Go are taken off by a patch that tests what it replaces. Nobody acts
//!   on them any more, and they are part of a list that others share.
//! - `managedFields` of objects that this operator wrote by plain updates are rewritten once, so that its fields
//!   become ours and what is no longer wanted of them goes.
//! - Our part in `spec.replicas` of a Deployment is taken out of its `managedFields` when the resource gives no number
//!   any more: an apply without the field would set it back to one.
//!
//! Beside the passes there is only the Lease by which one of several operators leads: it is replaced as a whole, for
//! the version that was read. No Events are written; what happens is in the status.

use std::{convert::Infallible, fmt::Debug, sync::Arc};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kaos_api::{
    names::{self, Kind},
    v1alpha1::Phase,
};
use kaos_kube_ext::{Observed, drop_finalizers, set_condition};
use kube::{
    Resource,
    core::{NamespaceResourceScope, object::HasStatus},
    runtime::{
        controller::Action,
        reflector::{ObjectRef, Store},
    },
};
use serde::{Serialize, de::DeserializeOwned};

use super::{
    apply::{Applied, Stays, apply, prune_all},
    children::{Children, Live, Routed},
    context::Context,
    failing::Failing,
    failure::{Blame, Failure},
    objects::Owner,
    passes::{PUT_OFF, Passes, SETTLES, Turn},
    plan::Plan,
    route::{ROUTE_ACCEPTED, absent, accepted},
    status::{
        Common, READY, RECONCILING, ROLLING_OUT, Reported, Standing, observed, said_before, selector,
        still_said, timed,
    },
};
use crate::config::Config;

/// What a kind adds to the passes over its resources.
pub(crate) trait Workload: Send + Sync + Sized + 'static {
    /// The kind.
    type Resource: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + HasStatus<Status = Self::Status>
        + Clone
        + Debug
        + Serialize
        + DeserializeOwned
        + Send
        + Sync
        + 'static;
    /// Its status.
    type Status: Reported;
    /// What a resource's references lead to.
    type Resolved: Send + Sync;

    const KIND: Kind;
    /// Who writes what is written for this kind.
    const MANAGER: &'static str;

    /// Looks up what `resource` refers to, in stores only.
    fn resolve(&self, resource: &Self::Resource) -> Self::Resolved;

    /// What `resource` is to become. Pure.
    fn plan(owner: &Owner, resource: &Self::Resource, resolved: &Self::Resolved, config: &Config) -> Plan;

    /// What is to be said in view of its live objects: how it stands, and conditions of its kind after those of
    /// the plan. It may be called again with the same.
    fn live(
        &self,
        pass: &Pass<'_, Self>,
        standing: Standing,
        live: &Live,
    ) -> (Standing, Vec<(&'static str, Observed)>) {
        let _ = (pass, live);
        (standing, Vec::new())
    }

    /// Puts what only this kind reports into a status that has the common fields.
    fn complete(&self, pass: &Pass<'_, Self>, status: &mut Self::Status) {
        let _ = (pass, status);
    }

    /// The resource is gone.
    fn forget(&self, resource: &Self::Resource) {
        let _ = resource;
    }
}

/// What one pass is about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pass<'a, W: Workload> {
    pub(crate) owner: &'a Owner,
    pub(crate) resource: &'a W::Resource,
    pub(crate) resolved: &'a W::Resolved,
    pub(crate) plan: &'a Plan,
    pub(crate) config: &'a Config,
}

impl<W: Workload> Pass<'_, W> {
    /// What a condition of the kind said before, where it still holds: what this program knows of its own is lost
    /// with it, and is no reason to say less than before.
    pub(crate) fn still_said(&self, type_: &str, standing: &Standing) -> Option<Observed> {
        let before = self.resource.status().map(Reported::common)?;
        still_said(
            &before.conditions,
            type_,
            self.resource.meta().generation,
            standing,
        )
    }
}

/// A kind with everything that its passes need.
pub(crate) struct Driver<W: Workload> {
    workload: W,
    context: Context<W::Resource>,
    children: Children,
    passes: Passes<W::Resource>,
    failing: Failing<W::Resource>,
}

/// A pass that ended before there was anything new to say of the resource.
struct Unsaid(Failure);

/// The next pass over a resource, as far as the store goes.
pub(crate) async fn reconcile<W: Workload>(
    resource: Arc<W::Resource>,
    driver: Arc<Driver<W>>,
) -> Result<Action, Infallible> {
    let (passes, key) = (&driver.passes, ObjectRef::from_obj(&*resource));
    let resource = match passes.turn(&key) {
        Turn::Now(resource) => resource,
        Turn::Later => return Ok(Action::requeue(PUT_OFF)),
        Turn::Never => {
            driver.forget(&resource);
            return Ok(Action::await_change());
        }
    };
    let outcome = driver.pass(&resource).await;
    let is_done = outcome.is_ok();
    let next = driver.context.after(&*resource, outcome);
    if passes.is_there(&resource) {
        let is_behind = is_done && passes.is_behind(&resource);
        return Ok(if is_behind { Action::requeue(SETTLES) } else { next });
    }
    // It went while the pass was under way, which has remembered it since.
    driver.forget(&resource);
    Ok(Action::await_change())
}

impl<W: Workload> Driver<W> {
    pub(crate) fn new(
        workload: W,
        context: Context<W::Resource>,
        children: Children,
        store: Store<W::Resource>,
    ) -> Self {
        Self {
            workload,
            context,
            children,
            passes: Passes::new(store),
            failing: Failing::default(),
        }
    }

    /// Whether what has come out of the watch asks for a pass.
    pub(crate) fn is_news(&self, resource: &W::Resource) -> bool {
        self.passes.is_news(resource)
    }

    /// Forgets a resource that is gone.
    pub(crate) fn forget(&self, resource: &W::Resource) {
        self.passes.forget(resource);
        self.context.forget(resource);
        self.failing.is_over(resource);
        if let Some(uid) = &resource.meta().uid {
            self.children.forget(uid);
        }
        self.workload.forget(resource);
    }

    /// One pass, and what is said where it ends early.
    async fn pass(&self, resource: &W::Resource) -> Result<(), Failure> {
        match self.said_pass(resource).await {
            Ok(outcome) => outcome,
            Err(Unsaid(failure)) => {
                self.tell(resource, &failure).await?;
                Err(failure)
            }
        }
    }

    /// Where passes have ended so for a while, adds that to what the status said before. All else in it still tells
    /// of the generation that it names.
    async fn tell(&self, resource: &W::Resource, failure: &Failure) -> Result<(), Failure> {
        let clock = self.context.seams.clock.as_ref();
        let mut common = resource.status().map(Reported::common).unwrap_or_default();
        let Some(observed) = self.failing.failed(resource, failure, &common.conditions, clock) else {
            return Ok(());
        };
        let mut status = resource.status().cloned().unwrap_or_default();
        if resource.status().is_none() {
            common.message.clone_from(&observed.message);
            let not_ready = Observed {
                status: Some(false),
                ..observed.clone()
            };
            set_condition(&mut common.conditions, READY, not_ready, None, clock);
        }
        let generation = resource.meta().generation;
        set_condition(&mut common.conditions, RECONCILING, observed, generation, clock);
        status.put(common);
        self.write(resource, &status).await
    }

    /// Writes the status where it is another one.
    async fn write(&self, resource: &W::Resource, status: &W::Status) -> Result<(), Failure> {
        self.passes.say(resource, status);
        if resource.status() == Some(status) {
            return Ok(());
        }
        let applier = &self.context.applier;
        // The operator in Go never told a generation.
        let written = match resource
            .status()
            .map(|before| before.common().observed_generation)
        {
            Some(None) => applier.apply_status(resource, status).await,
            None | Some(Some(_)) => applier.apply_own_status(resource, status).await,
        };
        if let Some(version) = written.map_err(Failure::api("failed to write the status"))? {
            self.passes.written(resource, version);
        }
        Ok(())
    }

    /// One pass. What it returns of failures is in the status, as far as anything is to be said of it.
    async fn said_pass(&self, resource: &W::Resource) -> Result<Result<(), Failure>, Unsaid> {
        let (client, config) = (&self.context.client, &*self.context.config);
        let dropped = drop_finalizers(client, resource, &names::FORMER_FINALIZERS)
            .await
            .map_err(Failure::api("failed to remove finalizers"));
        if resource.meta().deletion_timestamp.is_some() {
            return match dropped {
                Ok(()) => Ok(Ok(())),
                Err(failure) => Err(Unsaid(failure)),
            };
        }
        let Some(owner) = Owner::of(W::KIND, resource) else {
            return Ok(Err(Failure::NotStored));
        };
        // Before it made anything, the operator in Go wrote a status.
        if resource.status().is_none() {
            self.children.in_order(&owner);
        }
        let looked = match self.children.look_for_leftovers(client, &owner).await {
            Err(failure) if failure.blame() == Blame::Passing => return Err(Unsaid(failure)),
            looked => looked,
        };
        let resolved = self.workload.resolve(resource);
        let mut plan = W::plan(&owner, resource, &resolved, config);
        // Pods that are there follow their spec meanwhile.
        let first = self.children.deployments.named(&owner, &owner.child()).is_none();
        if let (true, true, Some(lacks)) = (first, plan.objects.is_ok(), &plan.lacks) {
            plan.objects = Err(lacks.clone());
        }
        let pass = Pass {
            owner: &owner,
            resource,
            resolved: &resolved,
            plan: &plan,
            config,
        };
        let mut applied = self.objects(&pass).await.map_err(Unsaid)?;
        if looked.is_ok() && plan.objects.is_ok() && applied.is_complete() {
            self.children.in_order(&owner);
        }
        applied.leftover = dropped.err().or(looked.err()).or(applied.leftover);
        let status = self.status(&pass, &applied);
        if let Err(failure) = self.write(resource, &status).await {
            return Ok(Err(failure));
        }
        // What is the user's is not tried again; anything beside it is.
        let failures = [applied.failure, applied.leftover, applied.route_failure];
        Ok(failures
            .into_iter()
            .flatten()
            .min_by_key(Failure::is_users)
            .map_or(Ok(()), Err))
    }

    /// Makes the live objects what the plan says. What it returns of failures is worth a status; others end the
    /// pass.
    async fn objects(&self, pass: &Pass<'_, W>) -> Result<Applied, Failure> {
        let (context, children, owner) = (&self.context, &self.children, pass.owner);
        let mut applied = match &pass.plan.objects {
            Ok(objects) => apply(context, children, owner, objects).await,
            Err(_) => Applied::default(),
        };
        let stays = match (&pass.plan.objects, &applied.failure) {
            (Ok(objects), None) => Stays::Desired(objects),
            (Ok(objects), Some(_)) => Stays::DesiredAndConfiguration(objects),
            (Err(_), _) => Stays::Kept(pass.plan.keep),
        };
        let pruned = prune_all(&context.client, children, owner, &stays).await;
        applied.leftover = pruned.err();
        if let Some(failure) = applied
            .failure
            .take_if(|failure| failure.blame() == Blame::Passing)
        {
            return Err(failure);
        }
        let seen = children.live(owner);
        let live = &mut applied.live;
        live.deployment = live.deployment.take().or(seen.deployment);
        live.service = live.service.take().or(seen.service);
        live.route = newer(seen.route, live.route.take());
        Ok(applied)
    }

    fn status(&self, pass: &Pass<'_, W>, applied: &Applied) -> W::Status {
        let Pass {
            owner, plan, config, ..
        } = *pass;
        let (live, meta) = (&applied.live, pass.resource.meta());
        let before = pass.resource.status().map(Reported::common);
        let conditions_before = before
            .as_ref()
            .map(|before| before.conditions.as_slice())
            .unwrap_or_default();

        let (standing, of_kind) = self.workload.live(pass, standing(plan, applied), live);
        let mut conditions = standing.conditions(&plan.notes);
        conditions.extend(
            self.not_applied(pass, applied, conditions_before)
                .map(|observed| (RECONCILING, observed)),
        );
        conditions.extend(plan.conditions.iter().cloned());
        conditions.extend(of_kind);
        conditions.extend(
            self.route_accepted(pass, applied, conditions_before)
                .map(|observed| (ROUTE_ACCEPTED, observed)),
        );
        let served = match &plan.objects {
            Ok(objects) => !objects.services.is_empty(),
            Err(_) => plan.keep.services,
        };
        let deployment = live.deployment.as_deref();
        let mut common = Common {
            phase: standing.phase,
            message: standing.message.clone(),
            // A Service that is kept, or could not be applied, leads where it led before.
            endpoint: live.service.as_deref().filter(|_| served).map(|service| {
                let port = service.port().unwrap_or(plan.port);
                owner.endpoint(port, &config.cluster_domain)
            }),
            observed_generation: meta.generation,
            conditions: timed(
                conditions_before,
                conditions,
                meta.generation,
                self.context.seams.clock.as_ref(),
            ),
            replicas: deployment.map(|deployment| {
                let status = deployment.status.as_ref();
                status.and_then(|status| status.replicas).unwrap_or_default()
            }),
            selector: Some(selector(owner.kind, &owner.name)),
            deployment: deployment.and_then(observed),
        };
        // A rollout goes through many states that the message does not tell apart. Writing each would cost more
        // than all else about a resource.
        let before = before.filter(|before| {
            let as_before = Common {
                replicas: before.replicas,
                deployment: before.deployment.clone(),
                ..common.clone()
            };
            standing.reason == ROLLING_OUT && common != *before && as_before == *before
        });
        match before {
            Some(before) if self.passes.lets_settle(pass.resource) => common = before,
            Some(_) => {}
            None => self.passes.has_settled(pass.resource),
        }
        let mut status = W::Status::default();
        status.put(common);
        self.workload.complete(pass, &mut status);
        status
    }

    /// What is said of objects that could not be applied or deleted for a while, though all that matters for the
    /// pods was.
    fn not_applied(&self, pass: &Pass<'_, W>, applied: &Applied, before: &[Condition]) -> Option<Observed> {
        let failures = [&applied.leftover, &applied.route_failure];
        let is_passing = |failure: &&Failure| failure.blame() == Blame::Passing;
        let Some(failure) = failures.into_iter().flatten().find(is_passing) else {
            self.failing.is_over(pass.resource);
            return None;
        };
        let clock = self.context.seams.clock.as_ref();
        self.failing.failed(pass.resource, failure, before, clock)
    }

    /// Nothing where the resource has no route to be.
    fn route_accepted(
        &self,
        pass: &Pass<'_, W>,
        applied: &Applied,
        before: &[Condition],
    ) -> Option<Observed> {
        let gateway = pass.config.gateway.as_ref()?;
        let live = applied.live.route.as_deref();
        let wanted = match &pass.plan.objects {
            Ok(objects) => objects.route.is_some(),
            Err(_) => pass.plan.keep.routes && live.is_some(),
        };
        if !wanted {
            return None;
        }
        let as_before =
            || said_before(before, ROUTE_ACCEPTED).unwrap_or_else(|| accepted(gateway, None, None));
        match self.children.routes_served.is_served() {
            Some(true) => {}
            Some(false) => return Some(absent()),
            None => return Some(as_before()),
        }
        match &applied.route_failure {
            Some(failure) if failure.blame() == Blame::Passing => Some(as_before()),
            Some(failure) => Some(Observed {
                status: Some(false),
                reason: failure.reason().to_owned(),
                message: failure.to_string(),
            }),
            None => Some(accepted(
                gateway,
                live.and_then(|route| route.metadata.generation),
                live.and_then(|route| route.status.as_ref()),
            )),
        }
    }
}

/// The watch has the newer word of others on a route, the apply may have made a newer route.
fn newer(seen: Option<Arc<Routed>>, applied: Option<Arc<Routed>>) -> Option<Arc<Routed>> {
    let (Some(seen), Some(applied)) = (&seen, &applied) else {
        return seen.or(applied);
    };
    let (before, now) = (&seen.metadata, &applied.metadata);
    let is_older = before.uid != now.uid || before.generation < now.generation;
    Some(if is_older { applied.clone() } else { seen.clone() })
}

/// How a resource stands, as far as all kinds have it in common.
fn standing(plan: &Plan, applied: &Applied) -> Standing {
    let leftover = applied.leftover.as_ref();
    let leftover = leftover.filter(|failure| failure.blame() != Blame::Passing);
    match (&plan.objects, applied.failure.as_ref().or(leftover)) {
        (Err(problem), _) if problem.phase == Phase::Failed => problem.clone(),
        (_, Some(failure)) => Standing::of_failure(failure),
        (Err(problem), None) => problem.clone(),
        (Ok(_), None) => plan.lacks.clone().unwrap_or_else(|| {
            let deployment = applied.live.deployment.as_deref();
            deployment.map_or_else(Standing::unmade, Standing::of)
        }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_newer_of_two_routes_counts_and_else_the_one_that_others_wrote_to() {
        let route = |uid: &str, generation: i64| -> Option<Arc<Routed>> {
            let route = json!({"metadata": {"uid": uid, "generation": generation}});
            Some(Arc::new(serde_json::from_value(route).unwrap()))
        };
        let is = |found: Option<Arc<Routed>>, expected: &Option<Arc<Routed>>| match (&found, expected) {
            (Some(found), Some(expected)) => Arc::ptr_eq(found, expected),
            (found, expected) => found.is_none() && expected.is_none(),
        };
        for (seen, applied, is_seen) in [
            (route("a", 2), route("a", 2), true),
            (route("a", 3), route("a", 2), true),
            (route("a", 1), route("a", 2), false),
            (route("a", 9), route("b", 1), false),
            (route("a", 1), None, true),
            (None, route("a", 1), false),
        ] {
            let expected = if is_seen { &seen } else { &applied };
            assert!(
                is(newer(seen.clone(), applied.clone()), expected),
                "{seen:?} {applied:?}"
            );
        }
    }
}
