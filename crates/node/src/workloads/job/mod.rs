//! Jobs: pods that run until enough of them have succeeded or too many have failed, by the rules of Kubernetes' job
//! controller.
//!
//! What became of a pod is counted once, though the controller may end at any point: each pod carries a finalizer
//! that is taken off only after the Job's status names the pod as ended, and it is counted for good once it has no
//! finalizer any more ([`settle`]). A pod whose Job is gone or done loses its finalizer in [`tracking`].

mod condition;
mod manage;
mod settle;
mod supported;
mod tally;
mod tracking;

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::{
    api::{
        batch::v1::{Job, JobSpec, JobStatus},
        core::v1::Pod,
    },
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, ListParams, PostParams, Preconditions},
};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio_util::sync::CancellationToken;

use super::{
    Context, each, owner_key,
    ownership::{claim, controller, is_active, selector},
    pods::ready_since,
    queue::{self, Queue},
    same_namespace,
};
use crate::watch::{Cache, Change, Key, follow, key};
use condition::{End, finished};
use tally::{Tally, is_terminating};
use tracking::is_tracked;

/// The Job controller that Jobs mean which name no other one.
const CONTROLLER: &str = "kubernetes.io/job-controller";

/// The Jobs and pods to look at.
#[derive(Clone)]
pub(super) struct Jobs {
    queue: Queue,
    tracked: Queue,
    known: Arc<Cache<Job>>,
    pods: Arc<Cache<Pod>>,
}

/// What is behind [`Jobs`].
pub(super) struct Keys {
    jobs: UnboundedReceiver<Key>,
    tracked: UnboundedReceiver<Key>,
}

impl Jobs {
    /// `pods` are the pods that are there.
    pub(super) fn new(pods: Arc<Cache<Pod>>) -> (Self, Keys) {
        let (queue, jobs) = Queue::new();
        let (tracked_queue, tracked) = Queue::new();
        let known = Arc::default();
        let this = Self {
            queue,
            tracked: tracked_queue,
            known,
            pods,
        };
        (this, Keys { jobs, tracked })
    }

    /// Takes in a change of any pod.
    pub(super) fn pod_changed(&self, change: &Change<Pod>) {
        each(change, |pod| match owner_key::<_, Job>(pod) {
            Some(owner) => self.queue.add(owner),
            None if controller(&pod.metadata).is_none() => {
                same_namespace(&self.known, pod).for_each(|key| self.queue.add(key));
            }
            None => {}
        });
        let Some(pod) = change.new.as_deref().filter(|pod| is_tracked(pod)) else {
            return;
        };
        let counted = owner_key::<_, Job>(pod)
            .and_then(|owner| self.known.get(&owner.0, &owner.1))
            .is_some_and(|job| finished(&job).is_none());
        if !counted {
            self.tracked.add(key(pod));
        }
    }

    fn job_changed(&self, change: &Change<Job>) {
        each(change, |job| self.queue.add(key(job)));
        let Some(job) = change.new.as_ref().or(change.old.as_ref()) else {
            return;
        };
        if change.new.is_some() && finished(job).is_none() {
            return;
        }
        for pod in self.pods.all().iter().filter(|pod| is_tracked(pod)) {
            if controller(&pod.metadata).is_some_and(|owner| Some(&owner.uid) == job.metadata.uid.as_ref()) {
                self.tracked.add(key(&**pod));
            }
        }
    }

    /// Watches Jobs and runs their controller until `stop`.
    pub(super) async fn run(self, keys: Keys, context: Context, stop: CancellationToken) {
        let (jobs, seams) = (Api::all(context.client.clone()), context.seams.clone());
        let known = self.known.clone();
        let watch = follow(jobs, known, stop.clone(), move |change| {
            self.job_changed(&change);
        });
        let reconcile_jobs = {
            let context = context.clone();
            queue::run(keys.jobs, seams.clone(), stop.clone(), move |key| {
                let context = context.clone();
                async move { reconcile(&context, &key).await }
            })
        };
        let release = queue::run(keys.tracked, seams, stop, move |key| {
            let context = context.clone();
            async move { tracking::release(&context, &key).await }
        });
        tokio::join!(watch, reconcile_jobs, release);
    }
}

/// Brings one Job a step further and its status up to date.
async fn reconcile(context: &Context, key: &Key) -> Result<Option<Duration>, kube::Error> {
    let jobs: Api<Job> = Api::namespaced(context.client.clone(), &key.0);
    let Some(job) = jobs.get_opt(&key.1).await? else {
        return Ok(None);
    };
    let now = context.seams.clock.now();
    let Some(spec) = job.spec.clone().filter(is_ours) else {
        return Ok(None);
    };
    if let Some(since) = finished(&job) {
        return clean_up(&jobs, &job, &spec, since, now).await;
    }
    let Some(selector) = spec.selector.as_ref().and_then(selector) else {
        return Ok(None);
    };
    let pods: Api<Pod> = Api::namespaced(context.client.clone(), &key.0);
    let listed = pods.list(&ListParams::default()).await?.items;
    let listed = tracking::adopt(&pods, listed, &job, &selector).await?;
    let own = claim(&pods, listed, &job, &selector).await?;
    let status = job.status.clone().unwrap_or_default();
    let pass = Pass {
        context,
        jobs,
        pods,
        job,
        spec,
        status,
        own,
        now,
    };
    match pass.run().await {
        Err(kube::Error::Api(answer)) if answer.is_not_found() => Ok(None),
        result => result,
    }
}

