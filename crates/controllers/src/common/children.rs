//! The objects that resources have, as the watches last saw them: only as much of each as is looked at here.
//!
//! What an object is to be is compared with the live object, not with these: of these only a fingerprint is left, which
//! tells whether that is needed.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use k8s_openapi::{
    api::{
        apps::v1::{self as apps, Deployment},
        core::v1::{ConfigMap, Service},
    },
    apimachinery::pkg::apis::meta::v1::{FieldsV1, ObjectMeta},
};
use kaos_api::names;
use kaos_external::gateway_api::{HTTPRoute, HttpRouteStatus};
use kaos_kube_ext::{Availability, Fingerprint, controller_of, is_controlled_by};
use kube::{
    Resource, ResourceExt,
    runtime::reflector::{ObjectRef, Store},
};
use serde::{Deserialize, de::IgnoredAny};

use super::{leftovers::InOrder, objects::Owner};

/// An object as the API server tells it, with a spec and a status of which only a part may be read.
#[derive(Deserialize)]
struct Whole<S, T> {
    #[serde(default)]
    metadata: ObjectMeta,
    #[serde(default)]
    spec: S,
    status: Option<T>,
}

/// A Deployment without its pod template.
#[derive(Clone, Debug, Deserialize, Resource)]
#[resource(inherit = "Deployment")]
#[serde(from = "Whole<Scale, apps::DeploymentStatus>")]
pub(crate) struct Deployed {
    /// With managed fields of those only who have applied the number of replicas.
    pub(crate) metadata: ObjectMeta,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) spec: Scale,
    pub(crate) status: Option<apps::DeploymentStatus>,
}

/// How many pods there are to be.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Scale {
    #[serde(default)]
    pub(crate) replicas: Option<i32>,
    /// Whether changes wait until somebody resumes it.
    #[serde(default)]
    pub(crate) paused: Option<bool>,
}

impl Deployed {
    /// Whether `manager` has said how many pods there are to be.
    pub(crate) fn is_scaled_by(&self, manager: &str) -> bool {
        let appliers = self.metadata.managed_fields.iter().flatten();
        appliers
            .into_iter()
            .any(|entry| entry.manager.as_deref() == Some(manager))
    }
}

impl From<Whole<Scale, apps::DeploymentStatus>> for Deployed {
    fn from(whole: Whole<Scale, apps::DeploymentStatus>) -> Self {
        Self {
            fingerprint: Fingerprint::of(&whole.metadata),
            metadata: with_scaling(whole.metadata),
            spec: whole.spec,
            status: whole.status,
        }
    }
}

/// A Service that is there.
#[derive(Clone, Debug, Deserialize, Resource)]
#[resource(inherit = "Service")]
#[serde(from = "Whole<Ports, IgnoredAny>")]
pub(crate) struct Served {
    pub(crate) metadata: ObjectMeta,
    pub(crate) fingerprint: Fingerprint,
    spec: Ports,
}

impl From<Whole<Ports, IgnoredAny>> for Served {
    fn from(whole: Whole<Ports, IgnoredAny>) -> Self {
        Self {
            fingerprint: Fingerprint::of(&whole.metadata),
            metadata: trimmed(whole.metadata),
            spec: whole.spec,
        }
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Ports {
    #[serde(default)]
    ports: Vec<Port>,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Port {
    #[serde(default)]
    name: Option<String>,
    port: i32,
}

impl Served {
    /// The port that the address of the resource names.
    pub(crate) fn port(&self) -> Option<u16> {
        let ports = &self.spec.ports;
        let named = |port: &&Port| port.name.as_deref() == Some(names::PORT_NAME);
        let port = ports.iter().find(named).or(ports.first())?;
        u16::try_from(port.port).ok()
    }
}

/// A ConfigMap that is there.
#[derive(Clone, Debug, Deserialize, Resource)]
#[resource(inherit = "ConfigMap")]
#[serde(from = "Whole<IgnoredAny, IgnoredAny>")]
pub(crate) struct Configured {
    pub(crate) metadata: ObjectMeta,
    pub(crate) fingerprint: Fingerprint,
}

impl From<Whole<IgnoredAny, IgnoredAny>> for Configured {
    fn from(whole: Whole<IgnoredAny, IgnoredAny>) -> Self {
        Self {
            fingerprint: Fingerprint::of(&whole.metadata),
            metadata: trimmed(whole.metadata),
        }
    }
}

/// An HTTPRoute without what it says.
#[derive(Clone, Debug, Deserialize, Resource)]
#[resource(inherit = "HTTPRoute")]
#[serde(from = "Whole<IgnoredAny, HttpRouteStatus>")]
pub(crate) struct Routed {
    pub(crate) metadata: ObjectMeta,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) status: Option<HttpRouteStatus>,
}

impl From<Whole<IgnoredAny, HttpRouteStatus>> for Routed {
    fn from(whole: Whole<IgnoredAny, HttpRouteStatus>) -> Self {
        Self {
            fingerprint: Fingerprint::of(&whole.metadata),
            metadata: trimmed(whole.metadata),
            status: whole.status,
        }
    }
}

fn with_scaling(mut metadata: ObjectMeta) -> ObjectMeta {
    let mut appliers = metadata.managed_fields.take().unwrap_or_default();
    appliers.retain_mut(|entry| {
        let fields = entry.fields_v1.take();
        let scales = |fields: FieldsV1| fields.0.pointer("/f:spec/f:replicas").is_some();
        entry.operation.as_deref() == Some("Apply") && fields.is_some_and(scales)
    });
    ObjectMeta {
        managed_fields: (!appliers.is_empty()).then_some(appliers),
        ..trimmed(metadata)
    }
}

/// What tells an object apart, and whose it is. The rest is the larger part of most objects.
fn trimmed(metadata: ObjectMeta) -> ObjectMeta {
    ObjectMeta {
        managed_fields: None,
        annotations: None,
        labels: None,
        ..metadata
    }
}

/// The objects of a kind, by name and by the resource they belong to.
#[derive(Debug)]
pub(crate) struct Kept<K: Resource<DynamicType = ()> + 'static> {
    store: Store<K>,
    by_owner: Arc<Mutex<ByOwner>>,
    /// What the watch does not tell of, by the uid of its controller.
    found: Arc<Mutex<HashMap<String, Arc<K>>>>,
}

/// Namespaces and names of objects, by the uid of their controller.
type ByOwner = HashMap<String, BTreeSet<(String, String)>>;

impl<K: Resource<DynamicType = ()> + 'static> Clone for Kept<K> {
    fn clone(&self) -> Self {
        Self {
            store: self.store.clone(),
            by_owner: self.by_owner.clone(),
            found: self.found.clone(),
        }
    }
}

