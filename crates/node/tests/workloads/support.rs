//! An API server with the controllers on it, on simulated time.

use std::time::Duration;

use k8s_openapi::{NamespaceResourceScope, api::core::v1::Namespace};
use kaos_apiserver::{ApiServer, Options, Storage};
use kaos_node::workloads;
use kaos_seams::Seams;
use kube::{Api, Client, Resource, api::PostParams};
use serde_json::json;
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

const NAMESPACE: &str = "workloads";
/// How long anything may take, in simulated time, beyond what the test itself lets pass.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct World {
    pub(crate) seams: Seams,
    client: Client,
    controllers: Option<(CancellationToken, JoinHandle<()>)>,
}

impl World {
    pub(crate) async fn start() -> Self {
        let seams = Seams::simulated(1);
        let options = Options {
            storage: Storage::Memory,
            seams: seams.clone(),
            faults: None,
        };
        let client = Client::new(ApiServer::open(options).await.unwrap(), NAMESPACE);
        let namespace: Namespace =
            serde_json::from_value(json!({ "metadata": { "name": NAMESPACE } })).unwrap();
        Api::all(client.clone())
            .create(&PostParams::default(), &namespace)
            .await
            .unwrap();
        let mut world = Self {
            seams,
            client,
            controllers: None,
        };
        world.start_controllers();
        world
    }

    pub(crate) fn start_controllers(&mut self) {
        let stop = CancellationToken::new();
        let run = workloads::run(self.client.clone(), self.seams.clone(), stop.clone());
        self.controllers = Some((stop, tokio::spawn(run)));
    }

    pub(crate) async fn stop_controllers(&mut self) {
        if let Some((stop, running)) = self.controllers.take() {
            stop.cancel();
            running.await.unwrap();
        }
    }

    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::default_namespaced(self.client.clone())
    }
}

/// Waits until `holds`; `state` is shown where that does not come.
pub(crate) async fn until(what: &str, holds: impl AsyncFn() -> bool, state: impl AsyncFn() -> String) {
    let end = Instant::now() + PATIENCE;
    while !holds().await {
        if Instant::now() >= end {
            panic!("{what}: not in time; {}", state().await);
        }
        sleep(Duration::from_millis(10)).await;
    }
}
