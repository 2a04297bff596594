//! Certificates and proxy servers: an upstream of its own authority, behind a server that connects to it.

use std::{
    fs,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use kaos_proxy::Config;
use kaos_seams::FixedDialer;
use kaos_telemetry::Telemetry;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls::pki_types::PrivateKeyDer;
use serde_json::json;
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, copy_bidirectional},
    net::{TcpListener, TcpStream},
};
use tokio_rustls::TlsAcceptor;

use crate::setup::{LONG, Proxy, read};

const ANSWER: &str = r#"{"choices":[{"index":0,"message":{"role":"assistant","content":"by TLS"}}]}"#;

/// An HTTPS server of `names` whose certificate comes from an authority of its own, and the file of that.
async fn upstream(names: &[&str], folder: &TempDir) -> (SocketAddr, String) {
    kaos_telemetry::install_crypto_provider();
    let authority_key = KeyPair::generate().unwrap();
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    let authority_certificate = authority.self_signed(&authority_key).unwrap();
    let key = KeyPair::generate().unwrap();
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let certificate = CertificateParams::new(names)
        .unwrap()
        .signed_by(&key, &Issuer::new(authority, authority_key))
        .unwrap();
    let file = folder.path().join("ca.pem");
    fs::write(&file, authority_certificate.pem()).unwrap();

    let private = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let config = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], private)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((connection, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut connection) = acceptor.accept(connection).await else {
                    return;
                };
                let mut request = vec![0; 64 * 1024];
                let _ = connection.read(&mut request).await;
                let head = format!(
                    "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
                    ANSWER.len()
                );
                let _ = connection.write_all(head.as_bytes()).await;
                let _ = connection.write_all(ANSWER.as_bytes()).await;
                let _ = connection.shutdown().await;
            });
        }
    });
    (address, file.to_str().unwrap().to_owned())
}

/// A server for CONNECT, which leads everywhere to `target` and keeps the first lines of what it is asked.
async fn tunnel(target: SocketAddr) -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let keep = asked.clone();
    tokio::spawn(async move {
        while let Ok((connection, _)) = listener.accept().await {
            let keep = keep.clone();
            tokio::spawn(async move {
                let mut connection = BufReader::new(connection);
                let mut line = String::new();
                connection.read_line(&mut line).await.unwrap();
                keep.lock().unwrap().push(line.trim().to_owned());
                let mut header = String::from("x");
                while !header.trim().is_empty() {
                    header.clear();
                    connection.read_line(&mut header).await.unwrap();
                }
                connection.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
                let mut upstream = TcpStream::connect(target).await.unwrap();
                let _ = copy_bidirectional(&mut connection, &mut upstream).await;
            });
        }
    });
    (address, asked)
}

async fn ask(base: &str, environment: &[(&str, &str)], more: &str) -> (u16, serde_json::Value) {
    let config = format!(
        "model_list:\n- model_name: m\n  litellm_params: {{model: openai/x, api_base: '{base}', api_key: k}}\n\
         litellm_settings: {{num_retries: 0{more}}}\n"
    );
    let proxy = Proxy::start(&config, environment, FixedDialer::default(), Telemetry::off()).await;
    let question = json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]});
    let answer = read(proxy.ask(question).await).await;
    proxy.end().await;
    answer
}

#[tokio::test]
async fn an_upstream_of_its_own_authority_is_reached_through_a_proxy_server() {
    let folder = TempDir::new().unwrap();
    let (address, ca) = upstream(&["models.test"], &folder).await;
    let (server, asked) = tunnel(address).await;
    let server = format!("http://{server}");
    // The name is known to nobody but the proxy server.
    let environment = [("SSL_CERT_FILE", ca.as_str()), ("HTTPS_PROXY", server.as_str())];
    let (status, body) = ask("https://models.test/v1", &environment, "").await;
    assert_eq!(
        (status, &body["choices"][0]["message"]["content"]),
        (200, &json!("by TLS")),
        "{body}"
    );
    assert_eq!(*asked.lock().unwrap(), ["CONNECT models.test:443 HTTP/1.1"]);

    // By the other ways to say the same.
    let environment = [("https_proxy", server.as_str())];
    let (status, body) = ask(
        "https://models.test/v1",
        &environment,
        &format!(", ssl_verify: '{ca}'"),
    )
    .await;
    assert_eq!(status, 200, "{body}");

    // Another name than that of the certificate.
    let environment = [("SSL_CERT_FILE", ca.as_str()), ("ALL_PROXY", server.as_str())];
    let (status, body) = ask("https://others.test/v1", &environment, "").await;
    let message = body["error"]["message"].as_str().unwrap();
    assert!(
        status == 502 && message.contains("the upstream others.test cannot be reached"),
        "{body}"
    );
}

#[tokio::test]
async fn no_proxy_is_honoured_and_strangers_are_not_trusted() {
    let folder = TempDir::new().unwrap();
    let (address, ca) = upstream(&["127.0.0.1"], &folder).await;
    let (server, asked) = tunnel(address).await;
    let (server, base) = (format!("http://{server}"), format!("https://{address}/v1"));
    let direct = [
        ("SSL_CERT_FILE", ca.as_str()),
        ("HTTPS_PROXY", server.as_str()),
        ("NO_PROXY", "example.com,127.0.0.1"),
    ];
    let (status, body) = ask(&base, &direct, "").await;
    assert_eq!((status, asked.lock().unwrap().len()), (200, 0), "{body}");

    // The authority is none of the system's.
    let (status, body) = ask(&base, &[], "").await;
    let message = body["error"]["message"].as_str().unwrap();
    assert!(status == 502 && message.contains("cannot be reached"), "{body}");
}

async fn until(what: &str, held: impl AsyncFn() -> bool) {
    let waiting = async {
        while !held().await {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(LONG, waiting).await.expect(what);
}

#[tokio::test]
async fn certificates_that_change_are_trusted_without_a_restart() {
    let (folder, other) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let (address, ca) = upstream(&["127.0.0.1"], &folder).await;
    let (_, others) = upstream(&["127.0.0.1"], &other).await;
    let right = fs::read(&ca).unwrap();
    fs::copy(&others, &ca).unwrap();
    let path = folder.path().join("config.yaml");
    let file = format!(
        "model_list:\n- model_name: m\n  litellm_params: {{model: openai/x, api_base: 'https://{address}/v1', api_key: k}}\n\
         litellm_settings: {{num_retries: 0, ssl_verify: '{ca}'}}\n"
    );
    fs::write(&path, file).unwrap();
    let config = Config::load(&path, []).unwrap();
    let proxy = Proxy::serving(config, FixedDialer::default(), Telemetry::off()).await;
    let question = || json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]});
    assert_eq!(
        read(proxy.ask(question()).await).await.0,
        502,
        "another authority is trusted"
    );

    // In the middle of being replaced: what was read before stays in force, and the problem is told.
    fs::write(&ca, "no certificate").unwrap();
    let told = async || proxy.get("/health/readiness").await.1["configuration"].is_string();
    until("the problem is told", told).await;
    fs::write(&ca, right).unwrap();
    let trusted = async || read(proxy.ask(question()).await).await.0 == 200;
    until("the new authority is trusted", trusted).await;
    assert_eq!(proxy.get("/health/readiness").await.1, json!({"status": "ready"}));
    proxy.end().await;
}