impl<K: Resource<DynamicType = ()> + Clone + 'static> Kept<K> {
    pub(crate) fn new(store: Store<K>) -> Self {
        Self {
            store,
            by_owner: Arc::default(),
            found: Arc::default(),
        }
    }

    pub(crate) fn store(&self) -> &Store<K> {
        &self.store
    }

    /// To be called with every object that comes out of the watch of the store.
    pub(crate) fn note(&self, object: &K) {
        let Some(owner) = controller_of(object.meta()) else {
            return;
        };
        let key = (object.namespace().unwrap_or_default(), object.name_any());
        let is_there = self.store.get(&ObjectRef::from_obj(object)).is_some();
        let mut by_owner = self.by_owner();
        if is_there {
            by_owner.entry(owner.uid.clone()).or_default().insert(key);
        } else if let Some(names) = by_owner.get_mut(&owner.uid) {
            names.remove(&key);
            if names.is_empty() {
                by_owner.remove(&owner.uid);
            }
        }
    }

    /// All that this resource controls.
    pub(crate) fn of(&self, owner: &Owner) -> Vec<Arc<K>> {
        let names = self
            .by_owner()
            .get(&owner.reference.uid)
            .cloned()
            .unwrap_or_default();
        names
            .iter()
            .filter_map(|(namespace, name)| self.store.get(&ObjectRef::new(name).within(namespace)))
            .chain(self.found_of(owner))
            .filter(|object| is_controlled_by(object.meta(), &owner.reference.uid))
            .collect()
    }

    /// The object of this name, if the resource controls it.
    pub(crate) fn named(&self, owner: &Owner, name: &str) -> Option<Arc<K>> {
        self.store
            .get(&ObjectRef::new(name).within(&owner.namespace))
            .or_else(|| self.found_of(owner).filter(|object| object.name_any() == name))
            .filter(|object| is_controlled_by(object.meta(), &owner.reference.uid))
    }

    /// Whether the watch tells of an object of this name that the resource controls.
    pub(crate) fn is_watched(&self, owner: &Owner, name: &str) -> bool {
        let object = self.store.get(&ObjectRef::new(name).within(&owner.namespace));
        object.is_some_and(|object| is_controlled_by(object.meta(), &owner.reference.uid))
    }

    /// What the watch tells of the object with the name in `wanted`, whoever controls it.
    pub(crate) fn watched(&self, owner: &Owner, wanted: &ObjectMeta) -> Option<Arc<K>> {
        let name = wanted.name.as_deref().unwrap_or_default();
        self.store.get(&ObjectRef::new(name).within(&owner.namespace))
    }

    /// What was found beside what the watch tells of, in the place of what was found before. What the resource does
    /// not control is not taken for its own.
    pub(crate) fn found(&self, uid: &str, object: Option<Arc<K>>) {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        match object {
            Some(object) => drop(found.insert(uid.to_owned(), object)),
            None => drop(found.remove(uid)),
        }
    }

    fn found_of(&self, owner: &Owner) -> Option<Arc<K>> {
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.get(&owner.reference.uid).cloned()
    }

    fn by_owner(&self) -> MutexGuard<'_, ByOwner> {
        self.by_owner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The objects of all resources.
#[derive(Clone, Debug)]
pub(crate) struct Children {
    pub(crate) deployments: Kept<Deployed>,
    pub(crate) services: Kept<Served>,
    pub(crate) config_maps: Kept<Configured>,
    pub(crate) routes: Kept<Routed>,
    /// Whether the API server serves routes.
    pub(crate) routes_served: Availability,
    /// Resources of which no others are to be looked for.
    pub(crate) in_order: InOrder,
}

/// What one resource has of the objects that its status tells of.
#[derive(Clone, Debug, Default)]
pub(crate) struct Live {
    pub(crate) deployment: Option<Arc<Deployed>>,
    pub(crate) service: Option<Arc<Served>>,
    pub(crate) route: Option<Arc<Routed>>,
}

impl Children {
    /// What the resource has, where nothing was applied that would tell it more freshly.
    pub(crate) fn live(&self, owner: &Owner) -> Live {
        Live {
            deployment: self.deployments.named(owner, &owner.child()),
            service: self.services.named(owner, &owner.child()),
            route: self.routes.named(owner, &owner.kind.route(&owner.name)),
        }
    }
}
