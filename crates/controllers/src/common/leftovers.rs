//! What the operator of KAOS in Go has left of a resource.
//!
//! Its objects lack the label by which objects are watched here. So they are looked for by name, until a pass has
//! put everything of the resource in order: from then on what is there has the label.

use std::{
    collections::HashSet,
    fmt::Debug,
    sync::{Arc, Mutex, PoisonError},
};

use kaos_api::names::{Kind, litellm_config};
use kaos_kube_ext::{ApplyError, Operation};
use kube::{Api, Client, Resource, core::NamespaceResourceScope};
use serde::de::DeserializeOwned;

use super::{
    children::{Children, Kept},
    failure::Failure,
    objects::Owner,
};

/// The uids of the resources of which nothing is left over.
#[derive(Clone, Debug, Default)]
pub(crate) struct InOrder(Arc<Mutex<HashSet<String>>>);

impl InOrder {
    fn with<T>(&self, act: impl FnOnce(&mut HashSet<String>) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Children {
    /// Looks for objects that the resource controls and no watch tells of. What is found counts among those of the
    /// resource until the next look.
    pub(crate) async fn look_for_leftovers(&self, client: &Client, owner: &Owner) -> Result<(), Failure> {
        if self.in_order.with(|uids| uids.contains(&owner.reference.uid)) {
            return Ok(());
        }
        look(client, &self.deployments, owner, &owner.child()).await?;
        look(client, &self.services, owner, &owner.child()).await?;
        if owner.kind == Kind::ModelApi {
            look(client, &self.config_maps, owner, &litellm_config(&owner.name)).await?;
        }
        if self.routes_served.is_served() == Some(true) {
            look(client, &self.routes, owner, &owner.kind.route(&owner.name)).await?;
        }
        Ok(())
    }

    /// To be called when everything of the resource that was found is as it is to be, or gone.
    pub(crate) fn in_order(&self, owner: &Owner) {
        // Where nobody has said yet whether there are routes, there may be one.
        if self.routes_served.is_served().is_some() {
            let uid = &owner.reference.uid;
            self.forget_found(uid);
            self.in_order.with(|uids| uids.insert(uid.clone()));
        }
    }

    /// To be called when the resource with this uid is gone.
    pub(crate) fn forget(&self, uid: &str) {
        self.forget_found(uid);
        self.in_order.with(|uids| uids.remove(uid));
    }

    fn forget_found(&self, uid: &str) {
        self.deployments.found(uid, None);
        self.services.found(uid, None);
        self.config_maps.found(uid, None);
        self.routes.found(uid, None);
    }
}

async fn look<K>(client: &Client, kept: &Kept<K>, owner: &Owner, name: &str) -> Result<(), Failure>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
{
    let found = if kept.is_watched(owner, name) {
        None
    } else {
        let api: Api<K> = Api::namespaced(client.clone(), &owner.namespace);
        let there = api.get_opt(name).await;
        there.map_err(|source| ApplyError::Api {
            kind: K::kind(&()).into_owned(),
            name: name.to_owned(),
            operation: Operation::Get,
            source,
        })?
    };
    kept.found(&owner.reference.uid, found.map(Arc::new));
    Ok(())
}
