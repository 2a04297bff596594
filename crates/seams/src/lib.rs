//! What a process takes from the world around it, handed in as values: the wall clock, randomness, and
//! where a named service is reached.
//!
//! Every crate of the project that needs one of the three takes it from a [`Seams`] and never from
//! `SystemTime::now`, a global generator or a hard-wired resolver. So a test holds time still, a run is
//! replayed from a seed, and the same controller reaches a Service by DNS on a cluster and by the local
//! node's table on a laptop.
//!
//! Waiting is not here: sleeps and deadlines use `tokio::time`, which tests pause and advance. The
//! [`SimulatedClock`] follows that same time, so that both move together.

mod clock;
mod dialer;
mod random;

use std::sync::Arc;

pub use clock::{Clock, SimulatedClock, SystemClock};
pub use dialer::{Dialer, FixedDialer, SystemDialer};
pub use random::{Random, SeededRandom, SystemRandom};

/// The three seams together, as most constructors take them. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Seams {
    /// The wall clock.
    pub clock: Arc<dyn Clock>,
    /// The source of randomness.
    pub random: Arc<dyn Random>,
    /// Where named services are reached.
    pub dialer: Arc<dyn Dialer>,
}

impl Seams {
    /// The real world: the system's clock and randomness, names resolved by DNS.
    pub fn system() -> Self {
        Self {
            clock: Arc::new(SystemClock),
            random: Arc::new(SystemRandom),
            dialer: Arc::new(SystemDialer),
        }
    }

    /// A world that replays: time as tokio's (pausable) time from a fixed start, randomness from `seed`.
    pub fn simulated(seed: u64) -> Self {
        Self {
            clock: Arc::new(SimulatedClock::default()),
            random: Arc::new(SeededRandom::new(seed)),
            dialer: Arc::new(SystemDialer),
        }
    }

    /// The same clock and randomness with another dialer.
    #[must_use]
    pub fn with_dialer(mut self, dialer: Arc<dyn Dialer>) -> Self {
        self.dialer = dialer;
        self
    }
}
