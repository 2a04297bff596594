//! Counting the pods that have ended, each exactly once, and with the last of them the end of the Job.
//!
//! In this order, so that a crash between any two steps changes nothing: the status names the pods that have ended;
//! they lose their finalizer; those of the named ones that have none any more are added to the counts and named no
//! longer.

use std::collections::HashSet;

use k8s_openapi::api::{batch::v1::UncountedTerminatedPods, core::v1::Pod};
use kube::ResourceExt as _;

use super::{
    Pass,
    condition::{End, Outcome},
    second,
    tally::{is_failed, phase},
    tracking::{is_tracked, untrack},
};
use crate::events::{Type, reference};

/// The most pods that the status names at a time.
const MOST_NAMED: usize = 500;

impl Pass<'_> {
    pub(super) async fn settle(mut self, end: Option<End>) -> Result<(), kube::Error> {
        self.count_named();
        let named = self.name_ended(end.as_ref());
        if let Some(End {
            outcome,
            reason,
            message,
        }) = &end
        {
            self.set(outcome.interim(), "True", reason, message);
        }
        self.write().await?;
        for pod in named {
            untrack(&self.pods, &pod).await?;
            self.own.retain(|own| own.uid() != pod.uid());
        }
        self.count_named();
        let waits = self.status.terminating.is_some_and(|count| count > 0) || !self.uncounted().is_empty();
        let end = end.filter(|_| !waits);
        if let Some(end) = &end {
            self.finish(end);
        }
        self.write().await?;
        if let Some(end) = &end {
            self.tell_end(end);
        }
        Ok(())
    }

    fn uncounted(&self) -> Vec<&String> {
        let named = self.status.uncounted_terminated_pods.iter();
        let lists = named.flat_map(|named| [&named.succeeded, &named.failed]);
        lists.flatten().flatten().collect()
    }

    /// Adds the named pods that have no finalizer any more to the counts.
    fn count_named(&mut self) {
        let tracked: HashSet<String> = self
            .own
            .iter()
            .filter(|pod| is_tracked(pod))
            .filter_map(|pod| pod.uid())
            .collect();
        let status = &mut self.status;
        let named = status.uncounted_terminated_pods.get_or_insert_default();
        for (list, counter) in [
            (&mut named.succeeded, &mut status.succeeded),
            (&mut named.failed, &mut status.failed),
        ] {
            let before = list.take().unwrap_or_default();
            let (left, counted): (Vec<String>, Vec<String>) =
                before.into_iter().partition(|uid| tracked.contains(uid));
            let counted = i32::try_from(counted.len()).unwrap_or(i32::MAX);
            if counted > 0 {
                *counter = Some(counter.unwrap_or(0).saturating_add(counted));
            }
            *list = (!left.is_empty()).then_some(left);
        }
    }

    /// Names the pods that have ended, and returns those that may lose their finalizer. Once the Job has failed,
    /// so has every pod that had not succeeded.
    fn name_ended(&mut self, end: Option<&End>) -> Vec<Pod> {
        let leaving = self.is_leaving();
        let job_failed = end.is_some_and(|end| end.outcome == Outcome::Failed);
        let UncountedTerminatedPods { succeeded, failed } =
            self.status.uncounted_terminated_pods.get_or_insert_default();
        let mut freed = Vec::new();
        for pod in self.own.iter().filter(|pod| is_tracked(pod)) {
            let named = succeeded.iter().flatten().chain(failed.iter().flatten());
            if named.count() >= MOST_NAMED {
                break;
            }
            let uid = pod.uid().unwrap_or_default();
            let has = |list: &Option<Vec<String>>| list.as_ref().is_some_and(|list| list.contains(&uid));
            let has_failed = is_failed(pod, &self.spec);
            let has_succeeded = phase(pod) == "Succeeded" && !has(failed);
            if !(leaving || end.is_some() || has_succeeded || has_failed || has(failed)) {
                continue;
            }
            freed.push(pod.clone());
            let list = if has_succeeded {
                &mut *succeeded
            } else if has_failed || job_failed {
                &mut *failed
            } else {
                continue;
            };
            if !has(list) {
                list.get_or_insert_default().push(uid);
            }
        }
        freed
    }

    /// Sets the last condition.
    fn finish(&mut self, end: &End) {
        self.set(end.outcome.terminal(), "True", &end.reason, &end.message);
        if end.outcome == Outcome::Complete {
            self.status.completion_time = Some(second(self.now));
        }
    }

    fn tell_end(&self, end: &End) {
        let events = &self.context.events;
        let object = || reference(&self.job);
        if end.outcome == Outcome::Failed {
            let reason = match end.reason.as_str() {
                "BackoffLimitExceeded" => "BackoffLimitExceeded",
                "DeadlineExceeded" => "DeadlineExceeded",
                _ => "Unsupported",
            };
            events.report(object(), Type::Warning, reason, end.message.clone());
            return;
        }
        let completions = self.spec.completions.unwrap_or(i32::MAX);
        if self.status.succeeded.is_some_and(|count| count > completions) {
            let message = "Too many succeeded pods running after completion count reached";
            events.report(object(), Type::Warning, "TooManySucceededPods", message);
        }
        events.report(object(), Type::Normal, "Completed", "Job completed");
    }
}
