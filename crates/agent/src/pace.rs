//! How often the agent looks at what it depends on.

use std::{future::Future, sync::Arc, time::Duration};

use kaos_seams::Random;
use tokio::{sync::Notify, time::sleep};
use tokio_util::sync::CancellationToken;

/// How soon a check that failed is repeated at first. Whoever starts with the agent is there in no time.
const FIRST_RETRY: Duration = Duration::from_millis(100);
/// How long it takes between two checks that fail in the end.
const LAST_RETRY: Duration = Duration::from_secs(2);
/// How long it takes between two checks that succeed.
const STEADY: Duration = Duration::from_secs(10);
/// How often a check that was asked for at once is repeated at most.
const AT_ONCE: Duration = Duration::from_millis(500);

/// Repeats checks: at a steady pace while they succeed, soon and then less often after they fail.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    random: Arc<dyn Random>,
}

impl Pace {
    pub(crate) fn new(random: Arc<dyn Random>) -> Self {
        Self { random }
    }

    /// Repeats `check`, which says whether it succeeded, until `stop`; without waiting whenever `at_once` is
    /// notified.
    pub(crate) async fn repeat<F: Future<Output = bool>>(
        &self,
        stop: &CancellationToken,
        at_once: &Notify,
        mut check: impl FnMut() -> F,
    ) {
        let mut retry = FIRST_RETRY;
        loop {
            let Some(succeeded) = stop.run_until_cancelled(check()).await else {
                return;
            };
            let wait = if succeeded { STEADY } else { retry };
            retry = if succeeded {
                FIRST_RETRY
            } else {
                (retry * 2).min(LAST_RETRY)
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = sleep(self.random.jitter(wait)) => {}
                () = async { at_once.notified().await; sleep(AT_ONCE.min(wait)).await } => {}
            }
        }
    }
}
