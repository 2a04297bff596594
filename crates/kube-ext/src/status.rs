//! Writing a status.

use kube::{
    Api, Client, Resource,
    api::{ApiResource, Patch, PatchParams, ValidationDirective},
    core::{DynamicObject, NamespaceResourceScope},
};
use serde::Serialize;
use serde_json::{Value, json};

use crate::compare;

/// Makes the status of `object` what `status` says, as `manager`. Sends no write where it already is.
///
/// `object` may come from a store that lags behind: before anything is written the live object is asked. An
/// object that is gone, or is another of the same name by now, is left alone.
///
/// # Errors
/// When the API server refuses or cannot be reached, or the status is no JSON.
pub async fn apply_status<K, S>(
    client: &Client,
    manager: &str,
    object: &K,
    status: &S,
) -> Result<(), kube::Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Serialize,
    S: Serialize,
{
    let meta = object.meta();
    let name = meta.name.as_deref().unwrap_or_default();
    let resource = ApiResource::erase::<K>(&());
    let intent = json!({
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": { "name": name },
        "status": serde_json::to_value(status).map_err(kube::Error::SerdeError)?,
    });
    let same = |live: &Value| compare::holds(&intent, live, manager, Some("status"));

    if same(&serde_json::to_value(object).map_err(kube::Error::SerdeError)?) {
        return Ok(());
    }
    let namespace = meta.namespace.as_deref().unwrap_or_default();
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    let Some(live) = api.get_opt(name).await? else {
        return Ok(());
    };
    if live.metadata.uid != meta.uid || same(&serde_json::to_value(live).map_err(kube::Error::SerdeError)?) {
        return Ok(());
    }
    let params = PatchParams {
        field_validation: Some(ValidationDirective::Strict),
        ..PatchParams::apply(manager).force()
    };
    match api.patch_status(name, &params, &Patch::Apply(&intent)).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(error),
    }
}
