//! Deployments: one pass over one of them.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::{
    api::{
        apps::v1::{Deployment, ReplicaSet, ReplicaSetSpec},
        core::v1::Pod,
    },
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{
    Api, Resource as _, ResourceExt as _,
    api::{DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams},
};
use serde_json::json;

use super::{
    Context,
    conditions::{self, is_complete, is_paused, until_deadline},
    ownership::{claim, controller, selector},
    revision::{DESIRED, MAX, REVISION, annotations, revision, size_annotations},
    rollout::{Limits, Share, Size, is_recreate, limits, new_size, old_sizes, proportional, wanted},
    template::{HASH_LABEL, hash, same},
};
use crate::{
    events::{Type, reference},
    watch::Key,
};

/// How many old ReplicaSets are kept where the Deployment does not say.
const DEFAULT_HISTORY: i32 = 10;

/// Brings one Deployment a step further and its status up to date.
pub(super) async fn reconcile(context: &Context, key: &Key) -> Result<Option<Duration>, kube::Error> {
    let api: Api<Deployment> = Api::namespaced(context.client.clone(), &key.0);
    let Some(deployment) = api.get_opt(&key.1).await? else {
        return Ok(None);
    };
    let Some(selector) = selector(&deployment.spec.selector) else {
        return Ok(None);
    };
    let sets: Api<ReplicaSet> = Api::namespaced(context.client.clone(), &key.0);
    let listed = sets.list(&ListParams::default()).await?.items;
    let mut own = claim(&sets, listed, &deployment, &selector).await?;
    // Oldest first, as the arithmetic of a rollout goes.
    own.sort_by_cached_key(|set| (set.creation_timestamp().map(|time| time.0), set.name_any()));
    let new = own.iter().position(|set| {
        let template = set.spec.template.as_ref();
        template.is_some_and(|template| same(template, &deployment.spec.template))
    });
    let new = new.map(|index| own.remove(index));
    let mut pass = Pass {
        context,
        api,
        sets,
        deployment,
        new,
        old: own,
        created: None,
    };
    if pass.deployment.metadata.deletion_timestamp.is_none() {
        pass.step().await?;
    }
    pass.write_status().await
}

struct Pass<'a> {
    context: &'a Context,
    api: Api<Deployment>,
    sets: Api<ReplicaSet>,
    deployment: Deployment,
    /// The ReplicaSet of the current template.
    new: Option<ReplicaSet>,
    /// The others, oldest first.
    old: Vec<ReplicaSet>,
    /// The name of a ReplicaSet made in this pass.
    created: Option<String>,
}

fn replicas(set: &ReplicaSet) -> i32 {
    set.spec.replicas.unwrap_or(1)
}

fn size(set: &ReplicaSet) -> Size {
    let available = set
        .status
        .as_ref()
        .and_then(|status| status.available_replicas)
        .unwrap_or(0);
    Size {
        replicas: replicas(set),
        available,
    }
}

