//! Waiting for what must become true.

use std::fmt::Debug;
use std::time::Duration;

use tokio::time::{Instant, sleep};

/// A deadline for what normally takes a moment: long enough for a busy machine and the slow loops of a real
/// cluster, whose garbage collector looks for new kinds every 30 seconds.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// How often the condition is looked at.
const INTERVAL: Duration = Duration::from_millis(20);

/// What [`eventually`] takes for an answer.
pub trait Outcome {
    /// What the caller gets.
    type Value;
    /// The value, or what was found instead, for the message of a failed test.
    fn settle(self) -> Result<Self::Value, String>;
}

impl<T> Outcome for Option<T> {
    type Value = T;
    fn settle(self) -> Result<T, String> {
        self.ok_or_else(|| "nothing".to_owned())
    }
}

impl<T, E: Debug> Outcome for Result<T, E> {
    type Value = T;
    fn settle(self) -> Result<T, String> {
        self.map_err(|error| format!("{error:?}"))
    }
}

impl Outcome for bool {
    type Value = ();
    fn settle(self) -> Result<(), String> {
        self.then_some(()).ok_or_else(|| "false".to_owned())
    }
}

/// Calls `look` until it gives `Some`, `Ok` or `true`, and returns what it gave.
///
/// The deadline is in tokio's time: a test that pauses time waits no longer than its work takes.
///
/// # Panics
/// When `deadline` has passed, with `what` and what was found last.
pub async fn eventually<O: Outcome>(
    what: &str,
    deadline: Duration,
    mut look: impl AsyncFnMut() -> O,
) -> O::Value {
    let started = Instant::now();
    loop {
        match look().await.settle() {
            Ok(value) => return value,
            Err(found) if started.elapsed() >= deadline => {
                panic!("not within {deadline:?}: {what}; found at last: {found}")
            }
            Err(_) => sleep(INTERVAL).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_value_is_returned_when_it_is_there() {
        let mut looks = 0;
        let value = eventually("the third look", PATIENCE, async || {
            looks += 1;
            (looks == 3).then_some(looks)
        })
        .await;
        assert_eq!(value, 3);
    }

    #[tokio::test(start_paused = true)]
    #[should_panic(expected = "not within 1s: a miracle; found at last: \"rain\"")]
    async fn the_message_says_what_was_found_instead() {
        eventually("a miracle", Duration::from_secs(1), async || Err::<(), _>("rain")).await;
    }
}
