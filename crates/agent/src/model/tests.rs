//! The client against an HTTP server that behaves in every way a model's server may.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::Request,
    response::Response,
};
use futures::{StreamExt, stream};
use kaos_openai::{ChunkAccumulator, FinishReason, Message};
use kaos_seams::{FixedDialer, Seams};
use kaos_telemetry::TraceContext;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpSocket},
    task::JoinHandle,
};
use url::Url;

use super::*;

/// One piece of an answer's body.
#[derive(Clone, Debug)]
enum Piece {
    Bytes(Vec<u8>),
    /// Nothing more, for ever.
    Stall,
}

fn text(text: &str) -> Piece {
    Piece::Bytes(text.as_bytes().to_vec())
}

const HELLO: &str = "data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hello\"}}]}\n\n";
const STOP: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
const DONE: &str = "data: [DONE]\n\n";
/// How long the client waits for servers that never go on; long enough for those of a loaded machine to begin.
const SILENCE: Duration = Duration::from_secs(3);
/// How long it waits for all others. It never passes.
const LONG: Duration = Duration::from_secs(60);

struct Server {
    url: Url,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn server(answer: impl Fn(Request) -> Response + Clone + Send + Sync + 'static) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = Url::parse(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
    let router = Router::new().fallback(async move |request: Request| answer(request));
    Server {
        url,
        task: tokio::spawn(async move { axum::serve(listener, router).await.unwrap() }),
    }
}

fn answer(status: u16, kind: &str, pieces: Vec<Piece>) -> Response {
    let body = stream::iter(pieces).then(async |piece| match piece {
        Piece::Bytes(bytes) => Ok::<_, Infallible>(Bytes::from(bytes)),
        Piece::Stall => std::future::pending().await,
    });
    Response::builder()
        .status(status)
        .header("content-type", kind)
        .body(Body::from_stream(body))
        .unwrap()
}

/// A server that answers with `body` and closes the connection although it has promised more.
async fn breaks(body: &str) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = Url::parse(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
    let answer = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\n\r\n{body}",
        body.len() + 1
    );
    let task = tokio::spawn(async move {
        let (mut connection, _) = listener.accept().await.unwrap();
        let mut request = Vec::new();
        // All of it, because closing with unread bytes would take back what was sent.
        while !request.ends_with(b"}") {
            connection.read_buf(&mut request).await.unwrap();
        }
        connection.write_all(answer.as_bytes()).await.unwrap();
    });
    Server { url, task }
}

async fn streams(pieces: Vec<Piece>) -> Server {
    server(move |_| answer(200, "text/event-stream", pieces.clone())).await
}

fn client(url: &Url, silence: Duration) -> ModelClient {
    kaos_telemetry::install_crypto_provider();
    ModelClient::new(url, silence, Seams::simulated(1)).unwrap()
}

fn question() -> ChatRequest {
    ChatRequest {
        messages: vec![Message::user("hi")],
        stream: true,
        ..ChatRequest::default()
    }
}

/// The text of the answer, and how it ended.
async fn asked(server: &Server) -> (String, Result<(), String>) {
    asked_for(server, LONG).await
}

/// The same of a server that may be silent for so long.
async fn asked_for(server: &Server, silence: Duration) -> (String, Result<(), String>) {
    let mut answer = ChunkAccumulator::new();
    let end = async {
        let mut chunks = client(&server.url, silence)
            .ask(question(), &TraceContext::default())
            .await?;
        while let Some(chunk) = chunks.next().await {
            answer.push(&chunk?);
        }
        Ok(())
    };
    let end = end
        .await
        .map_err(|error: ModelError| error.to_string().replace(server.url.as_str(), "URL"));
    (
        answer
            .into_response()
            .choices
            .first()
            .map(|choice| choice.message.text())
            .unwrap_or_default(),
        end,
    )
}

fn said(text: &str, end: Result<(), &str>) -> (String, Result<(), String>) {
    (text.to_owned(), end.map_err(str::to_owned))
}

#[tokio::test]
async fn an_answer_is_read_however_it_is_split() {
    let whole = format!("{HELLO}: comment\n\n{HELLO}{STOP}{DONE}");
    let bytes: Vec<Piece> = whole.bytes().map(|byte| Piece::Bytes(vec![byte])).collect();
    for pieces in [vec![text(&whole)], bytes] {
        assert_eq!(asked(&streams(pieces).await).await, said("HelloHello", Ok(())));
    }
}

