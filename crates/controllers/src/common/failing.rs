//! Resources whose passes fail for a while for no fault of their users: what is said of them when that lasts.
//!
//! A failure that passes is no news, so a pass that ends with one leaves the status as it is. One that does not pass
//! would then never be told: the status would tell of a generation long gone, and nobody would know why.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kaos_kube_ext::{Observed, condition};
use kaos_seams::Clock;
use kube::{Resource, runtime::reflector::ObjectRef};
use tokio::time::Instant;

use super::{failure::Failure, status::RECONCILING};

/// How long passes over a resource fail, one after the other, until it is told.
const PATIENCE: Duration = Duration::from_secs(60);

/// The reason of a resource of which something cannot be written.
pub(crate) const NOT_APPLIED: &str = "NotApplied";

/// Since when the passes over resources of a kind have failed.
#[derive(Debug)]
pub(crate) struct Failing<K: Resource<DynamicType = ()> + 'static> {
    since: Mutex<HashMap<ObjectRef<K>, Since>>,
}

#[derive(Clone, Copy, Debug)]
struct Since {
    /// To count from.
    instant: Instant,
    /// To tell.
    time: Timestamp,
}

impl<K: Resource<DynamicType = ()> + 'static> Default for Failing<K> {
    fn default() -> Self {
        Self {
            since: Mutex::default(),
        }
    }
}

impl<K: Resource<DynamicType = ()> + 'static> Failing<K> {
    /// To be told of every pass over `resource` that failed so. What is to be said of it now, as the condition
    /// `Reconciling`, if it has lasted long enough; `before` are the conditions of the last status, of which one
    /// that says the same stays word for word.
    pub(crate) fn failed(
        &self,
        resource: &K,
        failure: &Failure,
        before: &[Condition],
        clock: &dyn Clock,
    ) -> Option<Observed> {
        let now = || Since {
            instant: Instant::now(),
            time: clock.now(),
        };
        let since = *self
            .since()
            .entry(ObjectRef::from_obj(resource))
            .or_insert_with(now);
        let told = condition(before, RECONCILING).filter(|told| told.reason == NOT_APPLIED);
        let (what, answer) = failure.what_and_answer();
        let message = match told {
            // Only the answer may be another, which differs in numbers of no meaning, or from try to try.
            Some(told) if told.message.starts_with(&what) => told.message.clone(),
            // Told before this process began, or of something else.
            Some(_) => message(&what, &answer, since),
            None if since.instant.elapsed() >= PATIENCE => message(&what, &answer, since),
            None => return None,
        };
        Some(Observed {
            status: Some(true),
            reason: NOT_APPLIED.to_owned(),
            message,
        })
    }

    /// To be told of every other pass over `resource`, and when it is gone.
    pub(crate) fn is_over(&self, resource: &K) {
        self.since().remove(&ObjectRef::from_obj(resource));
    }

    fn since(&self) -> MutexGuard<'_, HashMap<ObjectRef<K>, Since>> {
        self.since.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn message(what: &str, answer: &str, since: Since) -> String {
    let time = Timestamp::from_second(since.time.as_second()).unwrap_or(since.time);
    format!("{what}: {answer}; so since {time}, and tried again until it succeeds")
}

#[cfg(test)]
mod tests {
    use kaos_api::v1alpha1::Agent;
    use kaos_kube_ext::{ApplyError, Operation, PruneError, set_condition};
    use kaos_seams::SimulatedClock;
    use kube::core::Status;
    use tokio::time::advance;

    use super::*;
    use crate::common::testing::stored;

    fn unavailable(answer: &str) -> kube::Error {
        kube::Error::Api(Box::new(
            Status::failure(answer, "ServiceUnavailable").with_code(503),
        ))
    }

    fn update(answer: &str) -> Failure {
        Failure::Apply(ApplyError::Api {
            kind: "Deployment".to_owned(),
            name: "agent-sam".to_owned(),
            operation: Operation::Update,
            source: unavailable(answer),
        })
    }

    #[tokio::test(start_paused = true)]
    async fn what_lasts_a_minute_is_told_and_told_once() {
        let (failing, clock) = (Failing::default(), SimulatedClock::default());
        let agent: Agent = stored("sam", "modelAPI: models");
        let told = |failure: &Failure, before: &[Condition]| {
            let observed = failing.failed(&agent, failure, before, &clock)?;
            assert_eq!(
                (observed.status, observed.reason.as_str()),
                (Some(true), NOT_APPLIED)
            );
            Some(observed.message)
        };
        assert_eq!(told(&update("down"), &[]), None);
        advance(Duration::from_secs(59)).await;
        assert_eq!(told(&update("down"), &[]), None);
        advance(Duration::from_secs(1)).await;
        let first = "Deployment agent-sam cannot be updated: down; so since 2026-01-01T00:00:00Z, and tried again \
                     until it succeeds";
        assert_eq!(told(&update("down"), &[]).as_deref(), Some(first));

        let mut before = Vec::new();
        let observed = failing.failed(&agent, &update("down"), &[], &clock).unwrap();
        set_condition(&mut before, RECONCILING, observed, Some(1), &clock);
        advance(Duration::from_secs(100)).await;
        assert_eq!(told(&update("down, request 7"), &before).as_deref(), Some(first));
        // Another process goes on with what was said, and begins to count for what was not.
        failing.is_over(&agent);
        assert_eq!(told(&update("down"), &before).as_deref(), Some(first));
        let other = Failure::Delete(PruneError {
            kind: "Service".to_owned(),
            name: "agent-sam".to_owned(),
            source: unavailable(""),
        });
        assert_eq!(
            told(&other, &before).as_deref(),
            Some(
                "Service agent-sam cannot be deleted: the API server answers 503 ServiceUnavailable; so since \
                 2026-01-01T00:02:40Z, and tried again until it succeeds"
            )
        );
        failing.is_over(&agent);
        assert_eq!(told(&other, &[]), None);
    }
}
