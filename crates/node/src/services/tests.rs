//! The table with real sockets.

use std::{io::ErrorKind, net::SocketAddr, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::{Pod, Service};
use kaos_seams::Dialer;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

use super::{Endpoints, ServiceTable};
use crate::ports::PortMap;

fn service(target: serde_json::Value) -> Arc<Service> {
    let service = json!({ "metadata": { "name": "web", "namespace": "ns", "uid": "s" }, "spec": {
        "selector": { "app": "web" }, "ports": [{ "name": "http", "port": 80, "targetPort": target }] } });
    Arc::new(serde_json::from_value(service).unwrap())
}

fn pod(uid: &str, ready: bool) -> Arc<Pod> {
    let pod = json!({
        "metadata": { "name": uid, "namespace": "ns", "uid": uid, "labels": { "app": "web" } },
        "spec": { "containers": [{ "name": "c", "ports": [{ "name": "main", "containerPort": 8000 }] }] },
        "status": { "podIP": "127.0.0.1", "phase": "Running",
            "conditions": [{ "type": "Ready", "status": if ready { "True" } else { "False" } }] } });
    Arc::new(serde_json::from_value(pod).unwrap())
}

/// A server that answers every connection with its name, on the port that stands for the pod's.
async fn serve(ports: &PortMap, uid: &'static str) {
    let given = ports.assign(uid, "c", &[8000]).unwrap();
    let port = given[&("c".to_owned(), 8000)];
    let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
    tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            connection.write_all(uid.as_bytes()).await.unwrap();
        }
    });
}

async fn ask(address: SocketAddr) -> Result<String, ErrorKind> {
    let mut connection = TcpStream::connect(address).await.map_err(|error| error.kind())?;
    let mut answer = String::new();
    connection
        .read_to_string(&mut answer)
        .await
        .map_err(|error| error.kind())?;
    Ok(answer)
}

