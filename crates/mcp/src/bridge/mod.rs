//! Any stdio MCP server over HTTP: the role `kaos serve bridge`.
//!
//! Owns the HTTP front (`/mcp`, and `/sse` with `/messages` for clients of 2024; `/health`, `/ready`) and the
//! processes behind it. Each session has a process of its own: a stdio server is written for the one client that
//! started it. What it was told in `initialize`, which roots, log level and subscriptions it has, and what it
//! keeps between calls are that client's alone, and a request of its own (sampling, elicitation, roots) is for
//! nobody else. So messages pass through as they are, ids and fields that nobody here knows included. The price
//! is a process for each client, which the number of sessions bounds.
//!
//! Never reads more of a message than whom it is for.

mod command;
mod config;
mod handshake;
mod http;
mod process;
mod session;

use std::{
    collections::HashMap,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use axum::middleware;
use kaos_guard::HostPolicy;
use kaos_seams::Seams;
use kaos_serving::DRAIN;
use kaos_telemetry::Telemetry;
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::Notify};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle, task::TaskTracker};

pub use self::{
    command::CommandError,
    config::{BridgeConfig, COMMAND_VARIABLE, ConfigError, IDLE_VARIABLE, SESSIONS_VARIABLE},
};
use self::{
    config::Ready,
    process::Process,
    session::{Outbox, Session},
};
use crate::{
    message::{Kind, Message},
    packages::PackageError,
};

/// The protocol that the bridge itself speaks when it tries the server.
const PROTOCOL: &str = "2025-06-18";
/// Waits between attempts to reach a server that did not answer.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(60);

/// Why the bridge ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Packages of the server cannot be installed.
    #[error(transparent)]
    Packages(#[from] PackageError),
    /// The server does not start, or is none.
    #[error(
        "the MCP server {command:?} cannot be used: {reason}; its messages are in the log above; check that the command \
         speaks MCP on its standard input and output"
    )]
    Server {
        /// The command line.
        command: String,
        /// What it did.
        reason: String,
    },
    /// The listener failed.
    #[error("the bridge cannot serve: {0}")]
    Serve(#[from] io::Error),
}

/// What all sessions share.
struct Shared {
    config: Ready,
    seams: Seams,
    /// No more sessions, and an end to those that there are.
    stop: CancellationToken,
    tasks: TaskTracker,
    /// By their ids.
    sessions: Mutex<HashMap<String, Session>>,
    health: Mutex<Health>,
    /// The server has to be tried again.
    trouble: Notify,
}

/// How the server is.
#[derive(Default)]
struct Health {
    /// What it says of itself.
    server: Value,
    problem: Option<String>,
}

/// There are as many sessions as there may be, and all in use.
struct Full(usize);

impl Shared {
    fn sessions(&self) -> MutexGuard<'_, HashMap<String, Session>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn health(&self) -> MutexGuard<'_, Health> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a session. Where there are as many as there may be, the one that has gone unused for longest ends.
    fn open(self: &Arc<Self>, stream: Option<Outbox>) -> Result<(String, Session), Full> {
        let limit = self.config.sessions;
        if self.stop.is_cancelled() {
            return Err(Full(limit));
        }
        let mut sessions = self.sessions();
        if sessions.len() >= limit {
            let unused = sessions
                .iter()
                .filter_map(|(id, session)| Some((session.idle()?, id.clone())))
                .min();
            let (_, id) = unused.ok_or(Full(limit))?;
            if let Some(session) = sessions.remove(&id) {
                tracing::info!(
                    limit,
                    "the session that was unused for longest ends, for a new one"
                );
                session.end();
            }
        }
        let id = self.seams.random.uuid();
        let session = Session::start(self, id.clone(), stream);
        sessions.insert(id.clone(), session.clone());
        Ok((id, session))
    }

    /// The server has answered.
    fn well(&self) {
        self.health().problem = None;
    }

    /// The server could not be started. It is tried until it can.
    fn unwell(&self, problem: &str) {
        tracing::error!(problem, "the MCP server cannot be used");
        self.health().problem = Some(problem.to_owned());
        self.trouble.notify_one();
    }

