//! Other agents that tasks are handed to.
//!
//! What a peer says of itself is asked for when a request first needs it, never in the background and never
//! for readiness: agents that name each other would wait for each other.

mod client;
mod hop;
#[cfg(test)]
mod http_tests;
#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use futures::future::join_all;
use kaos_openai::ChatRequest;
use kaos_telemetry::TraceContext;
use tokio::{
    sync::Mutex,
    time::{Instant, timeout},
};

pub(crate) use client::PeerClient;
pub(crate) use hop::Hop;

use crate::{
    bounded::shortened,
    run::{Delegate, ToolResult, delegation_failed, delegation_tools},
    tools::RESULT_LIMIT,
};

/// How long a peer may take to say what it is.
const CARD_TIMEOUT: Duration = Duration::from_secs(5);
/// How long what a peer said of itself is taken for true.
const FRESH: Duration = Duration::from_secs(60);
/// How soon a peer that did not answer is asked again, at first and in the end; requests in between do not
/// wait for it.
const FIRST_RETRY: Duration = Duration::from_secs(2);
const LAST_RETRY: Duration = Duration::from_secs(60);

/// What a peer says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Card {
    /// The name it goes by, which may differ from the one it is configured with here.
    pub(crate) name: String,
    pub(crate) description: String,
}

/// Why a peer gave no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PeerError {
    /// No connection, or one that broke.
    #[error("agent {url} is not reachable: {reason}")]
    Unreachable { url: String, reason: String },
    /// It answered with an HTTP status that is not a success.
    #[error("agent {url} answered HTTP {status}{}{said}", if .said.is_empty() { "" } else { ": " })]
    Refused { url: String, status: u16, said: String },
    /// Its answer is not one.
    #[error("agent {url} sent an answer that cannot be read: {reason}")]
    Unreadable { url: String, reason: String },
    /// Its answer is longer than is sensible.
    #[error("agent {url} sent an answer of more than {limit} bytes")]
    TooLarge { url: String, limit: usize },
}

/// An agent that can be asked.
#[async_trait]
pub(crate) trait PeerSource: Send + Sync {
    /// Its name among the agent's peers.
    fn name(&self) -> &str;

    /// What it says of itself.
    async fn card(&self) -> Result<Card, PeerError>;

    /// Its answer to a request that came the way of `hop`, as part of `trace`.
    async fn ask(&self, request: &ChatRequest, hop: &Hop, trace: &TraceContext) -> Result<String, PeerError>;
}

/// All peers of an agent.
pub(crate) struct Peers {
    /// The agent's own name.
    own: String,
    peers: Vec<Peer>,
}

struct Peer {
    source: Arc<dyn PeerSource>,
    tool: String,
    look: Mutex<Look>,
}

/// What is known of a peer.
#[derive(Clone, Debug, Default)]
struct Look {
    card: Option<Card>,
    /// Why it did not answer, as of the last time it was asked.
    missing: Option<String>,
    /// When it is asked again; `None`: when it is needed.
    again: Option<Instant>,
    /// How long it was left alone after it did not answer.
    retry: Duration,
}

impl Peers {
    /// The peers of the agent `own`.
    pub(crate) fn new(own: impl Into<String>, sources: Vec<Arc<dyn PeerSource>>) -> Self {
        let tools = delegation_tools(sources.iter().map(|source| source.name()));
        let peers = sources.iter().zip(tools).map(|(source, tool)| Peer {
            source: source.clone(),
            tool,
            look: Mutex::default(),
        });
        Self {
            own: own.into(),
            peers: peers.collect(),
        }
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.peers.is_empty()
    }

    /// The peers as a request that came the way of `hop` may use them. Waits for what is not known of them.
    pub(crate) async fn delegates(&self, hop: &Hop) -> Vec<Delegate> {
        join_all(self.peers.iter().map(|peer| async {
            let look = peer.look().await;
            let configured = peer.source.name();
            let named = look.card.as_ref().map(|card| card.name.as_str());
            Delegate {
                agent: configured.to_owned(),
                tool: peer.tool.clone(),
                description: look
                    .card
                    .as_ref()
                    .map(|card| card.description.clone())
                    .unwrap_or_default(),
                missing: look.missing.clone(),
                barred: hop.bars(&self.own, [Some(configured), named].into_iter().flatten()),
            }
        }))
        .await
    }

    /// Hands `request` to `agent`, for at most `deadline`, as part of `trace`. Never fails: what goes wrong is a
    /// result that says so.
    pub(crate) async fn ask(
        &self,
        agent: &str,
        request: &ChatRequest,
        hop: &Hop,
        deadline: Duration,
        trace: &TraceContext,
    ) -> ToolResult {
        let Some(peer) = self.peers.iter().find(|peer| peer.source.name() == agent) else {
            return delegation_failed(format_args!("there is no agent {agent:?}"));
        };
        match timeout(deadline, peer.source.ask(request, hop, trace)).await {
            Ok(Ok(answer)) => {
                peer.look_again_if(|look| look.missing.is_some());
                ToolResult::success(shortened(answer, RESULT_LIMIT))
            }
            Ok(Err(error)) => {
                if matches!(error, PeerError::Unreachable { .. }) {
                    peer.look_again_if(|look| look.missing.is_none());
                }
                tracing::warn!(agent, %error, "a task could not be delegated");
                delegation_failed(error)
            }
            Err(_) => {
                let seconds = deadline.as_secs_f64();
                tracing::warn!(agent, seconds, "a delegated task was not answered in time");
                delegation_failed(format_args!("agent {agent:?} did not answer within {seconds} s"))
            }
        }
    }
}

impl Peer {
    /// What is known of it, asked for if that is nothing or old. Of several requests one asks and the others
    /// wait.
    async fn look(&self) -> Look {
        let mut look = self.look.lock().await;
        if look.again.is_some_and(|again| Instant::now() < again) {
            return look.clone();
        }
        let name = self.source.name();
        let missing = match timeout(CARD_TIMEOUT, self.source.card()).await {
            Ok(Ok(card)) => {
                look.card = Some(card);
                None
            }
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some(format!(
                "agent {name:?} did not say what it is within {} s",
                CARD_TIMEOUT.as_secs()
            )),
        };
        match &missing {
            Some(reason) if look.missing.as_ref() != Some(reason) => {
                tracing::warn!(agent = name, reason, "agent is unavailable");
            }
            None if look.missing.is_some() => tracing::info!(agent = name, "agent is available"),
            Some(_) | None => {}
        }
        let valid = if missing.is_some() {
            look.retry = (look.retry * 2).clamp(FIRST_RETRY, LAST_RETRY);
            look.retry
        } else {
            look.retry = Duration::ZERO;
            FRESH
        };
        look.missing = missing;
        look.again = Some(Instant::now() + valid);
        look.clone()
    }

    /// Has the next request ask for it again where what is known is `wrong`, as a call showed.
    fn look_again_if(&self, wrong: impl Fn(&Look) -> bool) {
        // Who holds the lock is asking.
        if let Ok(mut look) = self.look.try_lock()
            && wrong(&look)
        {
            look.again = None;
        }
    }
}
