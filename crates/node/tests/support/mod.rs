//! A node over an API server of its own, and ways to ask what it runs.

use std::{
    net::SocketAddr,
    path::Path,
    time::{Duration, Instant},
};

use k8s_openapi::{NamespaceResourceScope, api::core::v1::Namespace};
use kaos_apiserver::{ApiServer, Options, Storage};
use kaos_node::{ImageMapping, Launcher, Node, NodeOptions};
use kaos_seams::{Random as _, Seams, SystemRandom};
use kube::{Api, Client, Resource, api::PostParams};
use serde_json::json;
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
            program,
            args: vec![],
            env: vec![],
        };
        let node = Node::start(NodeOptions {
            client: client.clone(),
            data_dir: dir.path().to_owned(),
            images: vec![
                image("example.org/shell", "/bin/sh".into()),
                image("example.org/serve", example("serve")),
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
        let (client, namespace, dir) = self.end().await;
        Self::open(client, namespace, dir).await
    }

    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
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
