//! How long a container that ended waits before it is started again.

use std::time::Duration;

/// The first wait. Ten times shorter than the kubelet's: on one machine there is nobody else to spare.
const FIRST: Duration = Duration::from_secs(1);
/// The longest wait, the kubelet's.
const LONGEST: Duration = Duration::from_secs(300);
/// After so long a run, the next end counts as the first again, as with the kubelet.
const FORGIVEN_AFTER: Duration = Duration::from_secs(600);

/// The waits of one container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Backoff {
    next: Option<Duration>,
}

impl Backoff {
    /// The wait after a run that took `ran`: none at first, then doubling.
    pub(crate) fn after(&mut self, ran: Duration) -> Duration {
        if ran >= FORGIVEN_AFTER {
            self.next = None;
        }
        let wait = self.next.unwrap_or_default();
        self.next = Some(if wait.is_zero() {
            FIRST
        } else {
            (wait * 2).min(LONGEST)
        });
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_five_minutes_and_a_long_run_forgives() {
        let mut backoff = Backoff::default();
        let waits: Vec<u64> = (0..12).map(|_| backoff.after(Duration::ZERO).as_secs()).collect();
        assert_eq!(waits, [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
        assert_eq!(backoff.after(FORGIVEN_AFTER), Duration::ZERO);
        assert_eq!(backoff.after(Duration::ZERO), FIRST);
    }
}
