//! What the agent cannot answer without, and whether it is there.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::{model::Model, pace::Pace, peers::Peers, tools::Toolbox};

/// The model and the tools, whose state is looked at in the background, never while somebody asks for it; and
/// the peers, which the agent can answer without.
pub(crate) struct Dependencies {
    pub(crate) model: Arc<dyn Model>,
    pub(crate) tools: Arc<Toolbox>,
    pub(crate) peers: Arc<Peers>,
    /// Why the model cannot be asked, as of the last look.
    model_missing: Mutex<Option<String>>,
}

impl Dependencies {
    pub(crate) fn new(model: Arc<dyn Model>, tools: Arc<Toolbox>, peers: Arc<Peers>) -> Self {
        let unknown = "the model API was not asked yet".to_owned();
        Self {
            model,
            tools,
            peers,
            model_missing: Mutex::new(Some(unknown)),
        }
    }

    /// Keeps looking until `stop`.
    pub(crate) async fn watch(&self, pace: &Pace, stop: &CancellationToken) {
        let never = Notify::new();
        tokio::join!(
            pace.repeat(stop, &never, || self.check_model()),
            self.tools.watch(pace, stop)
        );
    }

    /// What is missing, for people; empty when the agent can answer.
    pub(crate) fn missing(&self) -> Vec<String> {
        let model = self
            .model_missing
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        model.into_iter().chain(self.tools.missing()).collect()
    }

    async fn check_model(&self) -> bool {
        let reason = self.model.check().await.err().map(|error| error.to_string());
        let reachable = reason.is_none();
        let mut missing = self.model_missing.lock().unwrap_or_else(PoisonError::into_inner);
        match &reason {
            None if missing.is_some() => tracing::info!("the model API is reachable"),
            Some(reason) if missing.as_ref() != Some(reason) => {
                tracing::warn!(reason, "the model API is missing")
            }
            None | Some(_) => {}
        }
        *missing = reason;
        reachable
    }
}