/// Whether this controller shall run the Job.
fn is_ours(spec: &JobSpec) -> bool {
    spec.managed_by
        .as_deref()
        .is_none_or(|manager| manager == CONTROLLER)
}

/// Deletes a Job that was finished for as long as it says; how long until then.
async fn clean_up(
    jobs: &Api<Job>,
    job: &Job,
    spec: &JobSpec,
    since: Timestamp,
    now: Timestamp,
) -> Result<Option<Duration>, kube::Error> {
    let Some(ttl) = spec
        .ttl_seconds_after_finished
        .filter(|_| job.metadata.deletion_timestamp.is_none())
    else {
        return Ok(None);
    };
    let left = left(since, i64::from(ttl), now);
    if !left.is_zero() {
        return Ok(Some(left));
    }
    let params = DeleteParams {
        preconditions: Some(Preconditions {
            uid: job.uid(),
            resource_version: job.resource_version(),
        }),
        ..DeleteParams::foreground()
    };
    match jobs.delete(&job.name_any(), &params).await {
        Err(kube::Error::Api(answer)) if answer.is_not_found() => Ok(None),
        deleted => deleted.map(|_| None),
    }
}

/// What is left of so many seconds since a time.
fn left(since: Timestamp, seconds: i64, now: Timestamp) -> Duration {
    let passed = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    Duration::from_secs(u64::try_from(seconds).unwrap_or(0)).saturating_sub(passed)
}

/// Kubernetes keeps times to the second.
fn second(now: Timestamp) -> Time {
    Time(Timestamp::from_second(now.as_second()).unwrap_or(now))
}

fn count<'a>(pods: impl Iterator<Item = &'a Pod>) -> i32 {
    i32::try_from(pods.count()).unwrap_or(i32::MAX)
}

/// One pass over one Job.
struct Pass<'a> {
    context: &'a Context,
    jobs: Api<Job>,
    pods: Api<Pod>,
    /// As the API has it.
    job: Job,
    spec: JobSpec,
    /// As it will be written.
    status: JobStatus,
    /// The pods that it controls, as last seen.
    own: Vec<Pod>,
    now: Timestamp,
}

impl Pass<'_> {
    fn is_suspended(&self) -> bool {
        self.spec.suspend == Some(true)
    }

    fn is_leaving(&self) -> bool {
        self.job.metadata.deletion_timestamp.is_some()
    }

    async fn run(mut self) -> Result<Option<Duration>, kube::Error> {
        let tally = Tally::of(&self.spec, &self.status, &self.own);
        let mut end = self.known_end().or_else(|| self.failure(&tally));
        if self.status.start_time.is_none() && (!self.is_suspended() || end.is_some()) {
            self.status.start_time = Some(second(self.now));
        }
        let mut managed = Ok(None);
        if end.is_some() {
            managed = self.delete_active().await.map(|()| None);
        } else {
            if !self.is_leaving() {
                managed = self.manage(&tally).await;
            }
            let active = count(self.active());
            let enough = match self.spec.completions {
                // A work queue is done when one of its pods has said so, and the others have ended.
                None => tally.succeeded > 0,
                Some(completions) => tally.succeeded >= completions,
            };
            if enough && active == 0 {
                end = Some(End::completed());
            } else if !self.is_leaving() {
                self.tell_suspension();
            }
        }
        let active = || self.active();
        let ready = count(active().filter(|pod| ready_since(pod).is_some()));
        let running = count(active());
        let terminating = count(self.own.iter().filter(|pod| is_terminating(pod)));
        self.status.active = Some(running).filter(|count| *count != 0);
        self.status.ready = Some(ready);
        self.status.terminating = Some(terminating);
        let until_deadline = self.deadline().filter(|_| end.is_none());
        // Where not every pod could be deleted, the Job is not over yet.
        let end = end.filter(|_| managed.is_ok());
        self.settle(end).await?;
        let again = managed?.into_iter().chain(until_deadline).min();
        Ok(again)
    }

    fn active(&self) -> impl Iterator<Item = &Pod> {
        self.own.iter().filter(|pod| is_active(pod))
    }

    /// How long until the Job has run for longer than it may.
    fn deadline(&self) -> Option<Duration> {
        let seconds = self.spec.active_deadline_seconds?;
        let started = self.status.start_time.as_ref()?;
        (!self.is_suspended()).then(|| left(started.0, seconds, self.now))
    }

    /// Why the Job has failed, if it has.
    fn failure(&self, tally: &Tally) -> Option<End> {
        if let Some(message) = supported::refusal(&self.spec) {
            return Some(End::failed("Unsupported", &message));
        }
        if tally.exceeds(&self.spec) {
            let message = "Job has reached the specified backoff limit";
            return Some(End::failed("BackoffLimitExceeded", message));
        }
        let overdue = self.deadline().is_some_and(|left| left.is_zero());
        overdue.then(|| {
            let message = "Job was active longer than specified deadline";
            End::failed("DeadlineExceeded", message)
        })
    }

    /// Writes the status where it differs from what the API has.
    async fn write(&mut self) -> Result<(), kube::Error> {
        if self.job.status.as_ref() == Some(&self.status) {
            return Ok(());
        }
        let mut written = self.job.clone();
        written.status = Some(self.status.clone());
        self.job = self
            .jobs
            .replace_status(&self.job.name_any(), &PostParams::default(), &written)
            .await?;
        Ok(())
    }
}
