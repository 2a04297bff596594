//! Removal of objects that are no longer wanted.

use std::{fmt::Debug, sync::Arc};

use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, Preconditions},
    core::NamespaceResourceScope,
};
use serde::de::DeserializeOwned;
use tracing::info;

use crate::{apply::is_overtaken, owner::is_controlled_by};

/// Why an object could not be deleted.
#[derive(Debug, thiserror::Error)]
#[error("{kind} {name}: {source}")]
pub struct PruneError {
    /// Kind of the object.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// The API server's answer, or that there was none.
    pub source: kube::Error,
}

/// Deletes those of `candidates` that the owner with this uid controls and that are not in `wanted`.
///
/// Candidates may come from a store that lags behind: each deletion names the uid it is meant for.
///
/// # Errors
/// When the API server refuses a deletion. That an object is gone already, or is another by now, is none.
pub async fn prune<K>(
    client: &Client,
    owner_uid: &str,
    candidates: impl IntoIterator<Item = Arc<K>>,
    wanted: &[&str],
) -> Result<(), PruneError>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
{
    for object in candidates {
        let (name, meta) = (object.name_any(), object.meta());
        let unwanted = is_controlled_by(meta, owner_uid)
            && meta.deletion_timestamp.is_none()
            && !wanted.contains(&name.as_str());
        let (true, Some(namespace)) = (unwanted, meta.namespace.as_deref()) else {
            continue;
        };
        let params = DeleteParams {
            preconditions: Some(Preconditions {
                uid: meta.uid.clone(),
                resource_version: None,
            }),
            ..DeleteParams::background()
        };
        info!(kind = %K::kind(&()), namespace, name, "deleting what is no longer wanted");
        let api: Api<K> = Api::namespaced(client.clone(), namespace);
        let failed = |source| PruneError {
            kind: K::kind(&()).into_owned(),
            name: name.clone(),
            source,
        };
        match api.delete(&name, &params).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(conflict @ kube::Error::Api(_)) if is_overtaken(&conflict) => {
                // Of another object it is none of ours; of this one it has to be tried again.
                let live = api.get_opt(&name).await.map_err(failed)?;
                if live.is_some_and(|live| live.meta().uid == meta.uid) {
                    return Err(failed(conflict));
                }
            }
            Err(error) => return Err(failed(error)),
        }
    }
    Ok(())
}
