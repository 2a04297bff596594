//! The objects a resource already has, as the watches last saw them.

use std::sync::Arc;

use futures::FutureExt;
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Service};
use kaos_kube_ext::is_controlled_by;
use kube::{
    Resource,
    runtime::reflector::{ObjectRef, Store},
};

use super::objects::Owner;

/// The stores of a controller's Deployments and Services.
#[derive(Clone, Debug)]
pub(crate) struct Children {
    pub(crate) deployments: Store<Deployment>,
    pub(crate) services: Store<Service>,
}

/// The objects that were observed of one resource.
#[derive(Clone, Debug, Default)]
pub(crate) struct Observed {
    pub(crate) deployment: Option<Arc<Deployment>>,
    pub(crate) service: Option<Arc<Service>>,
}

impl Children {
    /// Whether both kinds have been listed.
    pub(crate) fn are_known(&self) -> bool {
        is_known(&self.deployments) && is_known(&self.services)
    }

    /// What the resource has, where nothing was applied that would tell it more freshly.
    pub(crate) fn observed(&self, owner: &Owner) -> Observed {
        Observed {
            deployment: child(&self.deployments, owner),
            service: child(&self.services, owner),
        }
    }
}

/// Whether the store has been filled for the first time.
pub(crate) fn is_known<K>(store: &Store<K>) -> bool
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    store.wait_until_ready().now_or_never().is_some()
}

fn child<K>(store: &Store<K>, owner: &Owner) -> Option<Arc<K>>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    store
        .get(&ObjectRef::new(&owner.child()).within(&owner.namespace))
        .filter(|object| is_controlled_by(object.meta(), &owner.reference.uid))
}
