//! The client before servers of other makes, written as they answer on the wire.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{
    Json, Router,
    extract::State,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
    routing::post,
};
use kaos_mcp::client::{ClientError, McpClient};
use kaos_seams::{Dialer, Seams};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::common::{LONG, object};

/// A server from before the handshake was dropped: it keeps sessions and knows no `server/discover`.
#[derive(Default)]
struct Older {
    session: AtomicUsize,
    calls: AtomicUsize,
    /// How it refuses a session that it does not know: 404, or 400 as the oldest do.
    unknown_session: u16,
    /// What a call does.
    call: Call,
}

#[derive(Clone, Copy, Default)]
enum Call {
    #[default]
    Answers,
    Stalls,
    BreaksOff,
}

impl Older {
    /// As after a restart: no session is known any more.
    fn forget_sessions(&self) {
        self.session.fetch_add(1, Ordering::SeqCst);
    }

    fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }
}

async fn older(State(server): State<Arc<Older>>, headers: HeaderMap, Json(message): Json<Value>) -> Response {
    let current = format!("session-{}", server.session.load(Ordering::SeqCst));
    let result = |result: Value| json!({"jsonrpc": "2.0", "id": message["id"], "result": result});
    let method = message["method"].as_str().unwrap();
    if method == "initialize" {
        let body = result(json!({
            "protocolVersion": "2025-03-26",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "older", "version": "1"},
        }));
        return ([("mcp-session-id", current)], Json(body)).into_response();
    }
    match headers.get("mcp-session-id").map(|id| id.to_str().unwrap()) {
        // As the first Python SDKs: an error that answers no request in particular.
        None => {
            let error = json!({"code": -32600, "message": "Bad Request: Missing session ID"});
            let body = Json(json!({"jsonrpc": "2.0", "id": "server-error", "error": error}));
            return (StatusCode::BAD_REQUEST, body).into_response();
        }
        Some(id) if id != current => {
            let status = StatusCode::from_u16(server.unknown_session).unwrap();
            return (status, "no such session").into_response();
        }
        Some(_) => {}
    }
    match method {
        "tools/list" => {
            // Two pages.
            let page = if message["params"]["cursor"].is_null() {
                json!({"tools": [{"name": "one", "inputSchema": {"type": "object"}}], "nextCursor": "2"})
            } else {
                json!({"tools": [{"name": "two", "description": "second", "inputSchema": {"type": "object"}}]})
            };
            Json(result(page)).into_response()
        }
        "tools/call" => {
            server.calls.fetch_add(1, Ordering::SeqCst);
            match server.call {
                Call::Answers => {
                    let said = message["params"]["arguments"]["say"].clone();
                    Json(result(json!({"content": [{"type": "text", "text": said}]}))).into_response()
                }
                Call::Stalls => std::future::pending().await,
                Call::BreaksOff => panic!("the connection ends here, as meant"),
            }
        }
        _ => StatusCode::ACCEPTED.into_response(),
    }
}

async fn start(server: Older) -> (Arc<Older>, SocketAddr) {
    let server = Arc::new(server);
    let app = Router::new()
        .route("/mcp", post(older))
        .with_state(server.clone());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    (server, address)
}

fn client(url: &str, seams: &Seams) -> McpClient {
    kaos_telemetry::install_crypto_provider();
    McpClient::new(url, seams).unwrap()
}

async fn say(client: &McpClient, text: &str) -> Result<String, ClientError> {
    let outcome = client
        .call_tool("echo", object(json!({"say": text})), LONG)
        .await?;
    Ok(outcome.text)
}

#[tokio::test]
async fn an_older_server_is_understood_page_by_page() {
    let (_, address) = start(Older {
        unknown_session: 404,
        ..Older::default()
    })
    .await;
    let client = client(&format!("http://{address}"), &Seams::system());
    let tools = client.list_tools(LONG).await.unwrap();
    let names: Vec<(&str, &str)> = tools
        .iter()
        .map(|tool| (tool.name.as_str(), tool.description.as_str()))
        .collect();
    assert_eq!(names, [("one", ""), ("two", "second")]);
    assert_eq!(say(&client, "hi").await.unwrap(), "hi");
}

