//! Probes: whether a container has started, is ready, is alive.
//!
//! A period has the kubelet's meaning for failures: a probe fails for a period when no attempt within it
//! succeeded, and only such periods count against `failureThreshold`. Within the periods before the first
//! success, attempts come every 50 ms, so that a container is used as soon as it can be.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::{Container, Probe};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep, sleep_until, timeout},
};

use super::{
    action::{Action, Executor},
    pod::Message,
};
use crate::ports::PodPorts;

/// How often a container that is starting is asked.
const STARTING: Duration = Duration::from_millis(50);
/// How long it is asked so often; then once per period, as the kubelet does.
const STARTING_LASTS: Duration = Duration::from_secs(120);

/// Which of the three probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Startup,
    Readiness,
    Liveness,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Startup => "Startup",
            Self::Readiness => "Readiness",
            Self::Liveness => "Liveness",
        }
    }
}

/// What a container's probes, and the hook before them, found out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Finding {
    /// The `postStart` hook succeeded.
    Begun,
    /// The `postStart` hook failed: the container must be restarted.
    HookFailed(String),
    /// The startup probe succeeded, or there is none.
    Started,
    /// The readiness probe changed its mind.
    Ready(bool),
    /// A probe failed for a period.
    Unhealthy(Kind, String),
    /// A startup or liveness probe failed for good: the container must be restarted.
    Failed(Kind),
}

/// One probe with its addresses resolved.
#[derive(Clone, Debug)]
struct Plan {
    action: Action,
    executor: Arc<Executor>,
    delay: Duration,
    period: Duration,
    timeout: Duration,
    successes: u32,
    failures: u32,
}

/// The probes of one run of a container.
#[derive(Clone, Debug, Default)]
pub(crate) struct Probes {
    startup: Option<Plan>,
    readiness: Option<Plan>,
    liveness: Option<Plan>,
}

impl Probes {
    /// Those of `container`, whose programs `executor` runs.
    pub(crate) fn of(
        container: &Container,
        ports: &PodPorts,
        executor: &Arc<Executor>,
    ) -> Result<Self, String> {
        let plan = |field: &str, probe: &Option<Probe>| {
            let resolved = probe
                .as_ref()
                .map(|probe| Plan::of(probe, container, ports, executor))
                .transpose();
            resolved.map_err(|error| format!("{field}: {error}"))
        };
        Ok(Self {
            startup: plan("startupProbe", &container.startup_probe)?,
            readiness: plan("readinessProbe", &container.readiness_probe)?,
            liveness: plan("livenessProbe", &container.liveness_probe)?,
        })
    }

    /// Runs the probes of run `run` of container `container` and reports what they find, until dropped.
    pub(crate) async fn run(self, container: usize, run: u64, found: mpsc::Sender<Message>) {
        let tell = |finding| {
            found.send(Message::Probed {
                container,
                run,
                finding,
            })
        };
        if let Some(startup) = &self.startup
            && !startup.until_started(&tell).await
        {
            return;
        }
        if tell(Finding::Started).await.is_err() {
            return;
        }
        let readiness = async {
            match &self.readiness {
                Some(plan) => plan.watch_readiness(&tell).await,
                None => drop(tell(Finding::Ready(true)).await),
            }
        };
        let liveness = async {
            if let Some(plan) = &self.liveness {
                plan.watch_liveness(&tell).await;
            }
        };
        tokio::join!(readiness, liveness);
    }
}

impl Plan {
    fn of(
        probe: &Probe,
        container: &Container,
        ports: &PodPorts,
        executor: &Arc<Executor>,
    ) -> Result<Self, String> {
        let seconds = |value: Option<i32>, default: u64| {
            Duration::from_secs(
                value
                    .and_then(|value| u64::try_from(value).ok())
                    .unwrap_or(default),
            )
        };
        let count = |value: Option<i32>, default| {
            value
                .and_then(|value| u32::try_from(value).ok())
                .unwrap_or(default)
                .max(1)
        };
        Ok(Self {
            action: Action::of_probe(probe, container, ports)?,
            executor: executor.clone(),
            delay: seconds(probe.initial_delay_seconds, 0),
            period: seconds(probe.period_seconds, 10).max(Duration::from_secs(1)),
            timeout: seconds(probe.timeout_seconds, 1).max(Duration::from_secs(1)),
            successes: count(probe.success_threshold, 1),
            failures: count(probe.failure_threshold, 3),
        })
    }

