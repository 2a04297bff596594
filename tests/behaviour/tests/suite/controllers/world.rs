//! Running controllers in a namespace, and a user who writes to it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use kaos_controllers::{Config, Gateway, RouteTimeouts, Runtime};
use kaos_seams::{Dialer, Seams};
use kaos_testkit::{
    Builder, Calls, Faults, KeptReady, PATIENCE, TestApi, eventually, install_crds, install_gateway_api,
    keep_pods_ready,
};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// A test's namespace with controllers that look after it.
pub(super) struct World {
    pub(super) api: TestApi,
    seams: Seams,
    config: Config,
    calls: Calls,
    dialled: Arc<AtomicUsize>,
    stop: CancellationToken,
    controllers: Option<JoinHandle<()>>,
    node: Option<KeptReady>,
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// No Service answers: its pods are only said to run.
#[derive(Debug)]
struct Nowhere;

impl Dialer for Nowhere {
    fn address(&self, _host: &str, _port: u16) -> Option<SocketAddr> {
        Some(SocketAddr::from(([127, 0, 0, 1], 1)))
    }
}

/// Counts how often an address is asked for.
#[derive(Debug)]
struct Counting {
    dialer: Arc<dyn Dialer>,
    dialled: Arc<AtomicUsize>,
}

impl Dialer for Counting {
    fn address(&self, host: &str, port: u16) -> Option<SocketAddr> {
        self.dialled.fetch_add(1, Ordering::Relaxed);
        self.dialer.address(host, port)
    }
}

impl World {
    /// Pods become ready soon after they are made.
    pub(super) async fn start() -> Self {
        let mut world = Self::start_without_node().await;
        world.start_node();
        world
    }

    /// Pods do not become ready.
    pub(super) async fn start_without_node() -> Self {
        Self::start_with_dialer(|_| Arc::new(Nowhere)).await
    }

    /// As [`World::start_without_node`], with a dialer that may depend on the namespace.
    pub(super) async fn start_with_dialer(dialer: impl FnOnce(&str) -> Arc<dyn Dialer>) -> Self {
        let api = TestApi::start_with_workloads().await;
        let dialer = dialer(&api.namespace);
        Self::on(api, dialer).await
    }

    /// As [`World::start_without_node`], with another configuration, which may depend on the namespace.
    pub(super) async fn start_with_config(change: impl FnOnce(&str, &mut Config)) -> Self {
        let api = TestApi::start_with_workloads().await;
        let mut config = config();
        change(&api.namespace, &mut config);
        Self::on_with(api, Arc::new(Nowhere), config).await
    }

    /// As [`World::start_without_node`], with routes through a Gateway. Nobody serves them.
    pub(super) async fn start_with_gateway() -> Self {
        let api = TestApi::start_with_workloads().await;
        install_gateway_api(&api).await;
        Self::on_with(api, Arc::new(Nowhere), with_gateway()).await
    }

    /// As [`World::start_with_gateway`], where no Gateway API is served. On the embedded server: a real one is
    /// shared by tests that run side by side, and so are the kinds that it serves.
    pub(super) async fn start_without_gateway_api() -> Self {
        let api = Builder::default().workloads().embedded().start().await;
        Self::on_with(api, Arc::new(Nowhere), with_gateway()).await
    }

    /// As [`World::start_without_node`], on the embedded server, which does what `faults` ask for.
    pub(super) async fn start_with_faults(faults: Faults) -> Self {
        let api = Builder::default()
            .workloads()
            .faults(Arc::new(faults))
            .start()
            .await;
        Self::on(api, Arc::new(Nowhere)).await
    }

    async fn on(api: TestApi, dialer: Arc<dyn Dialer>) -> Self {
        Self::on_with(api, dialer, config()).await
    }

