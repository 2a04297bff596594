//! Probes of every kind, against servers that this test is.

use std::{convert::Infallible, net::SocketAddr, sync::Arc};

use bytes::Bytes;
use futures::stream;
use http::{HeaderMap, Response};
use http_body_util::StreamBody;
use hyper::{
    body::{Frame, Incoming},
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
};
use serde_json::json;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::support::{Fixture, create, is_ready, script, status};

/// A server over TLS with a certificate that nobody knows.
async fn secure() -> SocketAddr {
    let made = rcgen::generate_simple_self_signed(["nobody.example".to_owned()]).unwrap();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((connection, _)) = listener.accept().await {
            let Ok(stream) = acceptor.accept(connection).await else {
                continue;
            };
            let answer = service_fn(async |_| Ok::<_, Infallible>(Response::new(String::new())));
            let served =
                hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), answer);
            tokio::spawn(served);
        }
    });
    address
}

/// A gRPC server whose service `there` is healthy and whose service `ill` is not.
async fn health() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((connection, _)) = listener.accept().await {
            let answer = service_fn(async |request: http::Request<Incoming>| {
                assert_eq!(request.uri().path(), "/grpc.health.v1.Health/Check");
                let body = http_body_util::BodyExt::collect(request.into_body())
                    .await
                    .unwrap()
                    .to_bytes();
                let status: u8 = if body.ends_with(b"there") { 1 } else { 2 };
                // A message of two bytes, field 1, and the trailers that end an answer.
                let message = Bytes::from(vec![0, 0, 0, 0, 2, 0x08, status]);
                let mut trailers = HeaderMap::new();
                trailers.insert("grpc-status", "0".parse().unwrap());
                let frames = [Frame::data(message), Frame::trailers(trailers)];
                let body = StreamBody::new(stream::iter(frames.map(Ok::<_, Infallible>)));
                let answer = Response::builder().header("content-type", "application/grpc");
                Ok::<_, Infallible>(answer.body(body).unwrap())
            });
            let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            tokio::spawn(builder.serve_connection(TokioIo::new(connection), answer));
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tcp_tls_and_grpc_are_asked_as_a_kubelet_asks() {
    let fixture = Fixture::start().await;
    let pods: Api<Pod> = fixture.api();
    let (secure, health) = (secure().await, health().await);
    let https = json!({ "periodSeconds": 1, "httpGet": {
        "scheme": "HTTPS", "host": "127.0.0.1", "port": secure.port(), "path": "/" } });
    create(
        &pods,
        script("tls", "exec sleep 300", json!({ "readinessProbe": https })),
    )
    .await;
    fixture.ready("tls").await;
    let plain = json!({ "periodSeconds": 1, "httpGet": {
        "scheme": "HTTPS", "host": "127.0.0.1", "port": health.port(), "path": "/" } });
    create(
        &pods,
        script("plain", "exec sleep 300", json!({ "readinessProbe": plain })),
    )
    .await;
    fixture
        .told("Unhealthy", &format!("Get \"https://{health}/\""))
        .await;

    let tcp = json!({ "periodSeconds": 1, "tcpSocket": { "host": "127.0.0.1", "port": health.port() } });
    create(
        &pods,
        script("tcp", "exec sleep 300", json!({ "readinessProbe": tcp })),
    )
    .await;
    fixture.ready("tcp").await;

    let grpc = |service: &str| json!({ "readinessProbe": { "periodSeconds": 1, "grpc": { "port": health.port(), "service": service } } });
    create(&pods, script("there", "exec sleep 300", grpc("there"))).await;
    fixture.ready("there").await;
    create(&pods, script("ill", "exec sleep 300", grpc("ill"))).await;
    fixture
        .told("Unhealthy", "service unhealthy (responded with \"NOT_SERVING\")")
        .await;
    assert!(!is_ready(&pods.get("ill").await.unwrap()));
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn programs_look_at_the_container_s_files_and_restart_it() {
    let fixture = Fixture::start().await;
    let pods: Api<Pod> = fixture.api();
    let mut pod = script(
        "looked",
        "echo alive > /state/alive; exec sleep 300",
        json!({
            "volumeMounts": [{ "name": "state", "mountPath": "/state" }],
            "readinessProbe": { "periodSeconds": 1, "exec": { "command": ["cat", "/state/alive"] } },
            "livenessProbe": { "periodSeconds": 1, "failureThreshold": 1,
                               "exec": { "command": ["sh", "-c", "! cat /state/ill"] } },
        }),
    );
    pod["spec"]["volumes"] = json!([{ "name": "state", "emptyDir": {} }]);
    create(&pods, pod).await;
    let found = fixture.ready("looked").await;
    let folder = fixture
        .folder()
        .join("pods")
        .join(found.metadata.uid.unwrap())
        .join("volumes/state");
    std::fs::write(folder.join("ill"), "taken ill").unwrap();
    fixture
        .told("Unhealthy", "Liveness probe failed: taken ill")
        .await;
    fixture
        .eventually("a restart", || async {
            (status(&pods.get("looked").await.ok()?)?.restart_count > 0).then_some(())
        })
        .await;
    fixture.stop().await;
}
