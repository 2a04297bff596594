//! The API a test runs against.

use std::env;
use std::path::Path;
use std::sync::Arc;

use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::rt::TokioExecutor;
use k8s_openapi::api::core::v1::Namespace;
use kaos_apiserver::{ApiServer, FaultInjector, Options, Storage};
use kaos_seams::Seams;
use kube::api::{ObjectMeta, PostParams};
use kube::client::{ClientBuilder, ConfigExt};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use tokio_util::sync::{CancellationToken, DropGuard};
use tower::{BoxError, ServiceBuilder};

use crate::calls::{Calls, Watched};
use crate::eventually::{PATIENCE, eventually};

/// Names the kubeconfig of the real server to test against.
const KUBECONFIG_VARIABLE: &str = "KAOS_TEST_KUBECONFIG";

/// A Kubernetes API and a namespace that belongs to one test.
pub struct TestApi {
    /// A client whose requests [`TestApi::calls`] sees.
    pub client: Client,
    /// A namespace that nobody else uses.
    pub namespace: String,
    /// The embedded server; `None` where the test runs against a real one.
    pub server: Option<ApiServer>,
    /// The clock and the randomness of the embedded server, for what runs beside it.
    pub seams: Seams,
    calls: Calls,
    _background: Option<DropGuard>,
}

/// How to start a [`TestApi`].
#[derive(Default)]
pub struct Builder {
    embedded: bool,
    workloads: bool,
    storage: Option<Storage>,
    seams: Option<Seams>,
    faults: Option<Arc<dyn FaultInjector>>,
}

impl Builder {
    /// Stay with the embedded server, whatever the environment says.
    #[must_use]
    pub fn embedded(mut self) -> Self {
        self.embedded = true;
        self
    }

    /// Have Deployments, ReplicaSets and Jobs make pods. A real server does it anyway.
    #[must_use]
    pub fn workloads(mut self) -> Self {
        self.workloads = true;
        self
    }

    /// Keep the objects there instead of in memory. Implies [`Builder::embedded`].
    #[must_use]
    pub fn storage(mut self, storage: Storage) -> Self {
        self.storage = Some(storage);
        self.embedded()
    }

    /// Use this clock and randomness instead of simulated ones.
    #[must_use]
    pub fn seams(mut self, seams: Seams) -> Self {
        self.seams = Some(seams);
        self
    }

    /// Ask `faults` about each call. Implies [`Builder::embedded`].
    #[must_use]
    pub fn faults(mut self, faults: Arc<dyn FaultInjector>) -> Self {
        self.faults = Some(faults);
        self.embedded()
    }

    /// Starts it.
    ///
    /// # Panics
    /// When the server does not start, or the real one does not answer.
    pub async fn start(self) -> TestApi {
        kaos_telemetry::install_crypto_provider();
        let seams = self.seams.unwrap_or_else(|| Seams::simulated(1));
        let calls = Calls::default();
        let kubeconfig = env::var_os(KUBECONFIG_VARIABLE).filter(|_| !self.embedded);
        let server = match kubeconfig {
            Some(_) => None,
            None => {
                let storage = self.storage.unwrap_or(Storage::Memory);
                let options = Options {
                    storage,
                    seams: seams.clone(),
                    faults: self.faults,
                };
                Some(ApiServer::open(options).await.expect("the embedded server opens"))
            }
        };
        let client = client(server.as_ref(), calls.clone(), None).await;
        let namespace = fresh_namespace(&client, server.is_some()).await;
        let mut background = None;
        if let Some(server) = server.clone()
            && self.workloads
        {
            let token = CancellationToken::new();
            let client = Client::new(server, "default");
            tokio::spawn(kaos_node::workloads::run(client, seams.clone(), token.clone()));
            background = Some(token.drop_guard());
        }
        TestApi {
            client,
            namespace,
            server,
            seams,
            calls,
            _background: background,
        }
    }
}

impl TestApi {
    /// The API the environment asks for: embedded, or the real one of `KAOS_TEST_KUBECONFIG`.
    pub async fn start() -> Self {
        Builder::default().start().await
    }

    /// As [`TestApi::start`], with Deployments, ReplicaSets and Jobs that make pods.
    pub async fn start_with_workloads() -> Self {
        Builder::default().workloads().start().await
    }

    /// The embedded server, whatever the environment says.
    pub async fn embedded() -> Self {
        Builder::default().embedded().start().await
    }

    /// Whether this is the embedded server.
    pub fn is_embedded(&self) -> bool {
        self.server.is_some()
    }

    /// What [`TestApi::client`] sent.
    pub fn calls(&self) -> &Calls {
        &self.calls
    }

    /// An API group that nobody else uses, for the definitions of a test: they belong to no namespace.
    pub fn group(&self) -> String {
        format!("{}.example.com", self.namespace)
    }

    /// The objects of a kind in the test's namespace.
    pub fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Another client of the same API with calls of its own, for a part under test. To it, the lists of all
    /// namespaces hold only the test's: parts of other tests on the same server stay out of each other's way.
    pub async fn client_of_namespace(&self) -> (Client, Calls) {
        let calls = Calls::default();
        let client = client(
            self.server.as_ref(),
            calls.clone(),
            Some(self.namespace.as_str().into()),
        )
        .await;
        (client, calls)
    }
}

async fn client(server: Option<&ApiServer>, calls: Calls, only: Option<Arc<str>>) -> Client {
    let watched = Watched { calls, only };
    match server {
        Some(server) => ClientBuilder::new(server.clone(), "default")
            .with_layer(&watched)
            .build(),
        None => {
            let path = env::var_os(KUBECONFIG_VARIABLE).expect("only without it there is no embedded server");
            let kubeconfig = Kubeconfig::read_from(Path::new(&path)).expect("the kubeconfig can be read");
            let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
                .await
                .expect("the kubeconfig is complete");
            // Not kube's own stack: it sends refused requests again, and a test wants to see the refusal.
            let connector = config
                .rustls_https_connector()
                .expect("the kubeconfig's certificates are usable");
            let service = ServiceBuilder::new()
                .layer(&watched)
                .layer(config.base_uri_layer())
                .option_layer(
                    config
                        .auth_layer()
                        .expect("the kubeconfig's credentials are usable"),
                )
                .map_err(BoxError::from)
                .service(HttpClient::builder(TokioExecutor::new()).build(connector));
            Client::new(service, "default")
        }
    }
}

async fn fresh_namespace(client: &Client, embedded: bool) -> String {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let metadata = ObjectMeta {
        generate_name: Some("test-".to_owned()),
        ..ObjectMeta::default()
    };
    let namespace = namespaces
        .create(
            &PostParams::default(),
            &Namespace {
                metadata,
                ..Namespace::default()
            },
        )
        .await
        .expect("a namespace is created");
    let name = namespace.metadata.name.expect("a created object has a name");
    if !embedded {
        // Until then the real server refuses pods in it.
        let accounts: Api<k8s_openapi::api::core::v1::ServiceAccount> =
            Api::namespaced(client.clone(), &name);
        eventually("the namespace has a service account", PATIENCE, async || {
            accounts.get("default").await
        })
        .await;
    }
    name
}
