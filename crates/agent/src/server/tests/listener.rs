//! The server on a real listener: how it stops, and what it does when callers do.

use std::net::SocketAddr;

use kaos_telemetry::TraceContext;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::*;
use crate::{
    model::ChunkStream, model::Model, model::ModelError, peers::Peers, testing::Act, tools::Toolbox,
};

/// The agent on a real listener.
struct Running {
    address: SocketAddr,
    shutdown: CancellationToken,
    serving: tokio::task::JoinHandle<io::Result<()>>,
}

async fn running(agent: &Agent) -> Running {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let shutdown = CancellationToken::new();
    let serving = tokio::spawn(serve(agent.app.clone(), listener, shutdown.clone()));
    Running {
        address,
        shutdown,
        serving,
    }
}

/// Asks for a stream and reads until the first text of the model.
async fn begin_stream(address: SocketAddr) -> (TcpStream, Vec<u8>) {
    let body = streaming("x").to_string();
    let mut connection = TcpStream::connect(address).await.unwrap();
    let head = format!(
        "POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    connection.write_all(head.as_bytes()).await.unwrap();
    let mut read = Vec::new();
    while !String::from_utf8_lossy(&read).contains("first") {
        assert_ne!(connection.read_buf(&mut read).await.unwrap(), 0, "closed early");
    }
    (connection, read)
}

#[tokio::test]
async fn a_shutdown_lets_answers_end() {
    let pause = Act::Wait(Duration::from_millis(300));
    let delta = |text: &str| Act::Delta(json!({"content": text}));
    let agent = agent([vec![
        delta("first"),
        pause,
        delta("last"),
        Act::Stop("stop", 1, 1),
    ]]);
    let running = running(&agent).await;
    let (mut connection, mut read) = begin_stream(running.address).await;
    running.shutdown.cancel();
    connection.read_to_end(&mut read).await.unwrap();
    let text = String::from_utf8(read).unwrap();
    assert!(text.contains("last") && text.contains("data: [DONE]"), "{text}");
    running.serving.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_shutdown_cuts_off_answers_that_do_not_end() {
    let endless = Act::Wait(Duration::from_secs(100_000));
    let mut agent = agent([vec![Act::Delta(json!({"content": "first"})), endless]]);
    Arc::make_mut(&mut agent.app.config).shutdown_grace = Duration::from_millis(50);
    let running = running(&agent).await;
    let (mut connection, mut read) = begin_stream(running.address).await;
    running.shutdown.cancel();
    connection.read_to_end(&mut read).await.unwrap();
    assert!(!String::from_utf8(read).unwrap().contains("[DONE]"));
    running.serving.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_caller_who_hangs_up_stops_the_model() {
    struct Told(tokio::sync::mpsc::UnboundedSender<()>);
    impl Drop for Told {
        fn drop(&mut self) {
            let _ = self.0.send(());
        }
    }
    struct Endless(tokio::sync::mpsc::UnboundedSender<()>);
    #[async_trait::async_trait]
    impl Model for Endless {
        async fn ask(
            &self,
            _request: kaos_openai::ChatRequest,
            _trace: &TraceContext,
        ) -> Result<ChunkStream, ModelError> {
            let told = Told(self.0.clone());
            Ok(Box::pin(async_stream::stream! {
                let _told = told;
                yield Ok(serde_json::from_value(json!({"choices": [{"delta": {"content": "first"}}]})).unwrap());
                std::future::pending::<()>().await;
            }))
        }
        async fn check(&self) -> Result<(), ModelError> {
            Ok(())
        }
    }
    let (sender, mut stopped) = tokio::sync::mpsc::unbounded_channel();
    let mut agent = agent([]);
    let (tools, peers) = (Toolbox::new(Vec::new()), Peers::new("ann", Vec::new()));
    let dependencies = Dependencies::new(Arc::new(Endless(sender)), Arc::new(tools), Arc::new(peers));
    agent.app.dependencies = Arc::new(dependencies);
    let running = running(&agent).await;
    let (connection, _) = begin_stream(running.address).await;
    assert!(stopped.try_recv().is_err(), "it goes on while the caller listens");
    drop(connection);
    tokio::time::timeout(Duration::from_secs(10), stopped.recv())
        .await
        .expect("the model is told")
        .unwrap();
    running.shutdown.cancel();
    running.serving.await.unwrap().unwrap();
}

#[tokio::test]
async fn pages_of_strangers_are_refused_on_a_machine_of_its_own() {
    let agent = agent([]);
    let running = running(&agent).await;
    for (headers, status) in [
        ("host: localhost", 200),
        ("host: agent-ann.default.svc:8000", 200),
        ("host: localhost\r\norigin: http://localhost:5173", 200),
        ("host: evil.example", 403),
        ("host: localhost\r\norigin: https://evil.example", 403),
    ] {
        let mut connection = TcpStream::connect(running.address).await.unwrap();
        let request = format!("GET /health HTTP/1.1\r\n{headers}\r\nconnection: close\r\n\r\n");
        connection.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        connection.read_to_end(&mut answer).await.unwrap();
        let answer = String::from_utf8(answer).unwrap();
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{headers}: {answer}"
        );
        assert!(!answer.contains("access-control"), "{answer}");
    }
    running.shutdown.cancel();
    running.serving.await.unwrap().unwrap();
}

/// On paused time, which moves on when nothing else is to be done.
#[tokio::test(start_paused = true)]
async fn a_caller_who_does_not_finish_the_head_of_a_request_is_let_go_while_others_are_answered() {
    let agent = agent([]);
    let running = running(&agent).await;
    let began = Instant::now();
    let mut slow = TcpStream::connect(running.address).await.unwrap();
    let head = format!("POST {CHAT} HTTP/1.1\r\nhost: localhost\r\nx-");
    slow.write_all(head.as_bytes()).await.unwrap();
    sleep(Duration::from_secs(60)).await;
    let mut other = TcpStream::connect(running.address).await.unwrap();
    let request = "GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    other.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    other.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let mut read = Vec::new();
    tokio::time::timeout(Duration::from_secs(120), slow.read_to_end(&mut read))
        .await
        .expect("it is closed")
        .unwrap();
    assert_eq!((began.elapsed().as_secs(), read.len()), (95, 0));
    running.shutdown.cancel();
    running.serving.await.unwrap().unwrap();
}