    async fn on_with(api: TestApi, dialer: Arc<dyn Dialer>, config: Config) -> Self {
        install_crds(&api).await;
        if !api.is_embedded() {
            // Not in the middle of a test that counts requests, because another one needs it.
            install_gateway_api(&api).await;
        }
        let dialled = Arc::<AtomicUsize>::default();
        let dialer = Counting {
            dialer,
            dialled: dialled.clone(),
        };
        let mut world = Self {
            seams: api.seams.clone().with_dialer(Arc::new(dialer)),
            dialled,
            api,
            config,
            calls: Calls::default(),
            stop: CancellationToken::new(),
            controllers: None,
            node: None,
        };
        world.start_controllers().await;
        world
    }

    /// Starts controllers that see this namespace only, with their calls counted from here.
    async fn start_controllers(&mut self) {
        let (client, calls) = self.api.client_of_namespace().await;
        self.calls = calls;
        self.stop = CancellationToken::new();
        let (seams, stop) = (self.seams.clone(), self.stop.clone());
        let config = self.config.clone();
        self.controllers = Some(tokio::spawn(async move {
            kaos_controllers::run(client, config, seams, stop)
                .await
                .expect("the controllers run until they are stopped");
        }));
    }

    /// Has the API server serve the Gateway API from now on.
    pub(super) async fn install_gateway_api(&self) {
        install_gateway_api(&self.api).await;
    }

    /// Has the API server serve HTTPRoutes no longer. All that there are go.
    pub(super) async fn remove_gateway_api(&self) {
        assert!(self.api.is_embedded(), "other tests need it");
        let path =
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/httproutes.gateway.networking.k8s.io";
        let (code, answer) = self.api.raw("DELETE", path, &[], ()).await;
        assert_eq!(code, 200, "{answer}");
        eventually("the kind is served no longer", PATIENCE, async || {
            self.api.raw("GET", &self.path("httproutes", ""), &[], ()).await.0 == 404
        })
        .await;
    }

    /// Stops the controllers, and starts others that are told this.
    pub(super) async fn reconfigure(&mut self, change: impl FnOnce(&mut Config)) {
        change(&mut self.config);
        self.restart_controllers().await;
    }

    /// Stops the controllers as an operator that is told to end, and starts others.
    pub(super) async fn restart_controllers(&mut self) {
        self.stop_controllers().await;
        self.start_controllers().await;
    }

    /// Stops the controllers as an operator that is told to end.
    pub(super) async fn stop_controllers(&mut self) {
        self.stop.cancel();
        if let Some(controllers) = self.controllers.take() {
            controllers.await.expect("the controllers end without an error");
        }
    }

    /// How often the controllers have asked for the address of a Service.
    pub(super) fn dialled(&self) -> usize {
        self.dialled.load(Ordering::Relaxed)
    }

    /// From now on pods become ready.
    pub(super) fn start_node(&mut self) {
        self.node = Some(keep_pods_ready(&self.api.client, &self.api.namespace));
    }

    /// From now on new pods do not become ready.
    pub(super) fn stop_node(&mut self) {
        self.node = None;
    }

    /// What the controllers sent.
    pub(super) fn calls(&self) -> &Calls {
        &self.calls
    }

    /// The address of an object, or of all of its kind where `name` is empty.
    pub(super) fn path(&self, plural: &str, name: &str) -> String {
        let group = match plural {
            "agents" | "modelapis" | "mcpservers" => "apis/kaos.tools/v1alpha1",
            "deployments" | "replicasets" => "apis/apps/v1",
            "httproutes" => "apis/gateway.networking.k8s.io/v1",
            _ => "api/v1",
        };
        let path = format!("/{group}/namespaces/{}/{plural}/{name}", self.api.namespace);
        path.trim_end_matches('/').to_owned()
    }

    /// The object; `None` where there is none.
    pub(super) async fn get(&self, plural: &str, name: &str) -> Option<Value> {
        let (code, object) = self.api.raw("GET", &self.path(plural, name), &[], ()).await;
        assert!(matches!(code, 200 | 404), "{code}: {object}");
        (code == 200).then_some(object)
    }

