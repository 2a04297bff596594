//! The wall clock.

use std::fmt::Debug;

use jiff::Timestamp;
use tokio::time::Instant;

/// Tells the time of day. Durations are measured with `tokio::time::Instant` instead.
pub trait Clock: Debug + Send + Sync {
    /// The time now.
    fn now(&self) -> Timestamp;
}

/// The system's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// A clock that starts at a fixed time and then follows tokio's, paused and advanced with it.
///
/// `default()` starts at 2026-01-01T00:00:00Z. Build it inside a runtime.
#[derive(Clone, Copy, Debug)]
pub struct SimulatedClock {
    start: Timestamp,
    origin: Instant,
}

/// 2026-01-01T00:00:00Z in seconds since the epoch.
const DEFAULT_START: i64 = 1_767_225_600;

impl SimulatedClock {
    /// A clock that shows `start` now.
    pub fn starting_at(start: Timestamp) -> Self {
        Self {
            start,
            origin: Instant::now(),
        }
    }
}

impl Default for SimulatedClock {
    fn default() -> Self {
        Self::starting_at(Timestamp::from_second(DEFAULT_START).unwrap_or_default())
    }
}

impl Clock for SimulatedClock {
    fn now(&self) -> Timestamp {
        self.start
            .checked_add(self.origin.elapsed())
            .unwrap_or(Timestamp::MAX)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_simulated_clock_moves_only_with_tokio_time() {
        let clock = SimulatedClock::default();
        assert_eq!(clock.now().to_string(), "2026-01-01T00:00:00Z");
        tokio::time::advance(Duration::from_secs(90)).await;
        assert_eq!(clock.now().to_string(), "2026-01-01T00:01:30Z");
    }
}
