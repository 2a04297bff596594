//! A route of an instance: from its manifest to an answer of a pod.

// A test that cannot go on should panic, in its helpers as well.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::{fs, net::SocketAddr, path::Path, time::Duration};

use kaos_external::gateway_api::{Gateway, HTTPRoute};
use kaos_local::{Begin, CONTROL_NAMESPACE, GATEWAY, GatewayOptions, Instance, Options};
use kaos_seams::Seams;
use kube::{Api, api::DeleteParams};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{Instant, sleep},
};

const PATIENCE: Duration = Duration::from_secs(60);

/// The path of the route is made of names, as those of KAOS's own routes are.
const MANIFESTS: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: hello}
spec:
  selector: {matchLabels: {app: hello}}
  template:
    metadata: {labels: {app: hello}}
    spec:
      containers:
        - name: hello
          image: kaos
          ports: [{containerPort: 8000}]
          readinessProbe: {httpGet: {path: /health, port: 8000}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: hello}
spec:
  selector: {app: hello}
  ports: [{port: 80, targetPort: 8000}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: hello}
spec:
  parentRefs: [{name: kaos-gateway, namespace: kaos-system}]
  rules:
    - matches: [{path: {type: PathPrefix, value: /default/thing/hello}}]
      filters:
        - type: URLRewrite
          urlRewrite: {path: {type: ReplacePrefixMatch, replacePrefixMatch: /}}
      backendRefs: [{name: hello, port: 80}]
"#;

async fn start(data_dir: &Path, port: Option<u16>) -> Instance {
    let tests = std::env::current_exe().unwrap();
    let program = tests
        .parent()
        .and_then(Path::parent)
        .unwrap()
        .join("examples/program");
    assert!(
        program.exists(),
        "{} is missing: cargo test builds it",
        program.display()
    );
    Instance::start(Options {
        data_dir: data_dir.to_owned(),
        begin: Begin::Resume,
        api_port: None,
        gateway: GatewayOptions {
            port,
            allow_origins: Vec::new(),
        },
        program,
        launch: vec!["launch".to_owned()],
        log_level: "INFO".to_owned(),
        seams: Seams::system(),
    })
    .await
    .unwrap()
}

async fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

/// Asks until the answer has this status, and returns its body.
async fn until(address: SocketAddr, path: &str, status: &str) -> String {
    let end = Instant::now() + PATIENCE;
    loop {
        let answer = get(address, path).await;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        if head.starts_with(&format!("HTTP/1.1 {status}")) {
            return body.to_owned();
        }
        assert!(Instant::now() < end, "no {status} within {PATIENCE:?}: {answer}");
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_path_leads_through_the_gateway_to_a_pod_and_stays_the_same_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let data_dir = folder.path().join("data");
    let file = folder.path().join("hello.yaml");
    fs::write(&file, MANIFESTS).unwrap();

    let instance = start(&data_dir, Some(0)).await;
    let manifests = kaos_local::load(&[file]).unwrap();
    kaos_local::apply(instance.client(), &manifests, "default")
        .await
        .unwrap();
    assert_eq!(
        until(instance.gateway(), "/default/thing/hello/a?b=c", "200").await,
        "/a?b=c"
    );
    let missed = until(instance.gateway(), "/default/thing", "404").await;
    assert!(missed.contains("/default/thing/hello"), "{missed}");
    let gateways: Api<Gateway> = Api::namespaced(instance.client().clone(), CONTROL_NAMESPACE);
    let port = gateways.get(GATEWAY).await.unwrap().spec.listeners[0].port;
    assert_eq!(port, i32::from(instance.gateway().port()));
    let kept = kaos_local::running(&data_dir).unwrap().gateway_port;
    assert_eq!(kept, Some(instance.gateway().port()));
    instance.stop().await.unwrap();

    let instance = start(&data_dir, None).await;
    assert_eq!(kaos_local::running(&data_dir).unwrap().gateway_port, kept);
    assert_eq!(
        until(instance.gateway(), "/default/thing/hello/again", "200").await,
        "/again"
    );
    let routes: Api<HTTPRoute> = Api::namespaced(instance.client().clone(), "default");
    routes.delete("hello", &DeleteParams::default()).await.unwrap();
    until(instance.gateway(), "/default/thing/hello/again", "404").await;
    instance.stop().await.unwrap();
}
