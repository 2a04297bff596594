//! Keeping one model where it is wanted.

use std::{convert::Infallible, future::Future, sync::Arc, time::Duration};

use kaos_seams::Random;
use tokio::{sync::watch, time::sleep};

use crate::{
    client::{Error, Frame, Ollama},
    name::ModelName,
    progress::{Parts, Progress, State},
};

/// How often a model that is there is looked for.
const CHECK: Duration = Duration::from_secs(10);
/// How often an Ollama that does not answer is asked.
const KNOCK: Duration = Duration::from_secs(1);
/// The wait after the first failed pull, and the longest.
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);

/// What has models and can pull more.
pub(crate) trait Source: Sync {
    /// The names of the models that are there.
    fn tags(&self) -> impl Future<Output = Result<Vec<String>, Error>> + Send;
    /// Pulls `model`, and calls `on` with each line of the answer.
    fn pull(
        &self,
        model: &ModelName,
        on: impl FnMut(&Frame) + Send,
    ) -> impl Future<Output = Result<(), Error>> + Send;
}

impl Source for Ollama {
    async fn tags(&self) -> Result<Vec<String>, Error> {
        self.tags().await
    }

    async fn pull(&self, model: &ModelName, on: impl FnMut(&Frame) + Send) -> Result<(), Error> {
        self.pull(model, on).await
    }
}

/// Keeps a model where it is wanted.
pub(crate) struct Keeper<S> {
    pub(crate) model: ModelName,
    pub(crate) source: S,
    pub(crate) tell: watch::Sender<Progress>,
    pub(crate) random: Arc<dyn Random>,
}

impl<S: Source> Keeper<S> {
    /// Pulls the model whenever it is not there, and looks again from time to time where it is.
    pub(crate) async fn keep(&self) -> Infallible {
        let mut failures: u32 = 0;
        loop {
            match self.look().await {
                Ok(()) => {
                    failures = 0;
                    sleep(CHECK).await;
                }
                Err(error @ (Error::Unreachable(_) | Error::Late(_))) if !self.is_pulling() => {
                    tracing::debug!(%error, "Ollama does not answer");
                    self.say(State::Waiting, |progress| progress.error = None);
                    sleep(KNOCK).await;
                }
                Err(error) => {
                    let step = FIRST.saturating_mul(2u32.saturating_pow(failures)).min(LONGEST);
                    failures = failures.saturating_add(1);
                    let wait = self.random.jitter(step);
                    tracing::warn!(model = %self.model, %error, ?wait, "the model could not be pulled, trying again");
                    self.say(State::Failed, |progress| progress.error = Some(error.to_string()));
                    sleep(wait).await;
                }
            }
        }
    }

    /// Looks for the model, and pulls it where it is not there.
    async fn look(&self) -> Result<(), Error> {
        let there = self.source.tags().await?;
        if !there.iter().any(|name| self.model.is(name)) {
            tracing::info!(model = %self.model, "pulling the model");
            self.pull().await?;
            tracing::info!(model = %self.model, "the model is there");
        }
        self.say(State::Pulled, |progress| {
            progress.error = None;
            let total = progress.total;
            *progress = std::mem::take(progress).of_bytes(total, total);
        });
        Ok(())
    }

    fn is_pulling(&self) -> bool {
        self.tell.borrow().state == State::Pulling
    }

    async fn pull(&self) -> Result<(), Error> {
        // What failed before is told until bytes come: a try that fails again is no news.
        if self.tell.borrow().state != State::Failed {
            self.say(State::Pulling, |progress| {
                *progress = std::mem::take(progress).of_bytes(0, 0);
            });
        }
        let mut parts = Parts::default();
        self.source
            .pull(&self.model, |frame| {
                if parts.take(frame) {
                    let (completed, total) = parts.sum();
                    self.say(State::Pulling, |progress| {
                        progress.error = None;
                        *progress = std::mem::take(progress).of_bytes(completed, total);
                    });
                }
            })
            .await
    }

    fn say(&self, state: State, change: impl FnOnce(&mut Progress)) {
        self.tell.send_modify(|progress| {
            progress.state = state;
            change(progress);
        });
    }
}

#[cfg(test)]
mod tests;