#[tokio::test]
async fn an_answer_that_is_complete_may_end_carelessly() {
    let endings: [Vec<Piece>; 4] = [
        vec![],
        vec![text("data: [DONE]")],
        vec![text(DONE), Piece::Stall],
        vec![text(DONE), text("data: garbage\n\n")],
    ];
    for ending in endings {
        let pieces = [vec![text(HELLO), text(STOP)], ending.clone()].concat();
        assert_eq!(
            asked(&streams(pieces).await).await,
            said("Hello", Ok(())),
            "{ending:?}"
        );
    }
    assert_eq!(
        asked(&breaks(&format!("{HELLO}{STOP}")).await).await,
        said("Hello", Ok(()))
    );
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_an_error_after_what_there_was() {
    let endings = [
        (
            vec![],
            "URL ended its answer in the middle: the connection closed before the answer was complete",
        ),
        (
            vec![text("data: {\"choices\":[{\"ind")],
            "URL ended its answer in the middle: the connection closed before the answer was complete",
        ),
        (vec![Piece::Stall], "URL sent nothing for 3 s"),
        (
            vec![text("data: <html>\n\n")],
            "URL sent an answer that cannot be read: event of the completion is not a chunk",
        ),
        (
            vec![text("data: {\"error\":{\"message\":\"overloaded\"}}\n\n")],
            "URL failed in its answer: overloaded",
        ),
    ];
    for (ending, expected) in endings {
        let pieces = [vec![text(HELLO)], ending.clone()].concat();
        let stalls = matches!(ending[..], [Piece::Stall]);
        let silence = if stalls { SILENCE } else { LONG };
        let (said, end) = asked_for(&streams(pieces).await, silence).await;
        let error = end.unwrap_err();
        assert_eq!(said, "Hello", "{ending:?}");
        assert!(
            error.starts_with(&format!("model API {expected}")),
            "{ending:?}: {error}"
        );
    }
    let (text, end) = asked(&breaks(HELLO).await).await;
    let error = end.unwrap_err();
    assert_eq!(text, "Hello");
    assert!(
        error.starts_with("model API URL ended its answer in the middle: "),
        "{error}"
    );
}

#[tokio::test]
async fn garbage_is_not_an_answer() {
    for garbage in [
        b"\xff\xfe\x00\r\r\n".repeat(100),
        b"<html>hello</html>".to_vec(),
        Vec::new(),
    ] {
        let (said, end) = asked(&streams(vec![Piece::Bytes(garbage)]).await).await;
        assert!(said.is_empty() && end.is_err());
    }
}

#[tokio::test]
async fn an_answer_of_many_megabytes_is_given_up() {
    let one_event = vec![
        Piece::Bytes(b"data: ".to_vec()),
        Piece::Bytes(vec![b'x'; 10 << 20]),
    ];
    let many_events = (0..10 * 1024)
        .map(|_| text(&HELLO.replace("Hello", &"x".repeat(1024))))
        .collect();
    for pieces in [one_event, many_events] {
        let (_, end) = asked(&streams(pieces).await).await;
        assert_eq!(
            end.unwrap_err(),
            "model API URL sent an answer of more than 8388608 bytes"
        );
    }
}

#[tokio::test]
async fn an_error_is_quoted_shortly() {
    let cases = [
        (
            402,
            r#"{"error":{"message":"no credit","type":"insufficient_quota"}}"#.to_owned(),
            "402: no credit",
        ),
        (500, String::new(), "500"),
        (
            502,
            "<html>bad gateway</html>".to_owned(),
            "502: <html>bad gateway</html>",
        ),
    ];
    for (status, body, expected) in cases {
        let server = server(move |_| answer(status, "text/plain", vec![text(&body)])).await;
        let (_, end) = asked(&server).await;
        assert_eq!(
            end.unwrap_err(),
            format!("model API URL answered HTTP {expected}")
        );
    }
    let long = server(|_| answer(500, "text/plain", vec![Piece::Bytes(vec![b'x'; 10 << 20])])).await;
    assert!(asked(&long).await.1.unwrap_err().len() < 400);
}

/// A server that is busy `times` times, and says for how many seconds, before it answers.
async fn busy(status: u16, times: usize, seconds: &'static str) -> (Server, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let server = server(move |_| {
        if count.fetch_add(1, Ordering::Relaxed) < times {
            let mut response = answer(
                status,
                "application/json",
                vec![text(r#"{"error":{"message":"busy"}}"#)],
            );
            response
                .headers_mut()
                .insert("retry-after", seconds.parse().unwrap());
            return response;
        }
        answer(
            200,
            "text/event-stream",
            vec![text(HELLO), text(STOP), text(DONE)],
        )
    });
    (server.await, asked)
}

#[tokio::test]
async fn a_server_that_is_busy_is_asked_again_as_it_says() {
    for (status, times, seconds, expected, attempts) in [
        (429, 2, "0", said("Hello", Ok(())), 3),
        (503, 1, " 0 ", said("Hello", Ok(())), 2),
        (
            429,
            9,
            "0",
            said("", Err("model API URL answered HTTP 429: busy")),
            3,
        ),
        // Whoever asked would not wait so long.
        (
            429,
            1,
            "3600",
            said("", Err("model API URL answered HTTP 429: busy")),
            1,
        ),
        (
            500,
            1,
            "0",
            said("", Err("model API URL answered HTTP 500: busy")),
            1,
        ),
    ] {
        let (server, asked) = busy(status, times, seconds).await;
        assert_eq!(self::asked(&server).await, expected, "{status} {seconds}");
        assert_eq!(asked.load(Ordering::Relaxed), attempts, "{status} {seconds}");
    }
}

#[test]
fn servers_that_take_no_tools_are_known_by_their_words() {
    let refused = |status, said: &str| {
        let error = ModelError::Refused {
            url: "http://model/".to_owned(),
            status,
            said: said.to_owned(),
            retry_after: None,
        };
        error.refuses_tools()
    };
    for (status, said) in [
        (400, "registry.ollama.ai/library/gemma:2b does not support tools"),
        (
            400,
            r#""auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set"#,
        ),
        (500, "tools param requires --jinja flag"),
        (404, "No endpoints found that support tool use."),
        (400, "Unrecognized request argument supplied: tools"),
    ] {
        assert!(refused(status, said), "{said}");
    }
    for (status, said) in [
        (400, "context length exceeded"),
        (401, "this key does not support tools"),
        (429, "too many tool requests; enable billing"),
        (503, "overloaded"),
    ] {
        assert!(!refused(status, said), "{said}");
    }
}

#[tokio::test]
async fn a_server_that_does_not_stream_is_understood() {
    let whole = r#"{"id":"c","choices":[{"index":0,"message":{"role":"assistant","content":"Hello"},"finish_reason":"stop"}]}"#;
    let server = server(move |_| answer(200, "application/json", vec![text(whole)])).await;
    assert_eq!(asked(&server).await, said("Hello", Ok(())));
}

#[tokio::test]
async fn a_server_that_is_not_there_or_says_nothing_is_an_error() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = Url::parse(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
    // The kernel accepts the connection; nobody answers.
    let silent = client(&url, SILENCE)
        .ask(question(), &TraceContext::default())
        .await
        .map(|_| ())
        .unwrap_err();
    assert_eq!(
        silent,
        ModelError::Silent {
            url: url.to_string(),
            silence: SILENCE
        }
    );

    // A port that is taken, so that no other test gets it, but not listened on.
    let taken = TcpSocket::new_v4().unwrap();
    taken.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let url = Url::parse(&format!("http://{}", taken.local_addr().unwrap())).unwrap();
    let gone = client(&url, LONG)
        .ask(question(), &TraceContext::default())
        .await
        .map(|_| ())
        .unwrap_err()
        .to_string();
    assert!(
        gone.contains("is not reachable") && gone.contains("refused"),
        "{gone}"
    );
    assert!(matches!(
        client(&url, LONG).check().await,
        Err(ModelError::Unreachable { .. })
    ));
}

#[tokio::test]
async fn the_request_goes_where_the_dialer_says_and_asks_for_a_stream() {
    let server = server(|request| {
        let accept = request
            .headers()
            .get("accept")
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default();
        let seen = format!("{} {} {accept}", request.method(), request.uri());
        answer(
            200,
            "text/event-stream",
            vec![text(&HELLO.replace("Hello", &seen)), text(STOP)],
        )
    })
    .await;
    kaos_telemetry::install_crypto_provider();
    let address = server.url.socket_addrs(|| None).unwrap()[0];
    let dialer = FixedDialer::default().with("model.default.svc", 8000, address);
    let seams = Seams::simulated(1).with_dialer(Arc::new(dialer));
    let base = Url::parse("http://model.default.svc:8000/v1").unwrap();
    let client = ModelClient::new(&base, LONG, seams).unwrap();
    let mut answer = ChunkAccumulator::new();
    let mut chunks = client.ask(question(), &TraceContext::default()).await.unwrap();
    while let Some(chunk) = chunks.next().await {
        answer.push(&chunk.unwrap());
    }
    assert_eq!(answer.finish_reason(), Some(&FinishReason::Stop));
    let said = answer.into_response().choices[0].message.text();
    assert_eq!(said, "POST /v1/chat/completions text/event-stream");
}

#[tokio::test]
async fn a_server_is_there_unless_it_fails() {
    for (status, there) in [(200, true), (401, true), (404, true), (500, false), (503, false)] {
        let server = server(move |request| {
            let status = if request.uri().path() == "/v1/models" {
                status
            } else {
                418
            };
            answer(status, "application/json", Vec::new())
        })
        .await;
        assert_eq!(client(&server.url, LONG).check().await.is_ok(), there, "{status}");
    }
}
