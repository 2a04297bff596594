//! Which objects a controller controls: those it created, those that match and are nobody's.

use k8s_openapi::{
    api::core::v1::Pod,
    apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference},
};
use kube::{
    Api, Resource, ResourceExt as _,
    api::{Patch, PatchParams},
    core::{Selector, SelectorExt as _},
};
use serde::de::DeserializeOwned;
use serde_json::json;

/// The owner that controls an object.
pub(super) fn controller(meta: &ObjectMeta) -> Option<&OwnerReference> {
    meta.owner_references
        .iter()
        .flatten()
        .find(|owner| owner.controller == Some(true))
}

/// A selector that can be asked; `None` for an invalid or empty one, which must select nothing here.
pub(super) fn selector(selector: &LabelSelector) -> Option<Selector> {
    let empty = selector
        .match_labels
        .as_ref()
        .is_none_or(|labels| labels.is_empty())
        && selector.match_expressions.as_ref().is_none_or(Vec::is_empty);
    if empty {
        None
    } else {
        Selector::try_from(selector.clone()).ok()
    }
}

/// Those of `objects` that `owner` controls, after taking in the ones that match and are nobody's, and
/// giving up those that match no more.
pub(super) async fn claim<K, Owner>(
    api: &Api<K>,
    objects: Vec<K>,
    owner: &Owner,
    selector: &Selector,
) -> Result<Vec<K>, kube::Error>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
    Owner: Resource<DynamicType = ()>,
{
    let own_uid = owner.meta().uid.clone().unwrap_or_default();
    let leaving = owner.meta().deletion_timestamp.is_some();
    let mut claimed = Vec::new();
    for object in objects {
        let matches = selector.matches(object.labels());
        match controller(object.meta()) {
            Some(other) if other.uid != own_uid => {}
            Some(_) if matches => claimed.push(object),
            Some(_) if leaving => {}
            Some(_) => drop(set_owners(api, &object, |owners| owners.retain(|o| o.uid != own_uid)).await?),
            None if !matches || leaving || object.meta().deletion_timestamp.is_some() => {}
            None => {
                let Some(reference) = owner.controller_owner_ref(&()) else {
                    continue;
                };
                let reference = OwnerReference {
                    block_owner_deletion: Some(true),
                    ..reference
                };
                claimed.extend(set_owners(api, &object, |owners| owners.push(reference)).await?);
            }
        }
    }
    Ok(claimed)
}

/// Changes the owners of exactly this object, as it was read; `None` when it is gone meanwhile.
async fn set_owners<K>(
    api: &Api<K>,
    object: &K,
    change: impl FnOnce(&mut Vec<OwnerReference>),
) -> Result<Option<K>, kube::Error>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    let mut owners = object.owner_references().to_vec();
    change(&mut owners);
    let meta = object.meta();
    let patch = json!({ "metadata": {
        "uid": meta.uid, "resourceVersion": meta.resource_version, "ownerReferences": owners,
    } });
    match api
        .patch(&object.name_any(), &PatchParams::default(), &Patch::Merge(&patch))
        .await
    {
        Ok(object) => Ok(Some(object)),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether a pod still does, or will do, its work.
pub(super) fn is_active(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    pod.metadata.deletion_timestamp.is_none() && !matches!(phase, Some("Succeeded" | "Failed"))
}
