//! The life of one pod on this node.
//!
//! One loop owns everything: it brings each container as far as it can go, writes the status that follows,
//! and waits for the next thing to happen — a change of the pod or of what it refers to, the end of a
//! process, a finding of a probe or a hook, a deadline, or the end of the node.

mod change;
mod ending;
mod last_words;
mod report;
mod start;

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use super::{
    Assignment, Context,
    phase::Outlook,
    probe::{Finding, Kind},
    role::{RestartPolicy, Role},
    sources::{Sources, has_references},
    state::{Container, Phase},
    status::Terminated,
};
use crate::{events::Type, processes::Exit};

/// How long to wait before something that failed for a passing reason is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// The longest grace period when the node stops: whoever pressed Ctrl-C is waiting.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(10);
/// The grace period of a pod whose object was removed by force.
const GONE_GRACE: Duration = Duration::from_secs(2);
/// The grace period of pods that name none, in seconds.
const DEFAULT_GRACE: i64 = 30;

/// What happens to a pod's containers.
#[derive(Debug)]
pub(crate) enum Message {
    /// The process of a run has ended.
    Ended {
        container: usize,
        run: u64,
        exit: Exit,
        message: Option<String>,
    },
    /// A probe or the `postStart` hook of a run has found something.
    Probed {
        container: usize,
        run: u64,
        finding: Finding,
    },
    /// The `preStop` hook of a run is done.
    Prepared { container: usize, run: u64 },
}

struct Worker {
    context: Arc<Context>,
    assignment: watch::Receiver<Assignment>,
    pod: Arc<Pod>,
    namespace: String,
    name: String,
    uid: String,
    dir: PathBuf,
    /// The init containers, then the main ones, in the order of the spec.
    containers: Vec<Container>,
    sources: Sources,
    /// Why nothing of it may start.
    refusal: Option<String>,
    outlook: Outlook,
    prepared: bool,
    /// The labels and annotations that the files of its volumes were made of.
    shown: Shown,
    retry_at: Option<Instant>,
    runs: u64,
    messages: (mpsc::Sender<Message>, mpsc::Receiver<Message>),
}

/// What of a pod's metadata changes and may stand in files: labels and annotations.
type Shown = [Option<BTreeMap<String, String>>; 2];

fn shown(pod: &Pod) -> Shown {
    [pod.metadata.labels.clone(), pod.metadata.annotations.clone()]
}

enum End {
    Deleted,
    Gone,
    NodeStops,
}

/// Runs a pod until it is deleted or `stop`.
pub(super) async fn run(
    context: Arc<Context>,
    mut assignment: watch::Receiver<Assignment>,
    stop: CancellationToken,
) {
    let pod = assignment.borrow_and_update().pod.clone();
    let worker = Worker::new(context, assignment, pod);
    worker.run(stop).await;
}

impl Worker {
    fn new(context: Arc<Context>, assignment: watch::Receiver<Assignment>, pod: Arc<Pod>) -> Self {
        let uid = pod.uid().unwrap_or_default();
        let dir = context.pods_dir.join(&uid);
        let spec = pod.spec.clone().unwrap_or_default();
        let init = spec
            .init_containers
            .into_iter()
            .flatten()
            .map(|spec| (Role::of_init(&spec), spec));
        let all = init.chain(spec.containers.into_iter().map(|spec| (Role::Main, spec)));
        let containers = all
            .map(|(role, spec)| Container::resume(spec, role, &pod))
            .collect();
        Self {
            namespace: pod.namespace().unwrap_or_default(),
            name: pod.name_any(),
            context,
            assignment,
            pod,
            uid,
            dir,
            containers,
            sources: Sources::default(),
            refusal: None,
            outlook: Outlook::GoesOn,
            prepared: false,
            shown: Shown::default(),
            retry_at: None,
            runs: 0,
            messages: mpsc::channel(64),
        }
    }

    async fn run(mut self, stop: CancellationToken) {
        let end = self.live(&stop).await;
        let grace = match end {
            End::Deleted => self.grace(),
            End::Gone => GONE_GRACE.min(self.grace()),
            End::NodeStops => SHUTDOWN_GRACE.min(self.grace()),
        };
        let deadline = Instant::now() + grace;
        match end {
            End::Deleted => {
                self.outlook = Outlook::Deleted;
                self.drain(grace).await;
            }
            End::NodeStops if !self.is_finished() => self.outlook = Outlook::Interrupted,
            End::NodeStops | End::Gone => {}
        }
        self.terminate(deadline).await;
        match end {
            End::NodeStops => self.publish().await,
            End::Gone => self.forget(),
            End::Deleted => {
                self.publish().await;
                self.confirm_deletion(&stop).await;
                self.forget();
            }
        }
    }

