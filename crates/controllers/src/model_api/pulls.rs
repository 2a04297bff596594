//! Asking the steps beside hosted models how far they are, beside the passes: one that answers slowly holds
//! nothing up.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use futures::{Stream, channel::mpsc};
use kaos_api::v1alpha1::ModelAPI;
use kaos_kube_ext::Observed;
use kaos_ollama::{Progress, State, progress};
use kaos_seams::Seams;
use kube::runtime::reflector::ObjectRef;
use tokio::{sync::Semaphore, time::sleep};
use tokio_util::task::AbortOnDropHandle;
use tracing::debug;

use crate::common::{
    children::Deployed,
    status::{PODS_NOT_READY, ROLLING_OUT, ROLLOUT_STUCK, Standing},
};

/// The condition that tells whether the model is there.
pub(super) const MODEL_PULLED: &str = "ModelPulled";

/// How long a step may take to answer.
const DEADLINE: Duration = Duration::from_secs(5);
/// How often a step is asked, which is also how often at most its progress is written to a status.
const EVERY: Duration = Duration::from_secs(5);
/// How often a step that does not answer is asked after a while.
const SELDOM: Duration = Duration::from_secs(30);
/// How many tries in a row may fail until it is asked seldom.
const TRIES: u32 = 12;
/// How many steps are asked at a time.
const AT_A_TIME: usize = 16;
/// The hundredths between two tellings.
const STEP: u8 = 5;
const MEGABYTE: u64 = 1_000_000;

/// One rollout of a Deployment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rollout {
    uid: Option<String>,
    generation: Option<i64>,
}

impl Rollout {
    /// The present rollout of `deployment`.
    pub(super) fn of(deployment: &Deployed) -> Self {
        Self {
            uid: deployment.metadata.uid.clone(),
            generation: deployment.metadata.generation,
        }
    }
}

/// What is known of a pull.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Told {
    /// No pod tells yet.
    #[default]
    Nothing,
    /// The step's last word that was news.
    Progress(Progress),
}

impl Told {
    /// Whether `next` is worth a status.
    fn is_news(&self, next: &Self) -> bool {
        let (Self::Progress(known), Self::Progress(next)) = (self, next) else {
            return self != next;
        };
        let step = |progress: &Progress| progress.percent.map(|percent| percent / STEP);
        (known.state, &known.error, step(known)) != (next.state, &next.error, step(next))
            || known.model != next.model
    }

    /// As the condition [`MODEL_PULLED`].
    pub(super) fn observed(&self) -> Observed {
        let (status, reason, message) = match self {
            Self::Nothing => (None, "NotTold", "no pod tells yet how far it is".to_owned()),
            Self::Progress(progress) => match progress.state {
                State::Waiting => (Some(false), "Waiting", "Ollama does not answer yet".to_owned()),
                State::Pulling => (Some(false), "Pulling", amount(progress)),
                State::Pulled => return pulled(),
                State::Failed => (
                    Some(false),
                    "PullFailed",
                    format!(
                        "{}: {}; check spec.hostedConfig.model and the way of the pods to its registry, it is \
                         tried again",
                        progress.model,
                        progress.error.as_deref().unwrap_or("the pull failed")
                    ),
                ),
            },
        };
        Observed {
            status,
            reason: reason.to_owned(),
            message,
        }
    }

    /// `standing`, with what keeps a rollout from its end where that is the model. A large one takes longer than a
    /// Deployment waits until it calls its rollout stuck.
    pub(super) fn explains(&self, standing: Standing) -> Standing {
        let rolls_out = [ROLLING_OUT, ROLLOUT_STUCK, PODS_NOT_READY].contains(&standing.reason);
        let Self::Progress(progress) = self else {
            return standing;
        };
        if !rolls_out {
            return standing;
        }
        let why = match progress.state {
            State::Pulling => "its model is being pulled",
            State::Failed => "its model could not be pulled",
            State::Waiting | State::Pulled => return standing,
        };
        let counted = standing
            .message
            .split(": ")
            .take(2)
            .collect::<Vec<_>>()
            .join(": ");
        Standing::pending(ROLLING_OUT, format!("{counted}: {why}"))
    }
}

