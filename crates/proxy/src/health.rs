//! Which of several deployments of one model are left alone for a while, because they fail.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// The time in which failures are counted.
const WINDOW: Duration = Duration::from_secs(60);

/// How much failure is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tolerance {
    /// How many failures in a minute.
    pub(crate) fails: u32,
    /// How long a deployment that failed more often is left alone.
    pub(crate) rest: Duration,
}

/// How a deployment has been doing.
#[derive(Debug, Default)]
pub(crate) struct Health(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// When the failures began that are being counted, and how many there are.
    failing: Option<(Instant, u32)>,
    resting: Option<Instant>,
}

/// What a failure says of the deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Severity {
    /// It may work the next time.
    Passing,
    /// It does not work before something has changed: its key is wrong, or it asks to be left alone, perhaps for
    /// that long.
    Lasting(Option<Duration>),
}

impl Health {
    /// Whether it is to be left alone now.
    pub(crate) fn rests(&self) -> bool {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if state.resting.is_some_and(|until| until <= now) {
            *state = State::default();
        }
        state.resting.is_some()
    }

    /// Notes a failure; says whether it is left alone from now on.
    pub(crate) fn failed(&self, severity: Severity, tolerance: Tolerance) -> bool {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let (began, fails) = match state.failing {
            Some((began, fails)) if now - began < WINDOW => (began, fails.saturating_add(1)),
            _ => (now, 1),
        };
        state.failing = Some((began, fails));
        let rest = match severity {
            _ if tolerance.fails == u32::MAX => return false,
            Severity::Lasting(rest) => rest.unwrap_or(tolerance.rest).max(tolerance.rest),
            Severity::Passing if fails > tolerance.fails => tolerance.rest,
            Severity::Passing => return false,
        };
        let begins = state.resting.is_none();
        state.resting = state.resting.max(Some(now + rest));
        begins
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOLERANCE: Tolerance = Tolerance {
        fails: 2,
        rest: Duration::from_secs(5),
    };

    #[tokio::test(start_paused = true)]
    async fn more_failures_than_allowed_in_a_minute_are_a_rest() {
        let health = Health::default();
        let fail = || health.failed(Severity::Passing, TOLERANCE);
        assert!(!fail() && !fail() && !health.rests());
        assert!(fail() && health.rests());
        tokio::time::advance(Duration::from_secs(5)).await;
        assert!(!health.rests());
        // It begins anew, and old failures are forgotten.
        assert!(!fail() && !fail());
        tokio::time::advance(WINDOW).await;
        assert!(!fail() && !health.rests());
    }

    #[tokio::test(start_paused = true)]
    async fn who_asks_to_be_left_alone_is_for_that_long() {
        let health = Health::default();
        assert!(health.failed(Severity::Lasting(Some(Duration::from_secs(30))), TOLERANCE));
        tokio::time::advance(Duration::from_secs(29)).await;
        assert!(health.rests());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(!health.rests());
    }

    #[tokio::test(start_paused = true)]
    async fn without_cooldowns_nobody_rests() {
        let health = Health::default();
        let never = Tolerance {
            fails: u32::MAX,
            ..TOLERANCE
        };
        assert!(!health.failed(Severity::Lasting(None), never) && !health.rests());
    }
}