/// Forwarders take notice of a change in a task of their own.
async fn until(address: SocketAddr, wanted: impl Fn(&Result<String, ErrorKind>) -> bool) {
    let end = tokio::time::Instant::now() + Duration::from_secs(10);
    loop {
        let found = ask(address).await;
        if wanted(&found) {
            return;
        }
        assert!(tokio::time::Instant::now() < end, "{found:?}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn connections_go_to_ready_pods_in_turn_and_are_refused_without_one() {
    let dir = tempfile::tempdir().unwrap();
    let (table, moved) = ServiceTable::open(dir.path().join("services.json")).unwrap();
    assert!(moved.is_empty());
    let address = ServiceTable::address(&table, "ns", "web", 80).unwrap();
    assert!(address.ip().is_loopback());
    assert_eq!(
        ask(address).await,
        Err(ErrorKind::ConnectionRefused),
        "no such Service yet"
    );

    let ports = PortMap::default();
    serve(&ports, "a").await;
    serve(&ports, "b").await;
    let set = |pods: &[Arc<Pod>]| {
        let (endpoints, slices) = Endpoints::compute(&[service(json!("main"))], pods, &ports);
        table.set_endpoints(endpoints);
        slices
    };
    set(&[pod("a", true), pod("b", false)]);
    until(address, Result::is_ok).await;
    for _ in 0..4 {
        assert_eq!(ask(address).await.unwrap(), "a");
    }
    let slices = set(&[pod("a", true), pod("b", true)]);
    assert_eq!(slices.len(), 2, "each pod has ports of its own");
    until(address, |found| found.as_deref() == Ok("b")).await;
    let mut answers = vec![ask(address).await.unwrap(), ask(address).await.unwrap()];
    answers.sort();
    assert_eq!(answers, ["a", "b"]);

    let slices = set(&[pod("a", false)]);
    until(address, |found| *found == Err(ErrorKind::ConnectionRefused)).await;
    let ready = slices[0].endpoints.as_ref().unwrap()[0]
        .conditions
        .as_ref()
        .unwrap()
        .ready;
    assert_eq!(ready, Some(false));
    table.close().await;
}

#[tokio::test]
async fn a_pod_is_drained_when_nothing_leads_to_it_and_everybody_was_answered() {
    let dir = tempfile::tempdir().unwrap();
    let (table, _) = ServiceTable::open(dir.path().join("services.json")).unwrap();
    let address = ServiceTable::address(&table, "ns", "web", 80).unwrap();
    let ports = PortMap::default();
    let given = ports.assign("a", "c", &[8000]).unwrap();
    let target = SocketAddr::from(([127, 0, 0, 1], given[&("c".to_owned(), 8000)]));
    let pod_listens = TcpListener::bind(target).await.unwrap();
    let lead_to = |pods: &[Arc<Pod>]| {
        table.set_endpoints(Endpoints::compute(&[service(json!("main"))], pods, &ports).0);
    };
    lead_to(&[pod("a", true)]);
    // The forwarder listens a moment later.
    let end = tokio::time::Instant::now() + Duration::from_secs(10);
    let mut client = loop {
        match TcpStream::connect(address).await {
            Ok(client) => break client,
            Err(error) => assert!(tokio::time::Instant::now() < end, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    };
    let (mut served, _) = pod_listens.accept().await.unwrap();

    let targets = [target];
    let drained = table.drained(&targets);
    tokio::pin!(drained);
    assert!(
        futures::poll!(drained.as_mut()).is_pending(),
        "a Service leads to it"
    );
    lead_to(&[pod("a", false)]);
    assert!(
        futures::poll!(drained.as_mut()).is_pending(),
        "a connection waits for its answer"
    );
    served.write_all(b"x").await.unwrap();
    client.read_exact(&mut [0]).await.unwrap();
    drained.await;
    // What was answered goes on, for as long as it takes.
    served.write_all(b"y").await.unwrap();
    client.read_exact(&mut [0]).await.unwrap();
    table.close().await;
}

#[tokio::test]
async fn addresses_are_kept_and_a_taken_one_is_replaced_aloud() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("services.json");
    let (table, _) = ServiceTable::open(path.clone()).unwrap();
    let first = ServiceTable::address(&table, "ns", "web", 80).unwrap();
    let second = ServiceTable::address(&table, "ns", "web", 81).unwrap();
    assert_ne!(first, second);
    assert!(
        TcpListener::bind(first).await.is_err(),
        "nobody else gets it meanwhile"
    );
    table.close().await;
    drop(table);

    let (table, moved) = ServiceTable::open(path.clone()).unwrap();
    assert!(moved.is_empty());
    assert_eq!(ServiceTable::address(&table, "ns", "web", 80), Some(first));
    table.close().await;
    drop(table);

    let _foreign = TcpListener::bind(first).await.unwrap();
    let (table, moved) = ServiceTable::open(path).unwrap();
    let now = ServiceTable::address(&table, "ns", "web", 80).unwrap();
    assert_eq!(
        (moved.len(), moved[0].from, moved[0].to),
        (1, first.port(), now.port())
    );
    assert_ne!(now, first);
    assert_eq!(ServiceTable::address(&table, "ns", "web", 81), Some(second));
    table.close().await;
}

#[tokio::test]
async fn names_are_dialed_as_on_a_cluster() {
    let dir = tempfile::tempdir().unwrap();
    let (table, _) = ServiceTable::open(dir.path().join("services.json")).unwrap();
    let dialer: &dyn Dialer = &table;
    let expected = dialer.address("web.ns.svc", 80);
    assert!(expected.is_some());
    assert_eq!(dialer.address("web.ns.svc.cluster.local", 80), expected);
    assert_eq!(
        dialer.address("web.ns", 80),
        None,
        "any host may look so: only Services that exist count"
    );
    let (endpoints, _) = Endpoints::compute(&[service(json!(8000))], &[], &PortMap::default());
    table.set_endpoints(endpoints);
    assert_eq!(dialer.address("web.ns", 80), expected);
    assert_eq!(dialer.address("example.com", 80), None);
    assert_eq!(table.named_address("ns", "web", Some("http")), expected);
    assert_eq!(table.named_address("ns", "web", None), expected);
    assert_eq!(table.named_address("ns", "web", Some("other")), None);
    assert_eq!(
        table.rewrite("http://web.ns.svc/x"),
        format!("http://{}/x", expected.unwrap())
    );
    table.close().await;
}
