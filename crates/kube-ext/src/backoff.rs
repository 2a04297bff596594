//! How long to wait before an object is tried again.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use kaos_seams::Random;

/// The wait after the first failure.
const FIRST: Duration = Duration::from_secs(1);
/// The longest wait.
const LONGEST: Duration = Duration::from_secs(300);

/// A backoff for each object: it doubles with every failure in a row from one second to five minutes, with
/// jitter, so that objects that fail together are not all tried again together.
#[derive(Debug)]
pub struct Backoff<K> {
    failures: Mutex<HashMap<K, u32>>,
    random: Arc<dyn Random>,
}

impl<K: Eq + Hash> Backoff<K> {
    /// No object has failed yet.
    pub fn new(random: Arc<dyn Random>) -> Self {
        Self {
            failures: Mutex::default(),
            random,
        }
    }

    /// The object has failed: how long to wait before the next try, between half of the step and all of it.
    pub fn failed(&self, key: K) -> Duration {
        let mut failures = self.failures();
        let count = failures.entry(key).or_default();
        let step = FIRST.saturating_mul(2u32.saturating_pow(*count)).min(LONGEST);
        *count = count.saturating_add(1);
        drop(failures);
        self.random.jitter(step)
    }

    /// The object has succeeded, or is gone: its next failure is its first.
    pub fn reset(&self, key: &K) {
        self.failures().remove(key);
    }

    fn failures(&self) -> MutexGuard<'_, HashMap<K, u32>> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use kaos_seams::Seams;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn waits_double_up_to_five_minutes_and_start_over_after_a_success() {
        let backoff = Backoff::new(Seams::simulated(1).random);
        let within = |wait: Duration, step: u64| {
            let step = Duration::from_secs(step);
            assert!(
                wait >= step / 2 && wait <= step,
                "{wait:?} is not within a step of {step:?}"
            );
        };
        for step in [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300] {
            within(backoff.failed("a"), step);
        }
        within(backoff.failed("b"), 1);
        backoff.reset(&"a");
        within(backoff.failed("a"), 1);
        // Long outages do not overflow.
        for _ in 0..100 {
            backoff.failed("a");
        }
        within(backoff.failed("a"), 300);
    }
}