    /// Starts the server to see what it says of itself, and ends it again.
    async fn try_server(&self) -> Result<Value, String> {
        let command = &self.config.command;
        let mut process = Process::start(command).map_err(|error| command.not_started(&error))?;
        let params = json!({
            "protocolVersion": PROTOCOL,
            "capabilities": {},
            "clientInfo": {"name": "kaos-bridge", "version": env!("CARGO_PKG_VERSION")},
        });
        let hello = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
        let hello = Message {
            kind: Kind::Request {
                id: 0.into(),
                method: "initialize".to_owned(),
                progress: None,
            },
            text: hello.to_string(),
        };
        let said = handshake::initialize(&mut process, &hello, self.config.call_timeout).await;
        if said.is_ok() {
            process.send(json!({"jsonrpc": "2.0", "method": "notifications/initialized"}).to_string());
        }
        let how = process.stop().await;
        said.map_err(|reason| format!("{reason} ({how})"))
    }

    /// Tries the server whenever it has given trouble, until it answers.
    async fn watch(self: Arc<Self>) {
        loop {
            self.trouble.notified().await;
            let mut wait = FIRST_RETRY;
            while self.health().problem.is_some() {
                tokio::time::sleep(self.seams.random.jitter(wait)).await;
                wait = (wait * 2).min(LAST_RETRY);
                match self.try_server().await {
                    Ok(_) => self.well(),
                    Err(problem) => {
                        tracing::error!(problem, "the MCP server cannot be used; trying again");
                        self.health().problem = Some(problem);
                    }
                }
            }
        }
    }
}

/// A server that has answered and is not served yet.
pub struct Bridge {
    shared: Arc<Shared>,
    hosts: HostPolicy,
    telemetry: Telemetry,
}

impl Bridge {
    /// Installs what the command needs, starts the server and has it answer `initialize`. Do this before the port is
    /// taken: whoever probes it by a connection alone would take a server that is being installed for a ready one.
    ///
    /// # Errors
    /// When packages cannot be installed, or the command is no MCP server.
    pub async fn start(config: BridgeConfig, seams: Seams) -> Result<Self, Error> {
        let hosts = config.hosts.clone();
        let config = config.prepare().await?;
        let shared = Arc::new(Shared {
            config,
            seams,
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
            sessions: Mutex::default(),
            health: Mutex::default(),
            trouble: Notify::new(),
        });
        let said = shared.try_server().await.map_err(|reason| Error::Server {
            command: shared.config.command.to_string(),
            reason,
        })?;
        shared.health().server = said.get("serverInfo").cloned().unwrap_or_default();
        Ok(Self {
            shared,
            hosts,
            telemetry: Telemetry::off(),
        })
    }

    /// Has `/metrics` answered from `telemetry`, which is left on in the end.
    #[must_use]
    pub fn with_telemetry(self, telemetry: Telemetry) -> Self {
        Self { telemetry, ..self }
    }

    /// Serves it on `listener` until `shutdown`, then lets requests that are under way end.
    ///
    /// # Errors
    /// When the listener fails.
    pub async fn serve(self, listener: TcpListener, shutdown: CancellationToken) -> Result<(), Error> {
        let address = listener.local_addr()?;
        let shared = self.shared;
        let command = shared.config.command.to_string();
        tracing::info!(%address, command, server = %shared.health().server, "serving a stdio MCP server");
        let guard = middleware::from_fn_with_state(self.hosts.on(address), kaos_guard::guard);
        let app = http::router(shared.clone(), self.telemetry).layer(guard);
        let watching = AbortOnDropHandle::new(tokio::spawn(shared.clone().watch()));
        let stopping = async {
            shutdown.cancelled().await;
            shared.stop.cancel();
        };
        // Not dropped before the end: that would close the connections on which requests are told that their
        // sessions have ended.
        let serving = kaos_serving::serve(listener, app, shutdown.clone());
        let mut serving = std::pin::pin!(async { tokio::join!(serving, stopping) });
        tokio::select! {
            _ = serving.as_mut() => {}
            () = kaos_serving::end_of_grace(&shutdown, DRAIN) => {
                tracing::warn!("requests were still under way at the end of the shutdown and are stopped");
            }
        }
        drop(watching);
        shared.stop.cancel();
        shared.tasks.close();
        shared.tasks.wait().await;
        Ok(())
    }
}
