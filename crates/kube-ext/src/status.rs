//! Writing a status.

use kube::{
    Api, Resource, ResourceExt,
    api::{ApiResource, Patch},
    core::{DynamicObject, NamespaceResourceScope, Request},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    apply::{ATTEMPTS, Applier, is_overtaken},
    compare, handover,
};

const STATUS: &str = "status";

/// What is read of the answer to a write.
#[derive(Deserialize)]
struct Written {
    metadata: Version,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Version {
    resource_version: Option<String>,
}

impl Applier {
    /// Makes the status of `object` what `status` says, and returns the resource version in which it is. Sends no
    /// write where it already is.
    ///
    /// `object` may come from a store that lags behind: before anything is written the live object is asked. An
    /// object that is gone, or is another of the same name by now, is left alone; then no version is returned.
    ///
    /// # Errors
    /// When the API server refuses or cannot be reached, or the status is no JSON.
    pub async fn apply_status<K, S>(&self, object: &K, status: &S) -> Result<Option<String>, kube::Error>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Serialize,
        S: Serialize,
    {
        let (api, intent) = self.status_of(object, status)?;
        if self.is_status(&intent, object)? {
            return Ok(object.meta().resource_version.clone());
        }
        self.until_written(&api, object.meta().uid.as_deref(), &intent)
            .await
    }

    /// As [`Applier::apply_status`], where the status of `object` is another one and was written by this applier,
    /// or there is none: there is nothing to take over, so the first write is sent without a look, for the very
    /// version of `object`.
    ///
    /// # Errors
    /// As there.
    pub async fn apply_own_status<K, S>(&self, object: &K, status: &S) -> Result<Option<String>, kube::Error>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
        S: Serialize,
    {
        let (api, intent) = self.status_of(object, status)?;
        match self
            .send_status(&api, object.meta().resource_version.as_deref(), &intent)
            .await
        {
            Err(error) if is_overtaken(&error) => {
                self.until_written(&api, object.meta().uid.as_deref(), &intent)
                    .await
            }
            outcome => outcome,
        }
    }

    /// As [`Applier::apply_status`], for a status of which others have a part that `status` repeats from `object`. It
    /// is written for the very version of `object`, so that nothing is lost of what they have said since. Where the
    /// live object is a newer one nothing is written: the caller's watch will show it.
    ///
    /// # Errors
    /// As there.
    pub async fn apply_shared_status<K, S>(&self, object: &K, status: &S) -> Result<(), kube::Error>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Serialize,
        S: Serialize,
    {
        let (api, intent) = self.status_of(object, status)?;
        if self.is_status(&intent, object)? {
            return Ok(());
        }
        let version = object.meta().resource_version.as_deref();
        let live = api.get_opt(&object.name_any()).await?;
        if live.is_none_or(|live| live.metadata.resource_version.as_deref() != version) {
            return Ok(());
        }
        self.send_status(&api, version, &intent).await.map(drop)
    }

    fn status_of<K, S>(&self, object: &K, status: &S) -> Result<(Api<DynamicObject>, Value), kube::Error>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
        S: Serialize,
    {
        let resource = ApiResource::erase::<K>(&());
        let intent = json!({
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": { "name": object.meta().name },
            "status": serde_json::to_value(status).map_err(kube::Error::SerdeError)?,
        });
        let namespace = object.meta().namespace.as_deref().unwrap_or_default();
        Ok((
            Api::namespaced_with(self.client.clone(), namespace, &resource),
            intent,
        ))
    }

    async fn until_written(
        &self,
        api: &Api<DynamicObject>,
        uid: Option<&str>,
        intent: &Value,
    ) -> Result<Option<String>, kube::Error> {
        let mut attempt = 1;
        loop {
            match self.attempt_status(api, uid, intent).await {
                Err(error) if attempt < ATTEMPTS && is_overtaken(&error) => attempt += 1,
                outcome => return outcome,
            }
        }
    }

    async fn attempt_status(
        &self,
        api: &Api<DynamicObject>,
        uid: Option<&str>,
        intent: &Value,
    ) -> Result<Option<String>, kube::Error> {
        let name = intent["metadata"]["name"].as_str().unwrap_or_default();
        let Some(live) = api.get_opt(name).await? else {
            return Ok(None);
        };
        if live.metadata.uid.as_deref() != uid {
            return Ok(None);
        }
        let live = match handover::take_over(api, &live, self, Some(STATUS)).await? {
            Some(taken_over) => taken_over,
            None => live,
        };
        if self.is_status(intent, &live)? {
            return Ok(live.metadata.resource_version);
        }
        self.send_status(api, live.metadata.resource_version.as_deref(), intent)
            .await
    }

    /// A status carries no uid: the version says which object it is for.
    async fn send_status(
        &self,
        api: &Api<DynamicObject>,
        version: Option<&str>,
        intent: &Value,
    ) -> Result<Option<String>, kube::Error> {
        let name = intent["metadata"]["name"].as_str().unwrap_or_default();
        let mut intent = intent.clone();
        intent["metadata"]["resourceVersion"] = json!(version);
        let request = Request::new(api.resource_url()).patch_subresource(
            STATUS,
            name,
            &self.params(),
            &Patch::Apply(&intent),
        );
        let request = request.map_err(kube::Error::BuildRequest)?;
        let Written { metadata } = self.client.request(request).await?;
        Ok(metadata.resource_version)
    }

    fn is_status(&self, intent: &Value, object: &impl Serialize) -> Result<bool, kube::Error> {
        let object = serde_json::to_value(object).map_err(kube::Error::SerdeError)?;
        Ok(compare::holds(intent, &object, self.manager, Some(STATUS)))
    }
}
