//! The resources, and when they are ready.

use std::{collections::BTreeSet, pin::pin, time::Duration};

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Namespace;
use kaos_api::v1alpha1::{Agent, MCPServer, ModelAPI};
use kube::{
    Api, Client, ResourceExt,
    api::{DynamicObject, Patch, PatchParams, PostParams},
    core::{ApiResource, ObjectMeta},
    runtime::{WatchStreamExt, watcher},
};
use serde_json::{Value, json};
use tokio::time::timeout;

const NAMESPACE: &str = "load";
/// How many requests are sent at a time: as many as a user's `kubectl apply` and a few colleagues send.
const CONCURRENCY: usize = 16;
const PATIENCE: Duration = Duration::from_secs(600);

/// The resources of a run.
pub(crate) struct World {
    client: Client,
    agents: usize,
    model_apis: usize,
    mcp_servers: usize,
}

impl World {
    pub(crate) fn new(client: Client, agents: usize, model_apis: usize, mcp_servers: usize) -> Self {
        Self {
            client,
            agents,
            model_apis,
            mcp_servers,
        }
    }

    /// Installs the kinds and makes the namespace.
    pub(crate) async fn prepare(&self) -> Result<()> {
        let routes = kaos_external::gateway_api::crds();
        let routes = routes
            .iter()
            .filter(|definition| definition.spec.names.kind == "HTTPRoute");
        for definition in kaos_api::crds().iter().chain(routes) {
            kaos_testkit::install_crd(&self.client, definition).await;
        }
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let metadata = ObjectMeta {
            name: Some(NAMESPACE.to_owned()),
            ..ObjectMeta::default()
        };
        let namespace = Namespace {
            metadata,
            ..Namespace::default()
        };
        namespaces.create(&PostParams::default(), &namespace).await?;
        Ok(())
    }

    fn api(&self, resource: &ApiResource) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), NAMESPACE, resource)
    }

    fn kinds(&self) -> [(ApiResource, usize); 3] {
        [
            (ApiResource::erase::<ModelAPI>(&()), self.model_apis),
            (ApiResource::erase::<MCPServer>(&()), self.mcp_servers),
            (ApiResource::erase::<Agent>(&()), self.agents),
        ]
    }

    /// Creates all resources, those that others refer to first.
    pub(crate) async fn create(&self) -> Result<()> {
        for (resource, count) in self.kinds() {
            let api = &self.api(&resource);
            let objects = (0..count).map(|index| {
                let object = DynamicObject::new(&format!("r{index}"), &resource);
                object.data(json!({"spec": self.spec(&resource.kind, index)}))
            });
            stream::iter(objects)
                .map(|object| async move { api.create(&PostParams::default(), &object).await })
                .buffer_unordered(CONCURRENCY)
                .try_for_each(|_| async { Ok(()) })
                .await?;
        }
        Ok(())
    }

    fn spec(&self, kind: &str, index: usize) -> Value {
        match kind {
            "ModelAPI" => json!({
                "mode": "Proxy",
                "proxyConfig": {"models": ["*"], "provider": "openai", "apiBase": "http://models.example.com/v1"},
            }),
            "MCPServer" => {
                json!({"runtime": "python-string", "params": "def add(a: int, b: int) -> int:\n    return a + b\n"})
            }
            _ => json!({
                "modelAPI": format!("r{}", index % self.model_apis.max(1)),
                "model": "gpt-4o",
                "mcpServers": [format!("r{}", index % self.mcp_servers.max(1))],
                "config": {"description": "One of many", "instructions": "Be brief."},
            }),
        }
    }

    /// Returns when every resource says that it is ready.
    pub(crate) async fn all_ready(&self) -> Result<()> {
        let all = self.kinds().map(|(resource, count)| self.ready(resource, count));
        timeout(PATIENCE, futures::future::try_join_all(all))
            .await
            .with_context(|| format!("not all is ready after {} s", PATIENCE.as_secs()))?
            .map(drop)
    }

    async fn ready(&self, resource: ApiResource, count: usize) -> Result<()> {
        let mut ready = BTreeSet::new();
        let mut objects = pin!(
            watcher(self.api(&resource), watcher::Config::default())
                .default_backoff()
                .applied_objects()
        );
        while ready.len() < count {
            let object = objects.next().await.context("the watch has ended")??;
            if object.data["status"]["ready"] == true {
                ready.insert(object.name_any());
            } else {
                ready.remove(&object.name_any());
            }
        }
        Ok(())
    }

    /// Writes what means nothing to each ModelAPI.
    pub(crate) async fn annotate_model_apis(&self) -> Result<()> {
        let api = self.api(&ApiResource::erase::<ModelAPI>(&()));
        let patch = Patch::Merge(json!({"metadata": {"annotations": {"example.com/seen": "yes"}}}));
        for index in 0..self.model_apis {
            api.patch(&format!("r{index}"), &PatchParams::default(), &patch)
                .await?;
        }
        Ok(())
    }
}
