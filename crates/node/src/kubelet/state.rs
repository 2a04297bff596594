//! One container of a pod: what it is doing, and how that is told.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container as ContainerSpec, Pod};
use tokio::{task::AbortHandle, time::Instant};

use super::{
    backoff::Backoff,
    status::{State, Terminated, View},
};
use crate::processes::{Process, Signal};

/// A run that goes on.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) run: u64,
    pub(super) process: Process,
    pub(super) started: bool,
    pub(super) ready: bool,
    pub(super) probes: AbortHandle,
    /// When SIGKILL follows SIGTERM, once it must end.
    pub(super) kill_at: Option<Instant>,
    /// The image of the next run, where this one was stopped to make way for it.
    pub(super) next_image: Option<String>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.probes.abort();
    }
}

#[derive(Debug)]
pub(super) enum Phase {
    /// Not started: `until` is when to try (again); `None` when trying again would change nothing.
    Waiting {
        reason: String,
        message: Option<String>,
        until: Option<Instant>,
    },
    Running(Running),
    Terminated(Terminated),
}

#[derive(Debug)]
pub(super) struct Container {
    pub(super) spec: ContainerSpec,
    pub(super) is_init: bool,
    pub(super) phase: Phase,
    pub(super) last: Option<Terminated>,
    pub(super) restarts: u32,
    pub(super) has_run: bool,
    pub(super) backoff: Backoff,
}

impl Container {
    /// A container as the pod's status tells it: what an earlier run of the node started has ended since.
    pub(super) fn resume(spec: ContainerSpec, is_init: bool, pod: &Pod) -> Self {
        let statuses = pod.status.as_ref().and_then(|status| {
            if is_init {
                status.init_container_statuses.as_ref()
            } else {
                status.container_statuses.as_ref()
            }
        });
        let known = statuses
            .into_iter()
            .flatten()
            .find(|status| status.name == spec.name);
        let ended = known.and_then(|status| {
            let states = [status.state.as_ref(), status.last_state.as_ref()];
            states.into_iter().flatten().find_map(Terminated::from_status)
        });
        let over = matches!(
            pod.status.as_ref().and_then(|status| status.phase.as_deref()),
            Some("Succeeded" | "Failed")
        );
        let phase = match &ended {
            Some(ended) if over => Phase::Terminated(ended.clone()),
            _ => Phase::Waiting {
                reason: "ContainerCreating".to_owned(),
                message: None,
                until: Some(Instant::now()),
            },
        };
        Self {
            restarts: known
                .and_then(|status| u32::try_from(status.restart_count).ok())
                .unwrap_or(0),
            has_run: ended.is_some(),
            last: ended.filter(|_| !over),
            spec,
            is_init,
            phase,
            backoff: Backoff::default(),
        }
    }

    pub(super) fn succeeded(&self) -> bool {
        matches!(&self.phase, Phase::Terminated(terminated) if terminated.exit.code == 0)
    }

    pub(super) fn runs(&self) -> bool {
        matches!(self.phase, Phase::Running(_))
    }

    pub(super) fn is_run(&self, number: u64) -> bool {
        matches!(&self.phase, Phase::Running(running) if running.run == number)
    }

    pub(super) fn kill_at(&self) -> Option<Instant> {
        match &self.phase {
            Phase::Running(running) => running.kill_at,
            _ => None,
        }
    }

    /// Makes the process end when its grace period is over.
    pub(super) fn kill_if_overdue(&mut self, now: Instant) {
        if let Phase::Running(running) = &mut self.phase
            && running.kill_at.is_some_and(|at| at <= now)
        {
            running.process.signal(Signal::KILL);
            running.kill_at = None;
        }
    }

    /// The image of the run to come, or of this one when none is to come.
    pub(super) fn wanted_image(&self) -> Option<&String> {
        match &self.phase {
            Phase::Running(running) if running.next_image.is_some() => running.next_image.as_ref(),
            _ => self.spec.image.as_ref(),
        }
    }

    /// Takes over the image that this run, which has ended, made way for; every restart policy starts it, and
    /// at once. Returns whether there is one.
    pub(super) fn take_next_image(&mut self) -> bool {
        let Phase::Running(running) = &mut self.phase else {
            return false;
        };
        let Some(image) = running.next_image.take() else {
            return false;
        };
        self.spec.image = Some(image);
        self.backoff = Backoff::default();
        true
    }

    /// Gives up the image of a next run: there will be none.
    pub(super) fn keep_image(&mut self) {
        if let Phase::Running(running) = &mut self.phase {
            running.next_image = None;
        }
    }

    /// Asks the process to end, and sets when it is made to. A second time can only shorten the wait.
    pub(super) fn stop(&mut self, grace: Duration) {
        let Phase::Running(running) = &mut self.phase else {
            return;
        };
        running.probes.abort();
        running.ready = false;
        let at = Instant::now() + grace;
        match running.kill_at {
            Some(earlier) => running.kill_at = Some(earlier.min(at)),
            None => {
                running.process.signal(Signal::TERM);
                running.kill_at = Some(at);
            }
        }
    }

    pub(super) fn wait(&mut self, reason: &str, message: Option<String>, until: Option<Instant>) {
        self.phase = Phase::Waiting {
            reason: reason.to_owned(),
            message,
            until,
        };
    }

    pub(super) fn view(&self, id: String) -> View {
        let state = match &self.phase {
            Phase::Waiting { reason, message, .. } => State::waiting(reason, message.clone()),
            Phase::Running(running) => State::Running {
                since: running.process.started,
                started: running.started,
                ready: running.ready,
            },
            Phase::Terminated(terminated) => State::Terminated(terminated.clone()),
        };
        View {
            name: self.spec.name.clone(),
            image: self.spec.image.clone().unwrap_or_default(),
            container_id: self.has_run.then_some(id),
            state,
            last: self.last.clone(),
            restarts: self.restarts,
        }
    }
}