    /// The names of all objects of a kind.
    pub(super) async fn names(&self, plural: &str) -> Vec<String> {
        let (code, list) = self.api.raw("GET", &self.path(plural, ""), &[], ()).await;
        assert_eq!(code, 200, "{list}");
        let items = list["items"].as_array().unwrap();
        let names = items
            .iter()
            .map(|item| item["metadata"]["name"].as_str().unwrap().to_owned());
        // Every namespace of a cluster has this one.
        names.filter(|name| name != "kube-root-ca.crt").collect()
    }

    /// `kubectl apply --server-side --force-conflicts` of one object.
    pub(super) async fn apply(&self, plural: &str, name: &str, object: Value) -> Value {
        let (code, answer) = self.try_apply(plural, name, object).await;
        assert!(matches!(code, 200 | 201), "{code}: {answer}");
        answer
    }

    /// As [`World::apply`], with the answer's code.
    pub(super) async fn try_apply(&self, plural: &str, name: &str, mut object: Value) -> (u16, Value) {
        let (version, kind) = match plural {
            "agents" => ("kaos.tools/v1alpha1", "Agent"),
            "modelapis" => ("kaos.tools/v1alpha1", "ModelAPI"),
            "mcpservers" => ("kaos.tools/v1alpha1", "MCPServer"),
            "deployments" => ("apps/v1", "Deployment"),
            "services" => ("v1", "Service"),
            "configmaps" => ("v1", "ConfigMap"),
            "httproutes" => ("gateway.networking.k8s.io/v1", "HTTPRoute"),
            other => panic!("{other} is not known here"),
        };
        object["apiVersion"] = json!(version);
        object["kind"] = json!(kind);
        object["metadata"]["name"] = json!(name);
        let path = format!(
            "{}?fieldManager=user&force=true&fieldValidation=Strict",
            self.path(plural, name)
        );
        let headers = [("content-type", "application/apply-patch+yaml")];
        self.api.raw("PATCH", &path, &headers, object).await
    }

    /// A ModelAPI, MCPServer or Agent with this spec.
    pub(super) async fn spec(&self, plural: &str, name: &str, spec: Value) -> Value {
        self.apply(plural, name, json!({"spec": spec})).await
    }

    /// A JSON merge patch.
    pub(super) async fn merge(&self, plural: &str, name: &str, patch: Value) -> Value {
        let headers = [("content-type", "application/merge-patch+json")];
        let (code, answer) = self
            .api
            .raw("PATCH", &self.path(plural, name), &headers, patch)
            .await;
        assert_eq!(code, 200, "{answer}");
        answer
    }

    /// A JSON patch.
    pub(super) async fn json_patch(&self, plural: &str, name: &str, patch: Value) -> Value {
        let headers = [("content-type", "application/json-patch+json")];
        let (code, answer) = self
            .api
            .raw("PATCH", &self.path(plural, name), &headers, patch)
            .await;
        assert_eq!(code, 200, "{answer}");
        answer
    }

    /// Deletes the object.
    pub(super) async fn delete(&self, plural: &str, name: &str) {
        let (code, answer) = self.api.raw("DELETE", &self.path(plural, name), &[], ()).await;
        assert!(matches!(code, 200 | 202), "{code}: {answer}");
    }

    /// The object, as soon as it is there and `is` true of it.
    pub(super) async fn until(
        &self,
        what: &str,
        plural: &str,
        name: &str,
        is: impl Fn(&Value) -> bool,
    ) -> Value {
        let what = format!("{plural}/{name}: {what}");
        eventually(&what, PATIENCE, async || match self.get(plural, name).await {
            Some(object) if is(&object) => Ok(object),
            Some(object) => Err(format!("{}", brief(object))),
            None => Err("no such object".to_owned()),
        })
        .await
    }

    /// Returns when the object is gone.
    pub(super) async fn until_gone(&self, plural: &str, name: &str) {
        let what = format!("{plural}/{name} is gone");
        eventually(&what, PATIENCE, async || self.get(plural, name).await.is_none()).await;
    }

