//! How much a deployment may be asked for in a minute: its `rpm` (requests) and `tpm` (tokens).
//!
//! A minute begins with its first request, the tokens of an answer count when the upstream has told them, and each
//! proxy counts for itself.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

const MINUTE: Duration = Duration::from_secs(60);

/// What is allowed in a minute, and what has been used of it.
#[derive(Debug, Default)]
pub(crate) struct Allowance {
    requests: Option<u64>,
    tokens: Option<u64>,
    used: Mutex<Used>,
}

#[derive(Debug, Default)]
struct Used {
    /// When the minute began.
    since: Option<Instant>,
    requests: u64,
    tokens: u64,
}

impl Allowance {
    /// Of so many requests and tokens; `None` is without a limit.
    pub(crate) fn new(requests: Option<u64>, tokens: Option<u64>) -> Self {
        Self {
            requests,
            tokens,
            used: Mutex::default(),
        }
    }

    /// Whether its tokens have to be known.
    pub(crate) fn limits_tokens(&self) -> bool {
        self.tokens.is_some()
    }

    /// How long it is used up; `None` where there is something left.
    pub(crate) fn used_up(&self) -> Option<Duration> {
        self.left(|_| {})
    }

    /// Uses one request, where there is something left; else says how long there is not.
    pub(crate) fn take(&self) -> Result<(), Duration> {
        self.left(|used| used.requests = used.requests.saturating_add(1))
            .map_or(Ok(()), Err)
    }

    /// An answer took so many tokens.
    pub(crate) fn spend(&self, tokens: u64) {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        used.tokens = used.tokens.saturating_add(tokens);
    }

    fn left(&self, take: impl FnOnce(&mut Used)) -> Option<Duration> {
        if self.requests.is_none() && self.tokens.is_none() {
            return None;
        }
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let since = match used.since {
            Some(since) if now - since < MINUTE => since,
            _ => {
                *used = Used {
                    since: Some(now),
                    ..Used::default()
                };
                now
            }
        };
        let over = |limit: Option<u64>, used: u64| limit.is_some_and(|limit| used >= limit);
        if over(self.requests, used.requests) || over(self.tokens, used.tokens) {
            return Some(MINUTE - (now - since));
        }
        take(&mut used);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn so_many_requests_are_left_in_a_minute() {
        let allowance = Allowance::new(Some(2), None);
        assert_eq!((allowance.take(), allowance.take()), (Ok(()), Ok(())));
        tokio::time::advance(Duration::from_secs(20)).await;
        assert_eq!(allowance.take(), Err(Duration::from_secs(40)));
        assert_eq!(allowance.used_up(), Some(Duration::from_secs(40)));
        tokio::time::advance(Duration::from_secs(40)).await;
        assert_eq!((allowance.used_up(), allowance.take()), (None, Ok(())));
    }

    #[tokio::test(start_paused = true)]
    async fn tokens_count_once_they_are_known() {
        let allowance = Allowance::new(None, Some(100));
        assert_eq!((allowance.take(), allowance.take()), (Ok(()), Ok(())));
        allowance.spend(99);
        assert_eq!(allowance.take(), Ok(()));
        allowance.spend(1);
        assert_eq!(allowance.take(), Err(MINUTE));
        tokio::time::advance(MINUTE).await;
        assert_eq!(allowance.take(), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn without_limits_nothing_is_used_up() {
        let allowance = Allowance::default();
        allowance.spend(u64::MAX);
        allowance.spend(1);
        assert_eq!((allowance.take(), allowance.used_up()), (Ok(()), None));
    }
}
