//! What becomes of connections when the server is told to end, and of those on which nothing comes.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use axum::{body::Body, routing::get};
use bytes::Bytes;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::{
        mpsc::{self, UnboundedSender},
        oneshot,
    },
    task::JoinHandle,
    time::Instant,
};
use tokio_stream::wrappers::UnboundedReceiverStream;

use super::*;

/// Long enough for a loaded machine; nothing waits for it unless something is wrong.
const LONG: Duration = Duration::from_secs(120);

type Part = Result<Bytes, std::io::Error>;

/// A server of `/health`, and of one answer each at `/streamed` and `/whole`, given as its test says.
struct Server {
    address: SocketAddr,
    shutdown: CancellationToken,
    serving: JoinHandle<()>,
    /// How many requests came for the two.
    asked: Arc<AtomicUsize>,
    parts: UnboundedSender<Part>,
    whole: oneshot::Sender<&'static str>,
}

impl Server {
    async fn start() -> Self {
        let (parts, streamed) = mpsc::unbounded_channel::<Part>();
        let (whole, said) = oneshot::channel();
        let streamed = Arc::new(Mutex::new(Some(streamed)));
        let said = Arc::new(Mutex::new(Some(said)));
        let asked = Arc::new(AtomicUsize::new(0));
        let (asked_streamed, asked_whole) = (asked.clone(), asked.clone());
        let app = Router::new()
            .route("/health", get(async || "healthy"))
            .route(
                "/streamed",
                get(async move || {
                    asked_streamed.fetch_add(1, Ordering::Relaxed);
                    let streamed = streamed.lock().unwrap().take().unwrap();
                    Body::from_stream(UnboundedReceiverStream::new(streamed))
                }),
            )
            .route(
                "/whole",
                get(async move || {
                    asked_whole.fetch_add(1, Ordering::Relaxed);
                    let said = said.lock().unwrap().take().unwrap();
                    said.await.unwrap()
                }),
            );
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shutdown = CancellationToken::new();
        let serving = tokio::spawn(serve(listener, app, shutdown.clone()));
        Self {
            address,
            shutdown,
            serving,
            asked,
            parts,
            whole,
        }
    }

    /// A new connection on which this was sent.
    async fn connect(&self, sent: &str) -> TcpStream {
        let mut connection = TcpStream::connect(self.address).await.unwrap();
        connection.write_all(sent.as_bytes()).await.unwrap();
        connection
    }
}

fn question(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n")
}

/// What comes until there is `end` in it.
async fn until(connection: &mut TcpStream, end: &str) -> String {
    let mut read = Vec::new();
    let reading = async {
        while !String::from_utf8_lossy(&read).contains(end) {
            assert!(
                connection.read_buf(&mut read).await.unwrap() > 0,
                "it ended before {end:?}"
            );
        }
    };
    tokio::time::timeout(LONG, reading).await.expect(end);
    String::from_utf8(read).unwrap()
}

/// What comes until the other side closes.
async fn rest(mut connection: TcpStream) -> String {
    let mut read = String::new();
    tokio::time::timeout(LONG, connection.read_to_string(&mut read))
        .await
        .expect("it is closed")
        .unwrap();
    read
}

#[tokio::test]
async fn idle_connections_are_closed_and_answers_go_on_to_their_end() {
    let server = Server::start().await;
    let mut idle = server.connect(&question("/health")).await;
    let kept = until(&mut idle, "healthy").await;
    assert!(!kept.to_lowercase().contains("connection: close"), "{kept}");
    let unused = server.connect("").await;
    let mut streamed = server.connect(&question("/streamed")).await;
    server.parts.send(Ok("first".into())).unwrap();
    until(&mut streamed, "first").await;
    let waiting = server.connect(&question("/whole")).await;
    tokio::time::timeout(LONG, async {
        while server.asked.load(Ordering::Relaxed) < 2 {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();

    server.shutdown.cancel();
    assert_eq!(
        (rest(idle).await, rest(unused).await),
        (String::new(), String::new())
    );
    tokio::time::timeout(LONG, async {
        while TcpStream::connect(server.address).await.is_ok() {
            tokio::task::yield_now().await;
        }
    })
    .await
    .expect("nobody new is let in");

    server.parts.send(Ok("second".into())).unwrap();
    until(&mut streamed, "second").await;
    assert!(!server.serving.is_finished(), "answers are still being given");
    server.parts.send(Ok("last".into())).unwrap();
    drop(server.parts);
    let end = rest(streamed).await;
    assert!(end.contains("last") && end.ends_with("0\r\n\r\n"), "{end}");
    server.whole.send("said").unwrap();
    let answer = rest(waiting).await;
    assert!(
        answer.starts_with("HTTP/1.1 200") && answer.ends_with("said"),
        "{answer}"
    );
    assert!(
        answer.to_lowercase().contains("\r\nconnection: close\r\n"),
        "{answer}"
    );
    tokio::time::timeout(LONG, server.serving)
        .await
        .expect("all is closed")
        .unwrap();
}

#[tokio::test]
async fn an_answer_that_does_not_end_is_cut_off_with_the_server() {
    let server = Server::start().await;
    let mut streamed = server.connect(&question("/streamed")).await;
    server.parts.send(Ok("first".into())).unwrap();
    until(&mut streamed, "first").await;
    server.shutdown.cancel();
    server.serving.abort();
    assert_eq!(rest(streamed).await, "", "not even the end of the body");
}

/// On paused time, which moves on when nothing else is to be done.
#[tokio::test(start_paused = true)]
async fn connections_without_the_whole_head_of_a_request_are_closed_while_others_are_answered() {
    let server = Server::start().await;
    let began = Instant::now();
    let mut half = server.connect("GET /health HTTP/1.1\r\nhost: x\r\nx-").await;
    let silent = server.connect("").await;
    sleep(Duration::from_secs(60)).await;
    // What comes little by little does not put it off.
    half.write_all(b"more: a\r\n").await.unwrap();
    let mut other = server.connect(&question("/health")).await;
    until(&mut other, "healthy").await;

    assert_eq!(
        (rest(half).await, rest(silent).await),
        (String::new(), String::new())
    );
    assert_eq!(began.elapsed(), HEAD_TIMEOUT);

    other.write_all(question("/health").as_bytes()).await.unwrap();
    until(&mut other, "healthy").await;
    let idle_since = Instant::now();
    assert_eq!(rest(other).await, "");
    assert_eq!(idle_since.elapsed(), HEAD_TIMEOUT);
}

#[tokio::test(start_paused = true)]
async fn an_answer_may_take_longer_than_the_head_of_a_request() {
    let server = Server::start().await;
    let mut waiting = server.connect(&question("/whole")).await;
    sleep(HEAD_TIMEOUT * 2).await;
    server.whole.send("said").unwrap();
    until(&mut waiting, "said").await;
}