    async fn attempt(&self) -> Result<(), String> {
        match timeout(self.timeout, self.action.run(&self.executor)).await {
            Ok(result) => result,
            Err(_) => Err(format!("no answer within {} s", self.timeout.as_secs())),
        }
    }

    /// Attempts every 50 ms until one succeeds or the period is over.
    async fn attempt_for_a_period(&self) -> Result<(), String> {
        let end = Instant::now() + self.period;
        loop {
            let result = self.attempt().await;
            if result.is_ok() || Instant::now() + STARTING >= end {
                if result.is_err() {
                    sleep_until(end).await;
                }
                return result;
            }
            sleep(STARTING).await;
        }
    }

    async fn attempt_once_in_a_period(&self) -> Result<(), String> {
        let end = Instant::now() + self.period;
        let result = self.attempt().await;
        sleep_until(end).await;
        result
    }

    /// Returns whether the container has started; otherwise it has reported that it never will.
    async fn until_started<F>(&self, tell: &impl Fn(Finding) -> F) -> bool
    where
        F: Future<Output = Result<(), mpsc::error::SendError<Message>>>,
    {
        let counts_from = Instant::now() + self.delay;
        let mut failed = 0;
        loop {
            let Err(reason) = self.attempt_for_a_period().await else {
                return true;
            };
            if Instant::now() < counts_from {
                continue;
            }
            failed += 1;
            if tell(Finding::Unhealthy(Kind::Startup, reason)).await.is_err() {
                return false;
            }
            if failed >= self.failures {
                let _ = tell(Finding::Failed(Kind::Startup)).await;
                return false;
            }
        }
    }

    async fn watch_readiness<F>(&self, tell: &impl Fn(Finding) -> F)
    where
        F: Future<Output = Result<(), mpsc::error::SendError<Message>>>,
    {
        let began = Instant::now();
        let (mut ready, mut was_ready) = (false, false);
        let (mut succeeded, mut failed) = (0, 0);
        loop {
            let starting = !was_ready && began.elapsed() < STARTING_LASTS;
            let result = if starting && succeeded == 0 {
                self.attempt_for_a_period().await
            } else if starting {
                sleep(STARTING).await;
                self.attempt().await
            } else {
                self.attempt_once_in_a_period().await
            };
            let told = match result {
                Ok(()) => {
                    (succeeded, failed) = (succeeded + 1, 0);
                    if !ready && succeeded >= self.successes {
                        (ready, was_ready) = (true, true);
                        tell(Finding::Ready(true)).await
                    } else {
                        Ok(())
                    }
                }
                Err(reason) => {
                    (succeeded, failed) = (0, failed + 1);
                    let quiet = began.elapsed() < self.delay;
                    let told = match quiet {
                        true => Ok(()),
                        false => tell(Finding::Unhealthy(Kind::Readiness, reason)).await,
                    };
                    if ready && failed >= self.failures {
                        ready = false;
                        tell(Finding::Ready(false)).await
                    } else {
                        told
                    }
                }
            };
            if told.is_err() {
                return;
            }
        }
    }

    async fn watch_liveness<F>(&self, tell: &impl Fn(Finding) -> F)
    where
        F: Future<Output = Result<(), mpsc::error::SendError<Message>>>,
    {
        sleep(self.delay).await;
        let mut failed = 0;
        loop {
            let Err(reason) = self.attempt_once_in_a_period().await else {
                failed = 0;
                continue;
            };
            failed += 1;
            if tell(Finding::Unhealthy(Kind::Liveness, reason)).await.is_err() {
                return;
            }
            if failed >= self.failures {
                let _ = tell(Finding::Failed(Kind::Liveness)).await;
                return;
            }
        }
    }
}
