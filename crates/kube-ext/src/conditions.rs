//! Conditions: observations with the time of their last change.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kaos_seams::Clock;

/// What was observed, for one condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// Whether it holds; `None` where that cannot be told.
    pub status: Option<bool>,
    /// Why, in one CamelCase word.
    pub reason: String,
    /// Why, for people.
    pub message: String,
}

/// The condition of this type.
pub fn condition<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}

/// Puts what was observed at `generation` into `conditions`. The transition time moves only when the status
/// does, so that an unchanged observation is an unchanged object. It has whole seconds, as the API keeps it.
pub fn set_condition(
    conditions: &mut Vec<Condition>,
    type_: &str,
    observed: Observed,
    generation: Option<i64>,
    clock: &dyn Clock,
) {
    let status = observed
        .status
        .map_or("Unknown", |status| if status { "True" } else { "False" });
    let kept = condition(conditions, type_).filter(|before| before.status == status);
    let last_transition_time = kept.map_or_else(|| now(clock), |before| before.last_transition_time.clone());
    let condition = Condition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: observed.reason,
        message: observed.message,
        observed_generation: generation,
        last_transition_time,
    };
    match conditions.iter_mut().find(|before| before.type_ == type_) {
        Some(before) => *before = condition,
        None => conditions.push(condition),
    }
}

fn now(clock: &dyn Clock) -> Time {
    let now = clock.now();
    Time(Timestamp::from_second(now.as_second()).unwrap_or(now))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use kaos_seams::SimulatedClock;

    use super::*;

    fn ready(status: bool, reason: &str) -> Observed {
        Observed {
            status: Some(status),
            reason: reason.to_owned(),
            message: String::new(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_transition_time_moves_with_the_status_only() {
        let clock = SimulatedClock::default();
        let mut conditions = Vec::new();
        let mut set = |observed, generation| {
            set_condition(&mut conditions, "Ready", observed, Some(generation), &clock);
            assert_eq!(conditions.len(), 1);
            conditions[0].clone()
        };
        let first = set(ready(false, "Starting"), 1);
        assert_eq!(first.last_transition_time.0.to_string(), "2026-01-01T00:00:00Z");
        tokio::time::advance(Duration::from_millis(90_500)).await;
        let second = set(ready(false, "Stuck"), 2);
        assert_eq!(second.last_transition_time, first.last_transition_time);
        assert_eq!(
            (second.reason.as_str(), second.observed_generation),
            ("Stuck", Some(2))
        );
        let third = set(ready(true, "Started"), 2);
        assert_eq!(third.last_transition_time.0.to_string(), "2026-01-01T00:01:30Z");
    }
}
