//! How a container's program learns its port, and where the others of its pod are.

use std::net::{Ipv4Addr, TcpListener};

use k8s_openapi::api::core::v1::{ContainerStatus, Pod, Service};
use kube::Api;
use serde_json::{Value, json};

use crate::support::{Fixture, create, get, waiting};

fn pod(name: &str, image: &str, port: u16) -> Value {
    json!({ "metadata": { "name": name }, "spec": { "terminationGracePeriodSeconds": 1, "containers": [{
        "name": "main", "image": image, "args": ["own"], "ports": [{ "containerPort": port }],
        "readinessProbe": { "httpGet": { "path": "/health", "port": port }, "periodSeconds": 1 },
    }] } })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_program_is_told_its_port_in_its_own_way() {
    let fixture = Fixture::start().await;
    let pods: Api<Pod> = fixture.api();
    for image in ["by-env", "by-args"] {
        create(&pods, pod(image, &format!("example.org/{image}:1"), 8000)).await;
        fixture.ready(image).await;
        let address = fixture
            .node
            .pod_address(&fixture.namespace, image, None)
            .await
            .unwrap();
        if image == "by-env" {
            assert_eq!(get(address, "/env/AT").await.unwrap(), format!("host={address}"));
        } else {
            let text = crate::support::log(&fixture, image, Default::default()).await;
            let expected = format!("arguments {:?}", ["own", "--at", &address.port().to_string()]);
            assert!(text.contains(&expected), "{text}");
        }
    }
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_that_cannot_be_told_waits_until_its_port_is_free() {
    let fixture = Fixture::start().await;
    let pods: Api<Pod> = fixture.api();
    let other = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = other.local_addr().unwrap().port();
    create(&pods, pod("fixed", "example.org/fixed:1", port)).await;
    let message = fixture
        .eventually("a reason to wait", || async {
            let (reason, message) = waiting(&pods.get("fixed").await.ok()?)?;
            (reason == "CreateContainerError").then_some(message)
        })
        .await;
    assert!(
        message.starts_with(&format!("port {port} of this machine is used by another program")),
        "{message}"
    );
    drop(other);
    fixture.ready("fixed").await;
    let address = fixture
        .node
        .pod_address(&fixture.namespace, "fixed", None)
        .await
        .unwrap();
    assert_eq!(address.port(), port);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_that_is_not_installed_says_what_to_do() {
    let fixture = Fixture::start().await;
    let pods: Api<Pod> = fixture.api();
    create(&pods, pod("missing", "example.org/missing:1", 8000)).await;
    let message = fixture
        .eventually("a reason to wait", || async {
            let (reason, message) = waiting(&pods.get("missing").await.ok()?)?;
            (reason == "ErrImageNeverPull").then_some(message)
        })
        .await;
    assert!(
        message.ends_with("install it from https://example.org"),
        "{message}"
    );
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn containers_of_a_pod_have_ports_of_their_own_and_reach_each_other() {
    let fixture = Fixture::start().await;
    let pods: Api<Pod> = fixture.api();
    let probe = |port: &str| json!({ "httpGet": { "path": "/health", "port": port }, "periodSeconds": 1 });
    let side = json!({ "name": "side", "image": "example.org/serve:1", "restartPolicy": "Always",
        "ports": [{ "name": "pull", "containerPort": 11_435 }], "readinessProbe": probe("pull"),
        "args": ["--peer=http://localhost:8000/"],
        "env": [{ "name": "PEER", "value": "http://127.0.0.1:8000" }, { "name": "SELF", "value": "localhost:11435" }] });
    let main = json!({ "name": "main", "image": "example.org/serve:1", "readinessProbe": probe("http"),
        "ports": [{ "name": "http", "containerPort": 8000 }],
        "env": [{ "name": "PEER", "value": "localhost:11435" }] });
    create(
        &pods,
        json!({ "metadata": { "name": "both", "labels": { "app": "both" } }, "spec": {
            "terminationGracePeriodSeconds": 1, "initContainers": [side], "containers": [main] } }),
    )
    .await;
    create::<Service>(
        &fixture.api(),
        json!({ "metadata": { "name": "pull" },
                "spec": { "selector": { "app": "both" }, "ports": [{ "port": 80, "targetPort": "pull" }] } }),
    )
    .await;
    let ready = fixture.ready("both").await;
    let address = async |port: &str| {
        let found = fixture
            .node
            .pod_address(&fixture.namespace, "both", Some(port))
            .await;
        found.unwrap()
    };
    let (main, side) = (address("http").await, address("pull").await);
    assert_ne!(main, side);
    assert_eq!(get(main, "/env/KAOS_LISTEN").await.unwrap(), main.to_string());
    assert_eq!(get(side, "/env/KAOS_LISTEN").await.unwrap(), side.to_string());
    assert_eq!(get(main, "/env/PEER").await.unwrap(), side.to_string());
    assert_eq!(get(side, "/env/PEER").await.unwrap(), format!("http://{main}"));
    assert_eq!(
        get(side, "/env/SELF").await.unwrap(),
        "localhost:11435",
        "its own is left alone"
    );
    let through = fixture
        .node
        .services()
        .address(&fixture.namespace, "pull", 80)
        .unwrap();
    let listens = fixture
        .eventually("the Service of the sidecar", || get(through, "/env/KAOS_LISTEN"))
        .await;
    assert_eq!(listens, side.to_string());

    let found = ready.status.unwrap().init_container_statuses.unwrap();
    let [
        ContainerStatus {
            name, ready, started, ..
        },
    ] = found.as_slice()
    else {
        unreachable!("one init container was asked for")
    };
    assert_eq!((name.as_str(), *ready, *started), ("side", true, Some(true)));
    fixture.stop().await;
}
