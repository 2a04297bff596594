//! Removing finalizers that nobody acts on any more.

use kube::{
    Api, Client, Resource,
    api::{ApiResource, Patch, PatchParams},
    core::{DynamicObject, NamespaceResourceScope, Status},
};
use serde_json::{Value, json};

/// Removes these finalizers from `object`, and no others. Sends nothing where it has none of them.
///
/// `object` may come from a store that lags behind: where its finalizers are no longer as they are there, nothing
/// is changed, and the newer object is to be looked at when it comes.
///
/// # Errors
/// When the API server refuses or cannot be reached. That the object is gone, is another by now or has other
/// finalizers is none.
pub async fn drop_finalizers<K>(client: &Client, object: &K, finalizers: &[&str]) -> Result<(), kube::Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    let meta = object.meta();
    let (Some(present), Some(name), Some(namespace)) = (&meta.finalizers, &meta.name, &meta.namespace) else {
        return Ok(());
    };
    let kept: Vec<&String> = present
        .iter()
        .filter(|finalizer| !finalizers.contains(&finalizer.as_str()))
        .collect();
    if kept.len() == present.len() {
        return Ok(());
    }
    // Tests of what was read, so that a finalizer that somebody adds meanwhile is not lost.
    let change = json!([
        { "op": "test", "path": "/metadata/uid", "value": meta.uid },
        { "op": "test", "path": "/metadata/finalizers", "value": present },
        { "op": "replace", "path": "/metadata/finalizers", "value": kept },
    ]);
    let change = serde_json::from_value(change).map_err(kube::Error::SerdeError)?;
    let resource = ApiResource::erase::<K>(&());
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    tracing::info!(
        kind = resource.kind,
        namespace,
        name,
        "removing finalizers that nobody acts on"
    );
    match api
        .patch(name, &PatchParams::default(), &Patch::Json::<Value>(change))
        .await
    {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if is_another(&status) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Whether a test of the patch failed, or there is nothing to test. What is invalid for another reason has causes.
fn is_another(status: &Status) -> bool {
    let causes = status.details.as_ref().map_or(0, |details| details.causes.len());
    matches!(status.code, 404 | 409) || (status.code == 422 && causes == 0)
}
