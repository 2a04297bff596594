//! The objects to look at: each once, however often it changed, and again with growing pauses when that
//! failed.

use std::{collections::HashMap, time::Duration};

use kaos_seams::Seams;
use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use crate::watch::Key;

/// The pause after a first failure; each further one doubles it.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The way in.
#[derive(Clone)]
pub(super) struct Queue(mpsc::UnboundedSender<Key>);

impl Queue {
    pub(super) fn new() -> (Self, mpsc::UnboundedReceiver<Key>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (Self(sender), receiver)
    }

    pub(super) fn add(&self, key: Key) {
        // The other end goes only when the controller stops.
        let _ = self.0.send(key);
    }
}

/// Calls `reconcile` for every key, one at a time, until `stop`. It returns when to look again, if the
/// passing of time alone may change something.
pub(super) async fn run<F>(
    mut keys: mpsc::UnboundedReceiver<Key>,
    seams: Seams,
    stop: CancellationToken,
    reconcile: impl Fn(Key) -> F,
) where
    F: Future<Output = Result<Option<Duration>, kube::Error>>,
{
    let mut due: HashMap<Key, Instant> = HashMap::new();
    let mut failures: HashMap<Key, u32> = HashMap::new();
    loop {
        while let Ok(key) = keys.try_recv() {
            due.insert(key, Instant::now());
        }
        // Ordered by key where two are due at once, so that a run can be replayed.
        let next = due.iter().map(|(key, at)| (*at, key.clone())).min();
        let wait = async {
            match &next {
                Some((at, _)) => sleep_until(*at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            Some(key) = keys.recv() => {
                due.insert(key, Instant::now());
                continue;
            }
            () = wait => {}
        }
        let Some((_, key)) = next else { continue };
        due.remove(&key);
        match reconcile(key.clone()).await {
            Ok(again) => {
                failures.remove(&key);
                if let Some(after) = again {
                    due.insert(key, Instant::now() + after);
                }
            }
            Err(error) => {
                let failed = failures.entry(key.clone()).or_default();
                let pause = (FIRST_PAUSE * 2u32.saturating_pow((*failed).min(16))).min(LONGEST_PAUSE);
                *failed += 1;
                // Somebody else wrote first: part of the day's work.
                if !matches!(&error, kube::Error::Api(status) if status.is_conflict()) {
                    tracing::warn!(namespace = %key.0, name = %key.1, %error, "reconciling failed; trying again");
                }
                due.insert(key, Instant::now() + seams.random.jitter(pause));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn many_changes_are_one_look_and_failures_are_repeated_with_pauses() {
        let (queue, keys) = Queue::new();
        let seams = Seams::simulated(1);
        let stop = CancellationToken::new();
        let key = |name: &str| ("ns".to_owned(), name.to_owned());
        for _ in 0..5 {
            queue.add(key("a"));
        }
        queue.add(key("b"));
        let seen = RefCell::new(Vec::new());
        let began = Instant::now();
        run(keys, seams, stop.clone(), |key: Key| {
            seen.borrow_mut().push(key.1.clone());
            let last = seen.borrow().len() == 4;
            if last {
                stop.cancel();
            }
            async move {
                match key.1.as_str() {
                    "b" if !last => Err(kube::Error::LinesCodecMaxLineLengthExceeded),
                    _ => Ok(None),
                }
            }
        })
        .await;
        assert_eq!(seen.into_inner(), ["a", "b", "b", "b"]);
        assert!(began.elapsed() >= FIRST_PAUSE / 2 + FIRST_PAUSE);
    }
}
