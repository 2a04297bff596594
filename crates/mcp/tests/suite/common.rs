//! A tool server on a free loopback port, and a client of it.

use std::{net::SocketAddr, time::Duration};

use kaos_mcp::{
    client::{McpClient, ToolOutcome},
    server::{self, Error, ToolServerConfig},
};
use kaos_seams::Seams;
use serde_json::{Map, Value};
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_util::sync::CancellationToken;

/// Long enough for a loaded machine; nothing waits for it unless something is wrong.
pub(crate) const LONG: Duration = Duration::from_secs(60);

pub(crate) struct Served {
    pub(crate) address: SocketAddr,
    pub(crate) client: McpClient,
    pub(crate) stop: CancellationToken,
    pub(crate) task: JoinHandle<Result<(), Error>>,
}

impl Served {
    /// Serves `source` with one worker, so that state and failures meet each other.
    pub(crate) async fn start(source: &str) -> Self {
        let mut config = ToolServerConfig::new(source);
        config.workers = 1;
        Self::with(config, "127.0.0.1:0").await
    }

    pub(crate) async fn with(config: ToolServerConfig, address: &str) -> Self {
        kaos_telemetry::install_crypto_provider();
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let task = tokio::spawn(server::serve(config, listener, Seams::system(), stop.clone()));
        let client = McpClient::connect(&format!("http://{address}"), &Seams::system(), LONG).await;
        match client {
            Ok(client) => Self {
                address,
                client,
                stop,
                task,
            },
            Err(error) => panic!("{error}; the server: {:?}", task.await),
        }
    }

    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> ToolOutcome {
        self.client
            .call_tool(tool, object(arguments), LONG)
            .await
            .unwrap()
    }

    /// The text of a call that must succeed.
    pub(crate) async fn text(&self, tool: &str, arguments: Value) -> String {
        let outcome = self.call(tool, arguments).await;
        assert!(!outcome.is_error, "{}", outcome.text);
        outcome.text
    }

    /// The text of a call that must fail.
    pub(crate) async fn failure(&self, tool: &str, arguments: Value) -> String {
        let outcome = self.call(tool, arguments).await;
        assert!(outcome.is_error, "{}", outcome.text);
        outcome.text
    }

    /// Waits until this many workers can run calls.
    pub(crate) async fn has_workers(&self, count: usize) {
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        let ready = format!("http://{}/ready", self.address);
        let enough = async {
            loop {
                let state: Value = http.get(&ready).send().await.unwrap().json().await.unwrap();
                if state["workers"] == count {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(LONG, enough)
            .await
            .expect("the workers start");
    }

    pub(crate) async fn end(self) {
        self.stop.cancel();
        self.task.await.unwrap().unwrap();
    }
}

pub(crate) fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        other => panic!("{other} is no object"),
    }
}
