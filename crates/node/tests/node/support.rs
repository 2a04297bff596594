//! A node over an API server of its own, and ways to ask what it runs.

use std::{
    net::SocketAddr,
    path::Path,
    time::{Duration, Instant},
};

use futures::TryStreamExt as _;
use k8s_openapi::{
    NamespaceResourceScope,
    api::core::v1::{ContainerStatus, Event, Namespace, Pod},
};
use kaos_apiserver::{ApiServer, Options, Storage};
use kaos_node::{ImageMapping, Launcher, LogOptions, Node, NodeOptions, PortNotice, Program};
use kaos_seams::{Random as _, Seams, SystemRandom};
use kube::{
    Api, Client, Resource,
    api::{ListParams, PostParams},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Fixture {
    pub(crate) node: Node,
    pub(crate) namespace: String,
    client: Client,
    dir: tempfile::TempDir,
    stop: CancellationToken,
    running: JoinHandle<()>,
}

/// A program that `cargo test` has built beside this one.
fn example(name: &str) -> std::path::PathBuf {
    let tests = std::env::current_exe().unwrap();
    let program = tests
        .parent()
        .and_then(Path::parent)
        .unwrap()
        .join("examples")
        .join(name);
    assert!(
        program.exists(),
        "{} is missing: cargo test builds it",
        program.display()
    );
    program
}

async fn client() -> Client {
    let options = Options {
        storage: Storage::Memory,
        seams: Seams::system(),
        faults: None,
    };
    Client::new(ApiServer::open(options).await.unwrap(), "default")
}

impl Fixture {
    pub(crate) async fn start() -> Self {
        let client = client().await;
        let namespace = format!("node-{}", SystemRandom.suffix(8));
        let object: Namespace = serde_json::from_value(json!({ "metadata": { "name": namespace } })).unwrap();
        Api::all(client.clone())
            .create(&PostParams::default(), &object)
            .await
            .unwrap();
        Self::open(client, namespace, tempfile::tempdir().unwrap()).await
    }

    async fn open(client: Client, namespace: String, dir: tempfile::TempDir) -> Self {
        let image = |repository: &str, program| ImageMapping {
            repository: repository.to_owned(),
            program: Program::File(program),
            args: vec![],
            env: vec![],
            port: PortNotice::Listen,
        };
        let node = Node::start(NodeOptions {
            client: client.clone(),
            data_dir: dir.path().to_owned(),
            images: vec![
                image("example.org/shell", "/bin/sh".into()),
                image("example.org/serve", example("serve")),
                ImageMapping {
                    port: PortNotice::Env {
                        name: "AT".to_owned(),
                        value: "host=127.0.0.1:{port}".to_owned(),
                    },
                    ..image("example.org/by-env", example("serve"))
                },
                ImageMapping {
                    port: PortNotice::Args(vec!["--at".to_owned(), "{port}".to_owned()]),
                    ..image("example.org/by-args", example("serve"))
                },
                ImageMapping {
                    port: PortNotice::Fixed,
                    ..image("example.org/fixed", example("serve"))
                },
                ImageMapping {
                    program: Program::OnPath {
                        name: "no-such-program-of-anybody".to_owned(),
                        install: "install it from https://example.org".to_owned(),
                    },
                    ..image("example.org/missing", "/".into())
                },
            ],
            launcher: Launcher {
                program: example("launch"),
                args: vec![],
            },
            seams: Seams::system(),
            node_name: "local".to_owned(),
        })
        .await
        .unwrap();
        let stop = CancellationToken::new();
        let (runner, stopping) = (node.clone(), stop.clone());
        let running = tokio::spawn(async move { runner.run(stopping).await.unwrap() });
        Self {
            node,
            namespace,
            client,
            dir,
            stop,
            running,
        }
    }

    /// Ends the node as it is ended in use; no process may be left.
    async fn end(self) -> (Client, String, tempfile::TempDir) {
        self.stop.cancel();
        self.running.await.unwrap();
        assert_eq!(std::fs::read_dir(self.dir.path().join("run")).unwrap().count(), 0);
        (self.client, self.namespace, self.dir)
    }

    pub(crate) async fn stop(self) {
        self.end().await;
    }

    /// The same folder and API under a new node.
    pub(crate) async fn restart(self) -> Self {
        self.restart_after(|_| ()).await
    }

    /// As [`Fixture::restart`], after something was done to the folder.
    pub(crate) async fn restart_after(self, between: impl FnOnce(&Path)) -> Self {
        let (client, namespace, dir) = self.end().await;
        between(dir.path());
        Self::open(client, namespace, dir).await
    }

    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// A folder of the test's own.
    pub(crate) fn folder(&self) -> &Path {
        self.dir.path()
    }

    /// Waits for an event with this reason whose message has this text.
    pub(crate) async fn told(&self, reason: &str, text: &str) {
        let events: Api<Event> = self.api();
        let what = format!("an event {reason} with {text:?}");
        self.eventually(&what, || async {
            let events = events.list(&ListParams::default()).await.ok()?.items;
            let found = |event: &Event| {
                event.reason.as_deref() == Some(reason)
                    && event
                        .message
                        .as_ref()
                        .is_some_and(|message| message.contains(text))
            };
            events.iter().any(found).then_some(())
        })
        .await;
    }

    /// Waits until a pod is ready.
    pub(crate) async fn ready(&self, pod: &str) -> Pod {
        let pods: Api<Pod> = self.api();
        self.eventually("a ready pod", || async {
            pods.get(pod).await.ok().filter(is_ready)
        })
        .await
    }

    /// Waits until the object of a pod is gone.
    pub(crate) async fn gone(&self, pod: &str) {
        let pods: Api<Pod> = self.api();
        self.eventually("the end of a pod", || async {
            pods.get_opt(pod).await.ok()?.is_none().then_some(())
        })
        .await;
    }

    /// How many processes are on record as running.
    pub(crate) fn recorded_processes(&self) -> usize {
        std::fs::read_dir(self.dir.path().join("run")).unwrap().count()
    }

    /// Asks until there is an answer.
    pub(crate) async fn eventually<T, F: Future<Output = Option<T>>>(
        &self,
        what: &str,
        ask: impl Fn() -> F,
    ) -> T {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(answer) = ask().await {
                return answer;
            }
            assert!(Instant::now() < end, "{what}: not within {PATIENCE:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until no pod is left.
    pub(crate) async fn all_gone(&self, pods: &Api<Pod>) {
        self.eventually("the end of all pods", || async {
            let left = pods.list(&ListParams::default()).await.ok()?.items;
            left.is_empty().then_some(())
        })
        .await;
    }
}

/// Creates an object.
pub(crate) async fn create<K>(api: &Api<K>, object: Value)
where
    K: kube::Resource + Clone + serde::de::DeserializeOwned + serde::Serialize + std::fmt::Debug,
{
    let object: K = serde_json::from_value(object).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap();
}

/// A pod that runs a shell script.
pub(crate) fn script(name: &str, script: &str, more: Value) -> Value {
    let mut container = json!({ "name": "main", "image": "example.org/shell:1", "args": ["-c", script] });
    for (key, value) in more.as_object().unwrap() {
        container[key] = value.clone();
    }
    json!({ "metadata": { "name": name },
            "spec": { "containers": [container], "terminationGracePeriodSeconds": 1 } })
}

/// The status of a pod's first main container.
pub(crate) fn status(pod: &Pod) -> Option<&ContainerStatus> {
    pod.status.as_ref()?.container_statuses.as_ref()?.first()
}

/// Why that container waits: reason and message.
pub(crate) fn waiting(pod: &Pod) -> Option<(String, String)> {
    let waiting = status(pod)?.state.as_ref()?.waiting.as_ref()?;
    Some((
        waiting.reason.clone()?,
        waiting.message.clone().unwrap_or_default(),
    ))
}

pub(crate) fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.is_some_and(|all| all.iter().any(|one| one.type_ == "Ready" && one.status == "True"))
}

pub(crate) async fn log(fixture: &Fixture, pod: &str, options: LogOptions) -> String {
    let log = fixture.node.logs(&fixture.namespace, pod, options).await.unwrap();
    let pieces: Vec<_> = log.try_collect().await.unwrap();
    String::from_utf8(pieces.concat()).unwrap()
}

/// The body of an answer of 200.
pub(crate) async fn get(address: SocketAddr, path: &str) -> Option<String> {
    let mut connection = TcpStream::connect(address).await.ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: test\r\n\r\n");
    connection.write_all(request.as_bytes()).await.ok()?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await.ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    head.starts_with("HTTP/1.1 200").then(|| body.to_owned())
}
