//! What leads to the pods themselves: logs and proxies.

use std::time::Duration;

use tokio::{
    io::{AsyncBufReadExt, BufReader},
    time::timeout,
};

use crate::{fixtures::*, harness::start};

#[tokio::test]
async fn logs_are_printed_and_followed() {
    let Some(kubectl) = start().await else { return };
    kubectl.pipe(&["apply", "-f", "-"], POD).await;
    assert_eq!(kubectl.run(&["logs", "worker"]).await, "worker/main started\n");
    let mut follow = kubectl.spawn(&["logs", "-f", "worker"]);
    let mut lines = BufReader::new(follow.stdout.take().unwrap()).lines();
    let mut next = async || {
        timeout(Duration::from_secs(30), lines.next_line())
            .await
            .expect("a line comes")
            .unwrap()
    };
    assert_eq!(next().await.as_deref(), Some("worker/main started"));
    for line in ["one", "two"] {
        kubectl.log.send(format!("{line}\n").into()).await.unwrap();
        assert_eq!(next().await.as_deref(), Some(line));
    }
    follow.kill().await.unwrap();
}

#[tokio::test]
async fn services_and_pods_are_reached_through_the_api() {
    let Some(kubectl) = start().await else { return };
    kubectl.pipe(&["apply", "-f", "-"], POD).await;
    kubectl.pipe(&["apply", "-f", "-"], SERVICE).await;
    let raw = async |path: &str| {
        kubectl
            .run(&["get", "--raw", &format!("/api/v1/namespaces/default/{path}")])
            .await
    };
    assert_eq!(
        raw("services/web:http/proxy/v1/models?x=1").await,
        "GET /v1/models?x=1 HTTP/1.1"
    );
    assert_eq!(raw("services/http:web:80/proxy/").await, "GET / HTTP/1.1");
    assert_eq!(raw("pods/worker:8000/proxy/health").await, "GET /health HTTP/1.1");
    let path = "/api/v1/namespaces/default/services/other/proxy/";
    let (_, message) = kubectl.fails(&["get", "--raw", path], None).await;
    assert_eq!(
        message,
        "Error from server (ServiceUnavailable): no endpoints available for service \"other\"\n"
    );
}
