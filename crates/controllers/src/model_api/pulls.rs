//! Asking the steps beside hosted models how far they are, beside the passes.

use std::time::Duration;

use futures::Stream;
use kaos_api::v1alpha1::ModelAPI;
use kaos_kube_ext::Observed;
use kaos_ollama::{Progress, State, progress};
use kaos_seams::Seams;
use kube::runtime::reflector::ObjectRef;
use tokio::time::sleep;
use tracing::debug;

use crate::common::{
    asked::{Asked, Asking, Rollout},
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
/// The hundredths between two tellings.
const STEP: u8 = 5;
const MEGABYTE: u64 = 1_000_000;

/// What is known of a pull.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Told {
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
    pub(crate) fn observed(&self) -> Observed {
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
    pub(crate) fn explains(&self, standing: Standing) -> Standing {
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
    asked: Asked<ModelAPI, Told>,
    seams: Seams,
}

impl Pulls {
    /// Nothing is known yet, and the stream of the ModelAPIs of whose pull there is news.
    pub(super) fn new(seams: Seams) -> (Self, impl Stream<Item = Key> + Send + 'static) {
        let (asked, news) = Asked::new();
        (Self { asked, seams }, news)
    }

    /// What is known of the pull of this rollout, which from now on is asked for at `endpoint`.
    pub(super) fn told(&self, key: Key, rollout: Rollout, endpoint: String) -> Told {
        // The step of an older pod may know what that of a newer one does not.
        let told = match self.asked.known(&key) {
            Some((of, told)) if of == rollout => return told,
            before => before.map(|(_, told)| told).unwrap_or_default(),
        };
        let seams = self.seams.clone();
        self.asked
            .ask(key, rollout, told.clone(), |asking| ask(asking, seams, endpoint));
        told
    }

    /// Asks no more of this ModelAPI.
    pub(super) fn forget(&self, key: &Key) {
        self.asked.forget(key);
    }
}

async fn ask(asking: Asking<ModelAPI, Told>, seams: Seams, endpoint: String) {
    let mut failures = 0;
    while let Some(answer) = asking
        .answer(progress(&endpoint, seams.dialer.as_ref(), DEADLINE))
        .await
    {
        match answer {
            Ok(progress) => {
                failures = 0;
                let told = Told::Progress(progress);
                asking.tell(|known| {
                    let is_news = known.is_news(&told);
                    if is_news {
                        *known = told;
                    }
                    is_news
                });
            }
            // A pod that starts or ends does not answer; what was told before stays.
            Err(error) => {
                failures += 1;
                debug!(model_api = %asking.key, %error, "its pull does not tell how far it is");
            }
        }
        sleep(if failures > TRIES { SELDOM } else { EVERY }).await;
    }
}

#[cfg(test)]
mod tests;
