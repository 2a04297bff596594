//! As many pods as the Job wants now.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;

use super::{
    Pass, count,
    tally::{Tally, is_terminating, pause, replaces_ended_only},
    tracking::{FINALIZER, untrack},
};
use crate::workloads::{
    ownership::is_active,
    pods::{self, of_template, worth},
};

/// The most pods that one pass makes.
const MOST_AT_ONCE: usize = 500;

impl Pass<'_> {
    /// Makes or deletes pods; when to look again.
    pub(super) async fn manage(&mut self, tally: &Tally) -> Result<Option<Duration>, kube::Error> {
        let active = count(self.active());
        let wanted = if self.is_suspended() {
            0
        } else {
            self.wanted(tally, active)
        };
        if active > wanted {
            self.delete_surplus(usize::try_from(active - wanted).unwrap_or(0))
                .await?;
            return Ok(None);
        }
        let in_the_way = if replaces_ended_only(&self.spec) {
            count(self.own.iter().filter(|pod| is_terminating(pod)))
        } else {
            0
        };
        let missing = usize::try_from(wanted - active - in_the_way).unwrap_or(0);
        if missing == 0 {
            return Ok(None);
        }
        let pause = pause(&self.own, &self.spec, self.now);
        if !pause.is_zero() {
            return Ok(Some(pause));
        }
        for _ in 0..missing.min(MOST_AT_ONCE) {
            let Some(mut pod) = of_template(&self.job, &self.spec.template) else {
                return Ok(None);
            };
            let finalizers = pod.metadata.finalizers.get_or_insert_default();
            if !finalizers.iter().any(|name| name == FINALIZER) {
                finalizers.push(FINALIZER.to_owned());
            }
            let pod = pods::create(self.context, &self.pods, &self.job, &pod).await?;
            self.own.push(pod);
        }
        Ok((missing > MOST_AT_ONCE).then_some(Duration::ZERO))
    }

    /// How many pods should be at work.
    fn wanted(&self, tally: &Tally, active: i32) -> i32 {
        let parallelism = self.spec.parallelism.unwrap_or(1);
        match self.spec.completions {
            // Once a pod of a work queue has succeeded, the others finish what they do.
            None if tally.succeeded > 0 => active,
            None => parallelism,
            Some(completions) => (completions - tally.succeeded).clamp(0, parallelism),
        }
    }

    /// Deletes pods that did nothing wrong: they lose their finalizer first, so that they do not count as failed.
    async fn delete_surplus(&mut self, surplus: usize) -> Result<(), kube::Error> {
        let mut victims: Vec<Pod> = self.active().cloned().collect();
        victims.sort_by_cached_key(worth);
        victims.truncate(surplus);
        for victim in victims {
            let Some(victim) = untrack(&self.pods, &victim).await? else {
                self.look_again(&victim).await?;
                continue;
            };
            pods::delete(self.context, &self.pods, &self.job, &victim).await?;
            self.look_again(&victim).await?;
        }
        Ok(())
    }

    /// Deletes the pods that go on though the Job is over. They keep their finalizer until they are counted.
    pub(super) async fn delete_active(&mut self) -> Result<(), kube::Error> {
        let active: Vec<Pod> = self.own.iter().filter(|pod| is_active(pod)).cloned().collect();
        for pod in active {
            pods::delete(self.context, &self.pods, &self.job, &pod).await?;
            self.look_again(&pod).await?;
        }
        Ok(())
    }

    /// Keeps `own` like what is there after one of the pods was deleted.
    async fn look_again(&mut self, pod: &Pod) -> Result<(), kube::Error> {
        let now = self
            .pods
            .get_opt(&pod.name_any())
            .await?
            .filter(|now| now.uid() == pod.uid());
        let Some(place) = self.own.iter().position(|own| own.uid() == pod.uid()) else {
            return Ok(());
        };
        match now {
            Some(now) => self.own[place] = now,
            None => drop(self.own.remove(place)),
        }
        Ok(())
    }
}
