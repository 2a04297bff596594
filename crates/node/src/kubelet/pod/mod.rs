//! The life of one pod on this node.
//!
//! One loop owns everything: it brings each container as far as it can go, writes the status that follows,
//! and waits for the next thing to happen — a change of the pod or of what it refers to, the end of a
//! process, a finding of a probe, a deadline, or the end of the node.

mod change;
mod last_words;
mod report;

use std::{path::PathBuf, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use self::last_words::LastWords;
use super::{
    Assignment, Context,
    container::{Plan, Refused, declared_ports},
    probe::{Finding, Kind, Probes},
    sources::{Sources, has_references},
    state::{Container, Phase, Running},
    status::{self, RestartPolicy, Terminated},
    volumes::materialise,
};
use crate::{events::Type, files::create_private_dir, processes::Exit};

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
    /// A probe of a run has found something.
    Probed {
        container: usize,
        run: u64,
        finding: Finding,
    },
}

struct Worker {
    context: Arc<Context>,
    assignment: watch::Receiver<Assignment>,
    pod: Arc<Pod>,
    namespace: String,
    name: String,
    uid: String,
    dir: PathBuf,
    containers: Vec<Container>,
    sources: Sources,
    /// Why nothing of it may start.
    refusal: Option<String>,
    prepared: bool,
    retry_at: Option<Instant>,
    runs: u64,
    messages: (mpsc::Sender<Message>, mpsc::Receiver<Message>),
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
            .map(|spec| (spec, true));
        let all = init.chain(spec.containers.into_iter().map(|spec| (spec, false)));
        let containers = all
            .map(|(spec, is_init)| Container::resume(spec, is_init, &pod))
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
            prepared: false,
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
        self.terminate(grace).await;
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
            self.kill_overdue();
            if !self.is_over() {
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

    /// Whether nothing will run any more.
    fn is_over(&self) -> bool {
        let views = self.views();
        let status = status::status(&self.pod, &views.0, &views.1, self.context.seams.clock.now());
        matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"))
    }

    fn next_deadline(&self) -> Option<Instant> {
        let of = |container: &Container| match &container.phase {
            Phase::Waiting { until, .. } => until.filter(|_| self.prepared),
            Phase::Running(running) => running.kill_at,
            Phase::Terminated(_) => None,
        };
        // Those of containers whose turn has not come do not wake anybody.
        let waiting_for_init = self.containers.iter().any(|c| c.is_init && !c.succeeded());
        let current = self.containers.iter().filter(|c| c.is_init || !waiting_for_init);
        current.filter_map(of).chain(self.retry_at).min()
    }

    /// Brings every container as far as it can go now.
    async fn advance(&mut self) {
        if !self.prepared && !self.prepare().await {
            return;
        }
        let now = Instant::now();
        let policy = RestartPolicy::of(&self.pod);
        for index in 0..self.containers.len() {
            if !self.containers[index].is_init && self.containers.iter().any(|c| c.is_init && !c.succeeded())
            {
                return;
            }
            if let Phase::Terminated(terminated) = &self.containers[index].phase
                && policy.restarts(terminated.exit.code, self.containers[index].is_init)
            {
                self.schedule_restart(index, now);
            }
            match &self.containers[index].phase {
                Phase::Waiting {
                    until: Some(until), ..
                } if *until <= now => self.start(index).await,
                _ => {}
            }
            if self.containers[index].is_init && !self.containers[index].succeeded() {
                return;
            }
        }
    }

    /// Reads what the pod refers to and makes its volumes so. Returns whether containers may start.
    async fn prepare(&mut self) -> bool {
        match Sources::read(&self.context.client, &self.namespace, &self.pod).await {
            Ok(sources) => self.sources = sources,
            Err(error) => {
                tracing::warn!(pod = %self.name, %error, "what a pod refers to cannot be read; trying again");
                self.retry_at = Some(Instant::now() + RETRY);
                return false;
            }
        }
        let services = &self.context.services;
        let made = ["tmp", "work", "volumes"]
            .iter()
            .try_for_each(|folder| create_private_dir(&self.dir.join(folder)))
            .map_err(|error| error.to_string())
            .and_then(|()| {
                materialise(&self.pod, &self.sources, &self.volumes(), |text| {
                    services.rewrite(text)
                })
                .map_err(|error| error.0)
            });
        if let Err(message) = made {
            self.context.events.report(
                self.reference(None),
                Type::Warning,
                "FailedMount",
                message.clone(),
            );
            for container in &mut self.containers {
                if matches!(container.phase, Phase::Waiting { .. }) {
                    container.wait("ContainerCreating", Some(message.clone()), Some(Instant::now()));
                }
            }
            // Containers that run go on with the files they have.
            self.retry_at = Some(Instant::now() + RETRY);
            return false;
        }
        self.prepared = true;
        // What was missing may be there now.
        for container in &mut self.containers {
            if let Phase::Waiting { reason, until, .. } = &mut container.phase
                && reason == "CreateContainerConfigError"
            {
                *until = Some(Instant::now());
            }
        }
        true
    }

    fn volumes(&self) -> PathBuf {
        self.dir.join("volumes")
    }

    async fn start(&mut self, index: usize) {
        match self.try_start(index).await {
            Ok(()) => {}
            Err(Refused { reason, message }) => {
                let event = if reason == "ErrImageNeverPull" {
                    reason
                } else {
                    "Failed"
                };
                let reference = self.reference(Some(index));
                let text = if event == "Failed" {
                    format!("Error: {message}")
                } else {
                    message.clone()
                };
                self.context.events.report(reference, Type::Warning, event, text);
                // An image is mapped when the node starts; everything else may come right at any time.
                let until = (reason != "ErrImageNeverPull").then(|| Instant::now() + RETRY);
                self.containers[index].wait(reason, Some(message), until);
            }
        }
    }

    async fn try_start(&mut self, index: usize) -> Result<(), Refused> {
        let context = self.context.clone();
        let spec = self.containers[index].spec.clone();
        let failed = |message: String| Refused {
            reason: "CreateContainerError",
            message,
        };
        let plan = Plan::new(&context.images, &spec, &self.pod, &self.sources, &self.volumes())?;
        let ports = context
            .ports
            .assign(&self.uid, &spec.name, &declared_ports(&spec))
            .map_err(|error| failed(format!("no free port on 127.0.0.1: {error}")))?;
        let probes = Probes::of(&spec, &ports).map_err(|message| Refused {
            reason: "CreateContainerConfigError",
            message,
        })?;
        let restarts = self.containers[index].restarts + u32::from(self.containers[index].has_run);
        let log = context
            .logs
            .create((&self.namespace, &self.name, &self.uid), &spec.name, restarts)
            .map_err(|error| failed(format!("the log cannot be opened: {error}")))?;
        let process = plan.process(&context, &self.pod, &ports, &self.dir, log)?;
        let reference = self.reference(Some(index));
        context.events.report(
            reference.clone(),
            Type::Normal,
            "Created",
            format!("Created container: {}", spec.name),
        );
        let process = context.spawner.spawn(process).await.map_err(|error| Refused {
            reason: "RunContainerError",
            message: error.to_string(),
        })?;
        context.events.report(
            reference,
            Type::Normal,
            "Started",
            format!("Started container {}", spec.name),
        );

        self.runs += 1;
        let (run, sender) = (self.runs, self.messages.0.clone());
        let (mut ending, ended) = (process.clone(), sender.clone());
        let last_words = LastWords {
            wanted: spec.termination_message_policy.as_deref() == Some("FallbackToLogsOnError"),
            logs: context.logs.clone(),
            pod: (self.namespace.clone(), self.name.clone(), self.uid.clone()),
            container: spec.name.clone(),
        };
        tokio::spawn(async move {
            let exit = ending.wait().await;
            let message = last_words.of(&exit).await;
            // Nobody listens once the pod is forgotten.
            let _ = ended
                .send(Message::Ended {
                    container: index,
                    run,
                    exit,
                    message,
                })
                .await;
        });
        // An init container is done when it ends, not when it is ready.
        let probes = if self.containers[index].is_init {
            Probes::default()
        } else {
            probes
        };
        let probes = tokio::spawn(probes.run(index, run, sender)).abort_handle();
        let container = &mut self.containers[index];
        container.restarts = restarts;
        container.has_run = true;
        container.phase = Phase::Running(Running {
            run,
            process,
            started: false,
            ready: false,
            probes,
            kill_at: None,
            next_image: None,
        });
        Ok(())
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Ended {
                container,
                run,
                exit,
                message,
            } => {
                if !self.containers[container].is_run(run) {
                    return;
                }
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
            Message::Probed {
                container,
                run,
                finding,
            } => {
                if self.containers[container].is_run(run) {
                    self.probed(container, finding);
                }
            }
        }
    }

    fn probed(&mut self, index: usize, finding: Finding) {
        let reference = self.reference(Some(index));
        let events = self.context.events.clone();
        let Phase::Running(running) = &mut self.containers[index].phase else {
            return;
        };
        match finding {
            Finding::Started => running.started = true,
            Finding::Ready(ready) => running.ready = ready,
            Finding::Unhealthy(kind, reason) => {
                let message = format!("{} probe failed: {reason}", kind.name());
                events.report(reference, Type::Warning, "Unhealthy", message);
            }
            Finding::Failed(kind) => {
                let probe = if kind == Kind::Startup {
                    "startup"
                } else {
                    "liveness"
                };
                let name = self.containers[index].spec.name.clone();
                let message = format!("Container {name} failed {probe} probe, will be restarted");
                events.report(reference, Type::Normal, "Killing", message);
                let grace = self.grace();
                self.containers[index].stop(grace);
            }
        }
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
        Duration::from_secs(u64::try_from(asked.or(own).unwrap_or(DEFAULT_GRACE)).unwrap_or(0))
    }

    /// Ends every process, and returns when none is left.
    async fn terminate(&mut self, grace: Duration) {
        for index in 0..self.containers.len() {
            if matches!(self.containers[index].phase, Phase::Running(_)) {
                let message = format!("Stopping container {}", self.containers[index].spec.name);
                self.context
                    .events
                    .report(self.reference(Some(index)), Type::Normal, "Killing", message);
                self.containers[index].stop(grace);
                self.containers[index].keep_image();
            }
        }
        // No traffic from here on.
        if self.containers.iter().any(Container::runs) {
            self.publish().await;
        }
        let mut watched = true;
        while self.containers.iter().any(Container::runs) {
            self.kill_overdue();
            let deadline = self.containers.iter().filter_map(Container::kill_at).min();
            let wait = async {
                match deadline {
                    Some(deadline) => sleep_until(deadline).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                Some(message) = self.messages.1.recv() => self.take(message),
                changed = self.assignment.changed(), if watched => {
                    watched = changed.is_ok();
                    // The grace period may have been cut short by a second delete.
                    let now = self.assignment.borrow_and_update().clone();
                    let left = if now.gone { GONE_GRACE.min(grace) } else { grace };
                    self.pod = now.pod;
                    let left = if self.pod.metadata.deletion_timestamp.is_some() { left.min(self.grace()) } else { left };
                    for container in &mut self.containers {
                        container.stop(left);
                    }
                }
                () = wait => {}
            }
        }
    }
}
