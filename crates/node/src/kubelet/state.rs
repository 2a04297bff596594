//! One container of a pod: what it is doing, and how that is told.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::{Container as ContainerSpec, Pod};
use tokio::{task::AbortHandle, time::Instant};

use super::{
    action::{Action, Executor},
    backoff::Backoff,
    role::Role,
    status::{State, Terminated, View},
};
use crate::processes::{Process, Signal};

/// A run that goes on.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) run: u64,
    pub(super) process: Process,
    /// It has no `postStart` hook, or that has succeeded.
    pub(super) begun: bool,
    pub(super) started: bool,
    pub(super) ready: bool,
    pub(super) probes: AbortHandle,
    /// What is done before it is asked to end.
    pub(super) pre_stop: Option<Hook>,
    pub(super) ending: Option<Ending>,
    /// The image of the next run, where this one was stopped to make way for it.
    pub(super) next_image: Option<String>,
    /// It was told the address of another container of its pod.
    pub(super) names_siblings: bool,
}

/// How far the end of a run that must end is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ending {
    /// Its `preStop` hook runs, at the latest until then.
    Hook(Instant),
    /// It was sent SIGTERM, and SIGKILL follows then.
    Asked(Instant),
    /// It was sent SIGKILL.
    Killed,
}

/// A hook and what it runs with.
#[derive(Clone, Debug)]
pub(super) struct Hook {
    pub(super) action: Action,
    pub(super) executor: Arc<Executor>,
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

/// The least time between SIGTERM and SIGKILL after a `preStop` hook that took all the grace period, as a
/// kubelet's.
const AFTER_HOOK: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct Container {
    pub(super) spec: ContainerSpec,
    pub(super) role: Role,
    pub(super) phase: Phase,
    pub(super) last: Option<Terminated>,
    pub(super) restarts: u32,
    pub(super) has_run: bool,
    /// It was started by this node, not by one before it, or it is over.
    pub(super) began: bool,
    pub(super) backoff: Backoff,
}

impl Container {
    /// A container as the pod's status tells it: what an earlier run of the node started has ended since.
    pub(super) fn resume(spec: ContainerSpec, role: Role, pod: &Pod) -> Self {
        let statuses = pod.status.as_ref().and_then(|status| match role {
            Role::Init | Role::Sidecar => status.init_container_statuses.as_ref(),
            Role::Main => status.container_statuses.as_ref(),
        });
        let known = statuses
            .into_iter()
            .flatten()
            .find(|status| status.name == spec.name);
        let ended = known.and_then(|status| {
            let states = [status.state.as_ref(), status.last_state.as_ref()];
            let mut ended = states.into_iter().flatten().find_map(Terminated::from_status)?;
            if ended.container_id.is_empty() {
                ended.container_id = status.container_id.clone().unwrap_or_default();
            }
            Some(ended)
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
            began: over,
            last: ended.filter(|_| !over),
            spec,
            role,
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

    /// Whether it runs and has started, as its startup probe says.
    pub(super) fn has_started(&self) -> bool {
        matches!(&self.phase, Phase::Running(running) if running.started)
    }

    /// Whether it must end, and does.
    pub(super) fn is_ending(&self) -> bool {
        matches!(&self.phase, Phase::Running(running) if running.ending.is_some())
    }

    /// When the next step of its end is due.
    pub(super) fn ends_at(&self) -> Option<Instant> {
        match &self.phase {
            Phase::Running(running) => match running.ending? {
                Ending::Hook(at) | Ending::Asked(at) => Some(at),
                Ending::Killed => None,
            },
            _ => None,
        }
    }

    /// Takes the next step of its end if that is due.
    pub(super) fn end_if_overdue(&mut self, now: Instant) {
        if self.ends_at().is_none_or(|at| at > now) {
            return;
        }
        let Phase::Running(running) = &mut self.phase else {
            return;
        };
        if let Some(Ending::Hook(_)) = running.ending {
            self.ask_to_end();
        } else {
            running.process.signal(Signal::KILL);
            running.ending = Some(Ending::Killed);
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

    /// Begins its end, which `grace` limits: the hook to run first is returned, and without one the process is
    /// asked to end. A second time can only shorten the wait.
    pub(super) fn stop(&mut self, grace: Duration) -> Option<Hook> {
        let Phase::Running(running) = &mut self.phase else {
            return None;
        };
        running.probes.abort();
        running.ready = false;
        let at = Instant::now() + grace;
        match running.ending {
            Some(Ending::Hook(earlier)) => running.ending = Some(Ending::Hook(earlier.min(at))),
            Some(Ending::Asked(earlier)) => running.ending = Some(Ending::Asked(earlier.min(at))),
            Some(Ending::Killed) => {}
            None if running.pre_stop.is_some() && !grace.is_zero() => {
                running.ending = Some(Ending::Hook(at));
                return running.pre_stop.take();
            }
            None => {
                running.process.signal(Signal::TERM);
                running.ending = Some(Ending::Asked(at));
            }
        }
        None
    }

    /// Asks the process to end, now that its hook is done.
    pub(super) fn ask_to_end(&mut self) {
        if let Phase::Running(running) = &mut self.phase
            && let Some(Ending::Hook(at)) = running.ending
        {
            running.process.signal(Signal::TERM);
            running.ending = Some(Ending::Asked(at.max(Instant::now() + AFTER_HOOK)));
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
            // Until its hook is done, a container does not count as running.
            Phase::Running(running) if !running.begun => State::waiting("ContainerCreating", None),
            Phase::Running(running) => State::Running {
                since: running.process.started,
                started: running.started,
                ready: running.ready,
            },
            Phase::Terminated(terminated) => State::Terminated(terminated.clone()),
        };
        View {
            name: self.spec.name.clone(),
            role: self.role,
            began: self.began,
            image: self.spec.image.clone().unwrap_or_default(),
            container_id: self.has_run.then_some(id),
            state,
            last: self.last.clone(),
            restarts: self.restarts,
        }
    }
}