#[tokio::test]
async fn a_server_that_has_restarted_gets_a_new_session() {
    for unknown_session in [404, 400] {
        let (server, address) = start(Older {
            unknown_session,
            ..Older::default()
        })
        .await;
        let client = client(&format!("http://{address}"), &Seams::system());
        assert_eq!(say(&client, "before").await.unwrap(), "before");
        server.forget_sessions();
        assert_eq!(say(&client, "after").await.unwrap(), "after", "{unknown_session}");
        server.forget_sessions();
        assert_eq!(client.list_tools(LONG).await.unwrap().len(), 2);
        assert_eq!(server.calls(), 2, "the call that was refused was not run");
    }
}

#[tokio::test]
async fn callers_that_arrive_together_share_one_session() {
    let (server, address) = start(Older {
        unknown_session: 404,
        ..Older::default()
    })
    .await;
    let client = client(&format!("http://{address}"), &Seams::system());
    let calls = (0..32).map(|number| {
        let client = client.clone();
        async move { say(&client, &number.to_string()).await.unwrap() }
    });
    let said = futures::future::join_all(calls).await;
    assert_eq!(said, (0..32).map(|number| number.to_string()).collect::<Vec<_>>());
    assert_eq!(server.calls(), 32);
}

#[tokio::test]
async fn a_call_that_may_have_run_is_not_repeated() {
    let (server, address) = start(Older {
        unknown_session: 404,
        call: Call::BreaksOff,
        ..Older::default()
    })
    .await;
    let client = client(&format!("http://{address}"), &Seams::system());
    let error = say(&client, "once").await.unwrap_err();
    assert!(matches!(error, ClientError::Operation { .. }), "{error}");
    assert_eq!(server.calls(), 1);
    assert_eq!(
        client.list_tools(LONG).await.unwrap().len(),
        2,
        "the client goes on"
    );
}

#[tokio::test]
async fn a_call_ends_at_its_deadline() {
    let (server, address) = start(Older {
        unknown_session: 404,
        call: Call::Stalls,
        ..Older::default()
    })
    .await;
    let client = client(&format!("http://{address}"), &Seams::system());
    let deadline = Duration::from_millis(300);
    let error = client
        .call_tool("echo", object(json!({})), deadline)
        .await
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("MCP server http://{address}/mcp did not answer tools/call echo within 0.3 s")
    );
    assert_eq!(server.calls(), 1);
    assert_eq!(
        client.list_tools(LONG).await.unwrap().len(),
        2,
        "the session is still good"
    );
}

/// A Service whose pod moves.
#[derive(Debug)]
struct Moving(Mutex<SocketAddr>);

impl Dialer for Moving {
    fn address(&self, host: &str, port: u16) -> Option<SocketAddr> {
        ((host, port) == ("tools.default.svc", 8000)).then(|| *self.0.lock().unwrap())
    }
}

#[tokio::test]
async fn a_server_that_has_moved_is_found_again() {
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let moving = Arc::new(Moving(Mutex::new(gone.local_addr().unwrap())));
    drop(gone);
    let client = client(
        "http://tools.default.svc:8000",
        &Seams::system().with_dialer(moving.clone()),
    );
    let error = say(&client, "too early").await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "MCP server http://tools.default.svc:8000/mcp cannot be reached: Connection refused (os error 111)"
    );
    let (_, first) = start(Older {
        unknown_session: 404,
        ..Older::default()
    })
    .await;
    *moving.0.lock().unwrap() = first;
    assert_eq!(say(&client, "first").await.unwrap(), "first");

    // The next address; the server there has never heard of the session.
    let (server, second) = start(Older {
        unknown_session: 404,
        ..Older::default()
    })
    .await;
    server.forget_sessions();
    *moving.0.lock().unwrap() = second;
    client.list_tools(LONG).await.unwrap();
}