impl Pass<'_> {
    fn wanted(&self) -> i32 {
        wanted(&self.deployment)
    }

    fn limits(&self) -> Limits {
        limits(&self.deployment)
    }

    async fn step(&mut self) -> Result<(), kube::Error> {
        if is_paused(&self.deployment) || self.was_scaled() {
            if self.new.is_some() {
                self.number_revision().await?;
            }
            return self.scale_all().await;
        }
        if is_recreate(&self.deployment) {
            self.recreate().await
        } else {
            self.roll().await
        }
    }

    /// Whether the wanted number changed since the ReplicaSets were last scaled.
    fn was_scaled(&self) -> bool {
        let wanted = self.wanted().to_string();
        let active = self.new.iter().chain(&self.old).filter(|set| replicas(set) > 0);
        active
            .filter_map(|set| set.annotations().get(DESIRED))
            .any(|desired| *desired != wanted)
    }

    async fn roll(&mut self) -> Result<(), kube::Error> {
        self.ensure_new().await?;
        let Some(new) = &self.new else { return Ok(()) };
        let total = replicas(new) + self.old.iter().map(replicas).sum::<i32>();
        let target = new_size(self.wanted(), self.limits(), total, replicas(new));
        if target != replicas(new) {
            return self.resize_new(target).await;
        }
        let sizes: Vec<Size> = self.old.iter().map(size).collect();
        let targets = old_sizes(self.wanted(), self.limits(), size(new), &sizes);
        self.resize_old(&targets).await?;
        self.forget_history().await
    }

    async fn recreate(&mut self) -> Result<(), kube::Error> {
        if self.old.iter().any(|set| replicas(set) > 0) {
            return self.resize_old(&vec![0; self.old.len()]).await;
        }
        if self.old_pods_run().await? {
            return Ok(());
        }
        self.ensure_new().await?;
        if self
            .new
            .as_ref()
            .is_some_and(|new| replicas(new) != self.wanted())
        {
            self.resize_new(self.wanted()).await?;
        }
        self.forget_history().await
    }

    /// Whether a pod of another template has not ended yet.
    async fn old_pods_run(&self) -> Result<bool, kube::Error> {
        if self.old.is_empty() {
            return Ok(false);
        }
        let namespace = self.deployment.namespace().unwrap_or_default();
        let pods: Api<Pod> = Api::namespaced(self.context.client.clone(), &namespace);
        let uids: Vec<String> = self.old.iter().filter_map(|set| set.uid()).collect();
        let pods = pods.list(&ListParams::default()).await?.items;
        Ok(pods.iter().any(|pod| {
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            controller(&pod.metadata).is_some_and(|owner| uids.contains(&owner.uid))
                && !matches!(phase, Some("Succeeded" | "Failed"))
        }))
    }

    /// Scales without rolling out: for paused Deployments, and when only the wanted number changed.
    async fn scale_all(&mut self) -> Result<(), kube::Error> {
        let wanted = self.wanted();
        let active: Vec<usize> = (0..self.old.len())
            .filter(|index| replicas(&self.old[*index]) > 0)
            .collect();
        let new_active = self.new.as_ref().is_some_and(|new| replicas(new) > 0);
        match (new_active, active.as_slice()) {
            (true, []) => self.resize_new(wanted).await,
            (false, [only]) => {
                let mut targets: Vec<i32> = self.old.iter().map(replicas).collect();
                targets[*only] = wanted;
                self.resize_old(&targets).await
            }
            (false, []) => match self.new {
                Some(_) => self.resize_new(wanted).await,
                None => {
                    // The latest one stands for a Deployment that was scaled to nothing.
                    let mut targets: Vec<i32> = self.old.iter().map(replicas).collect();
                    if let Some(latest) = targets.last_mut() {
                        *latest = wanted;
                    }
                    self.resize_old(&targets).await
                }
            },
            // The new one has and does all it should: the old ones are left from the rollout.
            (true, _) if self.new.as_ref().is_some_and(|new| is_saturated(new, wanted)) => {
                self.resize_old(&vec![0; self.old.len()]).await
            }
            _ if is_recreate(&self.deployment) => Ok(()),
            _ => self.scale_in_proportion().await,
        }
    }

    async fn scale_in_proportion(&mut self) -> Result<(), kube::Error> {
        let share = |set: &ReplicaSet| Share {
            replicas: replicas(set),
            max_before: set
                .annotations()
                .get(MAX)
                .and_then(|max| max.parse().ok())
                .or_else(|| self.deployment.status.as_ref()?.replicas)
                .unwrap_or(0),
        };
        // Newest first.
        let shares: Vec<Share> = self.new.iter().chain(self.old.iter().rev()).map(share).collect();
        let mut targets = proportional(self.wanted(), self.limits(), &shares);
        if self.new.is_some() {
            let target = targets.remove(0);
            self.resize_new(target).await?;
        }
        targets.reverse();
        self.resize_old(&targets).await
    }

    async fn resize_new(&mut self, target: i32) -> Result<(), kube::Error> {
        let Some(new) = self.new.take() else { return Ok(()) };
        let scaled = self.resize(&new, target).await;
        self.new = Some(new);
        self.new = Some(scaled?);
        Ok(())
    }

    async fn resize_old(&mut self, targets: &[i32]) -> Result<(), kube::Error> {
        for (index, target) in targets.iter().enumerate() {
            self.old[index] = self.resize(&self.old[index], *target).await?;
        }
        Ok(())
    }

    /// Gives a ReplicaSet its size, and the annotations of the Deployment's size where it has pods.
    async fn resize(&self, set: &ReplicaSet, target: i32) -> Result<ReplicaSet, kube::Error> {
        let from = replicas(set);
        let sizes = size_annotations(&self.deployment);
        let noted = sizes
            .iter()
            .all(|(key, value)| set.annotations().get(key) == Some(value));
        if from == target && (noted || target == 0) {
            return Ok(set.clone());
        }
        let name = set.name_any();
        let patch = json!({
            "metadata": { "resourceVersion": set.metadata.resource_version, "annotations": sizes },
            "spec": { "replicas": target },
        });
        let scaled = self
            .sets
            .patch(&name, &PatchParams::default(), &Patch::Merge(&patch))
            .await?;
        if from != target {
            self.tell_scaled(&name, from, target);
        }
        Ok(scaled)
    }

    fn tell_scaled(&self, name: &str, from: i32, to: i32) {
        let direction = if to > from { "up" } else { "down" };
        let message = format!("Scaled {direction} replica set {name} from {from} to {to}");
        self.context.events.report(
            reference(&self.deployment),
            Type::Normal,
            "ScalingReplicaSet",
            message,
        );
    }

    /// Makes the ReplicaSet of the current template where there is none.
    async fn ensure_new(&mut self) -> Result<(), kube::Error> {
        if self.new.is_none() {
            let set = self.build_new();
            let name = set.name_any();
            match self.sets.create(&PostParams::default(), &set).await {
                Ok(set) => {
                    if replicas(&set) > 0 {
                        self.tell_scaled(&name, 0, replicas(&set));
                    }
                    self.created = Some(name);
                    self.new = Some(set);
                }
                Err(kube::Error::Api(status)) if status.is_already_exists() => {
                    return self.resolve_collision(&name).await;
                }
                Err(error) => return Err(error),
            }
        }
        self.number_revision().await
    }

    /// The name of the new ReplicaSet is taken: by ours, which was made since the list was read, or by
    /// another one, which asks for another hash.
    async fn resolve_collision(&mut self, name: &str) -> Result<(), kube::Error> {
        let Some(existing) = self.sets.get_opt(name).await? else {
            return Ok(());
        };
        let ours = controller(&existing.metadata).map(|owner| owner.uid.clone()) == self.deployment.uid();
        let template = existing.spec.template.as_ref();
        if ours && template.is_some_and(|template| same(template, &self.deployment.spec.template)) {
            self.new = Some(existing);
            return Ok(());
        }
        let status = self.deployment.status.get_or_insert_default();
        status.collision_count = Some(status.collision_count.unwrap_or(0) + 1);
        // The write of the new count brings the next pass.
        let written = self
            .api
            .replace_status(
                &self.deployment.name_any(),
                &PostParams::default(),
                &self.deployment,
            )
            .await?;
        self.deployment = written;
        Ok(())
    }

    fn build_new(&self) -> ReplicaSet {
        let deployment = &self.deployment;
        let spec = deployment.spec.clone();
        let collisions = deployment
            .status
            .as_ref()
            .and_then(|status| status.collision_count)
            .unwrap_or(0);
        let hash = hash(&spec.template, collisions);
        let mut template = spec.template;
        let labels = template
            .metadata
            .get_or_insert_default()
            .labels
            .get_or_insert_default();
        labels.insert(HASH_LABEL.to_owned(), hash.clone());
        let labels = labels.clone();
        let mut selector = spec.selector;
        selector
            .match_labels
            .get_or_insert_default()
            .insert(HASH_LABEL.to_owned(), hash.clone());
        let total = self.old.iter().map(replicas).sum();
        let size = match is_recreate(deployment) {
            true => self.wanted(),
            false => new_size(self.wanted(), self.limits(), total, 0),
        };
        let mut annotations = annotations(deployment, None, &self.old);
        annotations.extend(size_annotations(deployment));
        let owner = deployment.controller_owner_ref(&());
        ReplicaSet {
            metadata: ObjectMeta {
                name: Some(format!("{}-{hash}", deployment.name_any())),
                namespace: deployment.namespace(),
                labels: Some(labels),
                annotations: Some(annotations),
                owner_references: owner.map(|owner| {
                    vec![OwnerReference {
                        block_owner_deletion: Some(true),
                        ..owner
                    }]
                }),
                ..ObjectMeta::default()
            },
            spec: ReplicaSetSpec {
                replicas: Some(size),
                min_ready_seconds: spec.min_ready_seconds,
                selector,
                template: Some(template),
            },
            status: None,
        }
    }

    /// Keeps the revision numbers of the new ReplicaSet and the Deployment, and what follows the Deployment.
    async fn number_revision(&mut self) -> Result<(), kube::Error> {
        let Some(new) = &self.new else { return Ok(()) };
        let wanted = annotations(&self.deployment, Some(new), &self.old);
        let min_ready = self.deployment.spec.min_ready_seconds.unwrap_or(0);
        let has = new.spec.min_ready_seconds.unwrap_or(0);
        if wanted != *new.annotations() || min_ready != has {
            let patch = json!({
                "metadata": { "resourceVersion": new.metadata.resource_version, "annotations": wanted },
                "spec": { "minReadySeconds": min_ready },
            });
            let patch = Patch::Merge(&patch);
            self.new = Some(
                self.sets
                    .patch(&new.name_any(), &PatchParams::default(), &patch)
                    .await?,
            );
        }
        let number = wanted.get(REVISION);
        if number.is_some() && self.deployment.annotations().get(REVISION) != number {
            let note: BTreeMap<&str, Option<&String>> = BTreeMap::from([(REVISION, number)]);
            let patch = json!({ "metadata": {
                "resourceVersion": self.deployment.metadata.resource_version, "annotations": note,
            } });
            let name = self.deployment.name_any();
            // The status that is in the making is not in the answer.
            let status = self.deployment.status.take();
            self.deployment = self
                .api
                .patch(&name, &PatchParams::default(), &Patch::Merge(&patch))
                .await?;
            self.deployment.status = status;
        }
        Ok(())
    }

    /// Deletes the oldest ReplicaSets without pods, once a rollout is over.
    async fn forget_history(&mut self) -> Result<(), kube::Error> {
        let now = self.context.seams.clock.now();
        let status = conditions::status(&self.deployment, self.new.as_ref(), &self.old, None, now);
        if !is_complete(&self.deployment, &status) {
            return Ok(());
        }
        let limit = self.deployment.spec.revision_history_limit;
        let limit = usize::try_from(limit.unwrap_or(DEFAULT_HISTORY)).unwrap_or(0);
        let mut empty: Vec<&ReplicaSet> = self
            .old
            .iter()
            .filter(|set| {
                let pods = set.status.as_ref().map_or(0, |status| status.replicas);
                replicas(set) == 0 && pods == 0 && set.metadata.deletion_timestamp.is_none()
            })
            .collect();
        empty.sort_by_key(|set| revision(set));
        let surplus = empty.len().saturating_sub(limit);
        for set in empty.into_iter().take(surplus) {
            match self
                .sets
                .delete(&set.name_any(), &DeleteParams::background())
                .await
            {
                Ok(_) => {}
                Err(kube::Error::Api(status)) if status.is_not_found() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Writes the status where it changed. Returns when a deadline must be looked at.
    async fn write_status(self) -> Result<Option<Duration>, kube::Error> {
        let now = self.context.seams.clock.now();
        let created = self.created.as_deref();
        let status = conditions::status(&self.deployment, self.new.as_ref(), &self.old, created, now);
        let again = until_deadline(&self.deployment, &status, now);
        if self.deployment.status.as_ref() != Some(&status) {
            let mut deployment = self.deployment;
            deployment.status = Some(status);
            match self
                .api
                .replace_status(&deployment.name_any(), &PostParams::default(), &deployment)
                .await
            {
                Err(kube::Error::Api(answer)) if answer.is_not_found() => return Ok(None),
                written => drop(written?),
            }
        }
        Ok(again)
    }
}

/// Whether the new ReplicaSet has all the pods that are wanted, and all of them work.
fn is_saturated(new: &ReplicaSet, wanted: i32) -> bool {
    let desired = new
        .annotations()
        .get(DESIRED)
        .and_then(|desired| desired.parse().ok());
    replicas(new) == wanted && desired == Some(wanted) && size(new).available == wanted
}