/// That the model is there.
pub(super) fn pulled() -> Observed {
    Observed {
        status: Some(true),
        reason: "Pulled".to_owned(),
        message: "the model is there".to_owned(),
    }
}

fn amount(progress: &Progress) -> String {
    let megabytes = |bytes: u64| bytes / MEGABYTE;
    match progress.percent {
        None => format!("{} is asked for", progress.model),
        Some(percent) => format!(
            "pulled {percent} % ({} of {} MB)",
            megabytes(progress.completed),
            megabytes(progress.total)
        ),
    }
}

type Key = ObjectRef<ModelAPI>;

/// What is known of the pulls of all ModelAPIs whose rollout goes on.
#[derive(Debug)]
pub(super) struct Pulls {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    entries: Mutex<HashMap<Key, Entry>>,
    changed: mpsc::UnboundedSender<Key>,
    seams: Seams,
    permits: Semaphore,
}

#[derive(Debug)]
struct Entry {
    rollout: Rollout,
    told: Told,
    /// Ends with the entry.
    _task: AbortOnDropHandle<()>,
}

impl Pulls {
    /// Nothing is known yet, and the stream of the ModelAPIs of whose pull there is news.
    pub(super) fn new(seams: Seams) -> (Self, impl Stream<Item = Key> + Send + 'static) {
        let (changed, news) = mpsc::unbounded();
        let inner = Inner {
            entries: Mutex::default(),
            changed,
            seams,
            permits: Semaphore::new(AT_A_TIME),
        };
        (
            Self {
                inner: Arc::new(inner),
            },
            news,
        )
    }

    /// What is known of the pull of this rollout, which from now on is asked for at `endpoint`.
    pub(super) fn told(&self, key: Key, rollout: Rollout, endpoint: String) -> Told {
        let mut entries = self.inner.entries();
        if let Some(entry) = entries.get(&key).filter(|entry| entry.rollout == rollout) {
            return entry.told.clone();
        }
        let task = tokio::spawn(ask(Arc::downgrade(&self.inner), key.clone(), endpoint));
        // The step of an older pod may know what that of a newer one does not.
        let told = entries.remove(&key).map(|entry| entry.told).unwrap_or_default();
        entries.insert(
            key,
            Entry {
                rollout,
                told: told.clone(),
                _task: AbortOnDropHandle::new(task),
            },
        );
        told
    }

    /// Asks no more of this ModelAPI.
    pub(super) fn forget(&self, key: &Key) {
        self.inner.entries().remove(key);
    }
}

impl Inner {
    fn entries(&self) -> MutexGuard<'_, HashMap<Key, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps what was told, and says so where it is news.
    fn keep(&self, key: &Key, told: Told) {
        let mut entries = self.entries();
        let Some(entry) = entries.get_mut(key) else {
            return;
        };
        if entry.told.is_news(&told) {
            entry.told = told;
            drop(entries);
            // Nobody listens any more when the controller ends.
            let _ = self.changed.unbounded_send(key.clone());
        }
    }
}

/// Asks until the entry, and this task with it, is dropped. The entries hold the task, so between two questions it
/// does not hold them.
async fn ask(inner: Weak<Inner>, key: Key, endpoint: String) {
    let mut failures = 0;
    while let Some(inner) = inner.upgrade() {
        let answer = {
            let Ok(_permit) = inner.permits.acquire().await else {
                return;
            };
            progress(&endpoint, inner.seams.dialer.as_ref(), DEADLINE).await
        };
        match answer {
            Ok(progress) => {
                failures = 0;
                inner.keep(&key, Told::Progress(progress));
            }
            // A pod that starts or ends does not answer; what was told before stays.
            Err(error) => {
                failures += 1;
                debug!(model_api = %key, %error, "its pull does not tell how far it is");
            }
        }
        drop(inner);
        sleep(if failures > TRIES { SELDOM } else { EVERY }).await;
    }
}

#[cfg(test)]
mod tests;