    /// Runs the containers until the pod must end.
    async fn live(&mut self, stop: &CancellationToken) -> End {
        let mut config_maps = self.context.config_maps.changes();
        let mut secrets = self.context.secrets.changes();
        let follows = has_references(&self.pod);
        self.examine();
        loop {
            if self.assignment.borrow().gone {
                return End::Gone;
            }
            if self.pod.metadata.deletion_timestamp.is_some() {
                return End::Deleted;
            }
            if stop.is_cancelled() {
                return End::NodeStops;
            }
            self.retry_at = None;
            self.prepared &= self.shown == shown(&self.pod);
            self.end_overdue();
            if self.is_finished() {
                let grace = self.grace();
                self.stop_next(grace);
            } else {
                match self.refusal.clone() {
                    Some(message) => self.hold(&message),
                    None => self.advance().await,
                }
            }
            self.publish().await;
            let deadline = self.next_deadline();
            let wait = async {
                match deadline {
                    Some(deadline) => sleep_until(deadline).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = stop.cancelled() => {}
                changed = self.assignment.changed() => {
                    if changed.is_err() {
                        return End::NodeStops;
                    }
                    self.pod = self.assignment.borrow_and_update().pod.clone();
                    self.follow_spec();
                }
                Some(message) = self.messages.1.recv() => self.take(message),
                Ok(()) = config_maps.changed(), if follows => self.prepared = false,
                Ok(()) = secrets.changed(), if follows => self.prepared = false,
                () = wait => {}
            }
        }
    }

    /// Whether nothing is to be started any more: what the pod is for is done, or cannot be done. What still
    /// runs then are sidecars.
    fn is_finished(&self) -> bool {
        let policy = RestartPolicy::of(&self.pod);
        let ended = |container: &Container| match &container.phase {
            Phase::Terminated(ended) if !policy.restarts(ended.exit.code, container.role) => {
                Some(ended.exit.code)
            }
            _ => None,
        };
        let of = |role| {
            self.containers
                .iter()
                .filter(move |container| container.role == role)
        };
        of(Role::Init).any(|container| ended(container).is_some_and(|code| code != 0))
            || (of(Role::Main).count() > 0 && of(Role::Main).all(|container| ended(container).is_some()))
    }

    /// How many containers, from the first, may run: those whose init containers are done, and sidecars started.
    fn turn(&self) -> usize {
        let main_began = |container: &Container| container.role == Role::Main && container.began;
        let began = self.containers.iter().any(main_began);
        let holds_back = |container: &Container| match container.role {
            Role::Init => !container.succeeded(),
            // One that is started again later holds back nothing.
            Role::Sidecar => !began && !container.has_started(),
            Role::Main => false,
        };
        let first = self.containers.iter().position(holds_back);
        first.map_or(self.containers.len(), |index| index + 1)
    }

    fn next_deadline(&self) -> Option<Instant> {
        let of = |container: &Container| match &container.phase {
            Phase::Waiting { until, .. } => until.filter(|_| self.prepared),
            Phase::Running(_) => container.ends_at(),
            Phase::Terminated(_) => None,
        };
        // Those of containers whose turn has not come, or never will, do not wake anybody.
        let turn = if self.is_finished() { 0 } else { self.turn() };
        let (current, others) = self.containers.split_at(turn);
        let current = current.iter().filter_map(of);
        let ending = others.iter().filter_map(Container::ends_at);
        current.chain(ending).chain(self.retry_at).min()
    }

    /// Brings every container as far as it can go now.
    async fn advance(&mut self) {
        if !self.prepared && !self.prepare().await {
            return;
        }
        let now = Instant::now();
        let policy = RestartPolicy::of(&self.pod);
        for index in 0..self.containers.len() {
            if index >= self.turn() {
                return;
            }
            if let Phase::Terminated(terminated) = &self.containers[index].phase
                && policy.restarts(terminated.exit.code, self.containers[index].role)
            {
                self.schedule_restart(index, now);
            }
            match &self.containers[index].phase {
                Phase::Waiting {
                    until: Some(until), ..
                } if *until <= now => self.start(index).await,
                _ => {}
            }
        }
    }

    fn take(&mut self, message: Message) {
        let (container, run) = match &message {
            Message::Ended { container, run, .. }
            | Message::Probed { container, run, .. }
            | Message::Prepared { container, run } => (*container, *run),
        };
        if !self.containers[container].is_run(run) {
            return;
        }
        match message {
            Message::Ended { exit, message, .. } => {
                let id = self.container_id(container);
                let reason = if exit.code == 0 { "Completed" } else { "Error" };
                let ended = Terminated {
                    exit,
                    reason: reason.to_owned(),
                    message,
                    container_id: id,
                };
                let container = &mut self.containers[container];
                if container.take_next_image() {
                    container.last = Some(ended);
                    container.wait("ContainerCreating", None, Some(Instant::now()));
                } else {
                    container.phase = Phase::Terminated(ended);
                }
            }
            Message::Probed { finding, .. } => self.probed(container, finding),
            Message::Prepared { .. } => self.containers[container].ask_to_end(),
        }
    }

    fn probed(&mut self, index: usize, finding: Finding) {
        let reference = self.reference(Some(index));
        let events = self.context.events.clone();
        let Phase::Running(running) = &mut self.containers[index].phase else {
            return;
        };
        match finding {
            Finding::Begun => running.begun = true,
            Finding::HookFailed(reason) => {
                let message = format!("PostStartHook failed: {reason}");
                events.report(reference, Type::Warning, "FailedPostStartHook", message);
                self.kill(index, "FailedPostStartHook", self.grace());
            }
            Finding::Started => running.started = true,
            Finding::Ready(ready) => running.ready = ready,
            Finding::Unhealthy(kind, reason) => {
                let message = format!("{} probe failed: {reason}", kind.name());
                events.report(reference, Type::Warning, "Unhealthy", message);
            }
            Finding::Failed(kind) => {
                let spec = &self.containers[index].spec;
                let (name, probe) = match kind {
                    Kind::Startup => ("startup", &spec.startup_probe),
                    Kind::Readiness => ("readiness", &spec.readiness_probe),
                    Kind::Liveness => ("liveness", &spec.liveness_probe),
                };
                let own = probe
                    .as_ref()
                    .and_then(|probe| probe.termination_grace_period_seconds);
                let grace = own.map_or_else(|| self.grace(), seconds);
                self.kill(index, &format!("failed {name} probe"), grace);
            }
        }
    }

    /// Ends a run so that the restart policy decides what comes next, and tells why.
    fn kill(&mut self, index: usize, why: &str, grace: Duration) {
        let name = &self.containers[index].spec.name;
        let message = format!("Container {name} {why}, will be restarted");
        let reference = self.reference(Some(index));
        self.context
            .events
            .report(reference, Type::Normal, "Killing", message);
        self.stop(index, grace);
    }

    fn schedule_restart(&mut self, index: usize, now: Instant) {
        let container = &mut self.containers[index];
        let Phase::Terminated(terminated) = &container.phase else {
            return;
        };
        let ran = terminated
            .exit
            .finished
            .duration_since(terminated.exit.started)
            .unsigned_abs();
        container.last = Some(terminated.clone());
        let wait = container.backoff.after(ran);
        if wait.is_zero() {
            container.wait("ContainerCreating", None, Some(now));
            return;
        }
        let name = &container.spec.name;
        let message = format!(
            "back-off {}s restarting failed container={name} pod={}_{}({})",
            wait.as_secs(),
            self.name,
            self.namespace,
            self.uid
        );
        let event = format!(
            "Back-off restarting failed container {name} in pod {}_{}({})",
            self.name, self.namespace, self.uid
        );
        container.wait("CrashLoopBackOff", Some(message), Some(now + wait));
        self.context
            .events
            .report(self.reference(Some(index)), Type::Warning, "BackOff", event);
    }

    fn grace(&self) -> Duration {
        let asked = self.pod.metadata.deletion_grace_period_seconds;
        let own = self
            .pod
            .spec
            .as_ref()
            .and_then(|spec| spec.termination_grace_period_seconds);
        seconds(asked.or(own).unwrap_or(DEFAULT_GRACE))
    }
}

/// A time of the API, which may be less than none.
fn seconds(count: i64) -> Duration {
    Duration::from_secs(u64::try_from(count).unwrap_or(0))
}