    /// The resource, as soon as it is ready for its present generation.
    pub(super) async fn ready(&self, plural: &str, name: &str) -> Value {
        self.until("ready", plural, name, is_ready).await
    }

    /// The resource, as soon as its status tells of its present generation in this phase.
    pub(super) async fn phase(&self, plural: &str, name: &str, phase: &str) -> Value {
        let object = self
            .until(phase, plural, name, |object| {
                is_current(object) && object["status"]["phase"] == phase
            })
            .await;
        let ready = object["status"]["ready"] == true;
        assert_eq!(ready, phase == "Ready", "ready and the phase agree: {object}");
        object
    }

    /// A ModelAPI called `models` that is a mock with the model `m`, ready.
    pub(super) async fn mock_models(&self) {
        self.spec("modelapis", "models", mock(&["m"])).await;
        self.ready("modelapis", "models").await;
    }
}

/// What a failed wait shows of an object.
fn brief(mut object: Value) -> Value {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    object
}

/// Whether the status tells of the present generation.
pub(super) fn is_current(object: &Value) -> bool {
    object["status"]["observedGeneration"] == object["metadata"]["generation"]
}

/// Whether the resource is ready, and says so in each way it has.
pub(super) fn is_ready(object: &Value) -> bool {
    let ready = is_current(object) && object["status"]["ready"] == true;
    if ready {
        assert_eq!(object["status"]["phase"], "Ready", "{object}");
        assert_eq!(condition(object, "Ready")["status"], "True", "{object}");
    }
    ready
}

/// The condition of this type, or null.
pub(super) fn condition(object: &Value, type_: &str) -> Value {
    let conditions = object["status"]["conditions"].as_array();
    let found = conditions
        .into_iter()
        .flatten()
        .find(|condition| condition["type"] == type_);
    found.cloned().unwrap_or_default()
}

/// The message of the status.
pub(super) fn message(object: &Value) -> &str {
    object["status"]["message"].as_str().unwrap_or_default()
}

/// The only container of a Deployment.
pub(super) fn container(deployment: &Value) -> &Value {
    let containers = &deployment["spec"]["template"]["spec"]["containers"];
    assert_eq!(containers.as_array().map(Vec::len), Some(1), "{deployment}");
    &containers[0]
}

/// The variables of the container, in order: `NAME=value`, or `NAME<-KIND/NAME/KEY` of where the value is.
pub(super) fn env(deployment: &Value) -> Vec<String> {
    let variables = container(deployment)["env"].as_array();
    variables
        .into_iter()
        .flatten()
        .map(|variable| {
            let name = variable["name"].as_str().unwrap();
            let Some((kind, source)) = variable["valueFrom"]
                .as_object()
                .and_then(|source| source.iter().next())
            else {
                return format!("{name}={}", variable["value"].as_str().unwrap_or_default());
            };
            let part = |part: &str| source[part].as_str().unwrap_or_default();
            format!("{name}<-{kind}/{}/{}", part("name"), part("key"))
        })
        .collect()
}

/// The spec of a ModelAPI that is a mock.
pub(super) fn mock(models: &[&str]) -> Value {
    json!({"mode": "Proxy", "proxyConfig": {"runtime": "Native", "provider": "mock", "models": models}})
}

/// The Gateway that routes are attached to.
pub(super) fn gateway() -> Gateway {
    Gateway {
        name: "gate".to_owned(),
        namespace: "system".to_owned(),
        timeouts: RouteTimeouts::default(),
    }
}

fn with_gateway() -> Config {
    Config {
        gateway: Some(gateway()),
        ..config()
    }
}

/// What the controllers are told.
fn config() -> Config {
    let mut config = Config::new("example.com/kaos:1", "example.com/tools:1");
    let plain = Runtime {
        image: "example.com/plain:1".to_owned(),
        command: vec!["/bin/plain".to_owned()],
        args: vec!["--port".to_owned(), "8000".to_owned()],
        ..Runtime::default()
    };
    config.runtimes.insert("plain".to_owned(), plain);
    config
}
