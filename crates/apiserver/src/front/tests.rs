//! The front with a client of its own: what gets in, what does not, and how it ends.

use std::{net::Ipv4Addr, sync::Arc, time::Duration};

use kaos_seams::Seams;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::timeout,
};
use tokio_rustls::{TlsConnector, client::TlsStream};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::{Options, Storage};

struct Front {
    address: SocketAddr,
    tls: TlsIdentity,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<Result<(), FrontError>>,
}

async fn front() -> Front {
    let seams = Seams::system();
    let server = ApiServer::open(Options {
        storage: Storage::Memory,
        seams: seams.clone(),
        faults: None,
    })
    .await
    .unwrap();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let tls = TlsIdentity::generate(&seams).unwrap();
    let stop = CancellationToken::new();
    let options = FrontOptions {
        token: "secret".to_owned(),
        tls: tls.clone(),
    };
    let task = tokio::spawn(serve(server, listener, options, stop.clone().cancelled_owned()));
    Front {
        address,
        tls,
        stop,
        task,
    }
}

impl Front {
    async fn connect(&self, name: &'static str) -> TlsStream<TcpStream> {
        let mut roots = RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_slice(self.tls.certificate_pem.as_bytes()).unwrap())
            .unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let stream = TcpStream::connect(self.address).await.unwrap();
        TlsConnector::from(Arc::new(config))
            .connect(ServerName::try_from(name).unwrap(), stream)
            .await
            .unwrap()
    }

    async fn get(&self, path: &str, token: &str) -> String {
        let mut stream = self.connect("127.0.0.1").await;
        let head = format!(
            "GET {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n",
            self.address
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        String::from_utf8(answer).unwrap()
    }
}

#[tokio::test]
async fn only_those_with_the_token_get_in() {
    let front = front().await;
    let answer = front.get("/api", "secret").await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let answer = front.get("/api", "wrong").await;
    assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
    assert!(
        answer.contains(r#""reason":"Unauthorized","code":401"#),
        "{answer}"
    );
    assert!(front.get("/readyz", "").await.ends_with("ok"));
    front.stop.cancel();
    front.task.await.unwrap().unwrap();
}

#[tokio::test]
async fn the_certificate_is_for_every_loopback_name() {
    let front = front().await;
    for name in NAMES_OF_LOOPBACK {
        front.connect(name).await;
    }
}

const NAMES_OF_LOOPBACK: [&str; 3] = ["127.0.0.1", "localhost", "::1"];

#[tokio::test]
async fn only_loopback_is_listened_on_and_only_with_a_token() {
    let seams = Seams::system();
    let server = ApiServer::open(Options {
        storage: Storage::Memory,
        seams: seams.clone(),
        faults: None,
    })
    .await
    .unwrap();
    let tls = TlsIdentity::generate(&seams).unwrap();
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).await.unwrap();
    let options = FrontOptions {
        token: "secret".to_owned(),
        tls,
    };
    let refused = serve(server.clone(), listener, options.clone(), std::future::pending()).await;
    assert!(matches!(refused, Err(FrontError::NotLoopback(_))), "{refused:?}");
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let options = FrontOptions {
        token: String::new(),
        ..options
    };
    let refused = serve(server, listener, options, std::future::pending()).await;
    assert!(matches!(refused, Err(FrontError::EmptyToken)), "{refused:?}");
}

#[tokio::test]
async fn shutdown_ends_idle_connections_and_watches() {
    let front = front().await;
    let mut idle = front.connect("127.0.0.1").await;
    let mut watch = front.connect("127.0.0.1").await;
    let head = format!(
        "GET /api/v1/namespaces?watch=true HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer secret\r\n\r\n",
        front.address
    );
    watch.write_all(head.as_bytes()).await.unwrap();
    let mut first = [0; 15];
    watch.read_exact(&mut first).await.unwrap();
    assert_eq!(&first, b"HTTP/1.1 200 OK");
    front.stop.cancel();
    timeout(Duration::from_secs(4), front.task)
        .await
        .expect("the watch ends at once")
        .unwrap()
        .unwrap();
    let mut rest = Vec::new();
    let _ = watch.read_to_end(&mut rest).await;
    assert!(rest.ends_with(b"0\r\n\r\n"), "the watch ends as a stream does");
    let _ = idle.read_to_end(&mut rest).await;
}
