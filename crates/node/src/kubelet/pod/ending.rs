//! How containers end: no new work comes, hooks run, SIGTERM, and SIGKILL when the grace period is over; the
//! sidecars after all others, the last one first.

use std::{net::SocketAddr, time::Duration};

use tokio::time::{Instant, sleep_until, timeout};

use super::{GONE_GRACE, Message, Worker};
use crate::{
    events::Type,
    kubelet::{
        role::Role,
        state::{Container, Hook, Phase},
    },
};

/// The longest wait for work that is on its way to a pod that must end: a connection that was not answered by
/// then is being worked on, which goes on during the grace period.
const DRAIN: Duration = Duration::from_secs(2);

impl Worker {
    /// Waits until nothing new comes over the addresses of Services: none of them leads to the pod any more, and
    /// whoever had just connected was heard.
    pub(super) async fn drain(&self, grace: Duration) {
        let ports = self.context.ports.of(&self.uid);
        let addresses: Vec<SocketAddr> = ports
            .values()
            .map(|port| SocketAddr::from(([127, 0, 0, 1], *port)))
            .collect();
        if self.containers.iter().any(Container::runs) {
            let drained = self.context.services.drained(&addresses);
            // What is still unanswered then is being worked on.
            let _ = timeout(DRAIN.min(grace), drained).await;
        }
    }

    /// Begins the end of a run: its hook, then SIGTERM.
    pub(super) fn stop(&mut self, index: usize, grace: Duration) {
        let Some(Hook { action, executor }) = self.containers[index].stop(grace) else {
            return;
        };
        let Phase::Running(running) = &self.containers[index].phase else {
            return;
        };
        let (run, done) = (running.run, self.messages.0.clone());
        let (events, reference) = (self.context.events.clone(), self.reference(Some(index)));
        tokio::spawn(async move {
            let failed = match timeout(grace, action.run(&executor)).await {
                Ok(Ok(())) => None,
                Ok(Err(reason)) => Some(reason),
                Err(_) => Some(format!(
                    "it took longer than the grace period of {} s",
                    grace.as_secs()
                )),
            };
            if let Some(reason) = failed {
                let message = format!("PreStopHook failed: {reason}");
                events.report(reference, Type::Warning, "FailedPreStopHook", message);
            }
            // Nobody listens once the pod is forgotten.
            let _ = done
                .send(Message::Prepared {
                    container: index,
                    run,
                })
                .await;
        });
    }

    /// Begins the end of what must end next: all containers but the sidecars, and where none of them runs, the
    /// last sidecar.
    pub(super) fn stop_next(&mut self, grace: Duration) {
        let runs = |sidecar: bool| {
            let containers = self.containers.iter().enumerate();
            containers
                .filter(move |(_, container)| {
                    container.runs() && (container.role == Role::Sidecar) == sidecar
                })
                .map(|(index, _)| index)
        };
        let mut next: Vec<usize> = runs(false).collect();
        if next.is_empty() {
            next.extend(runs(true).next_back());
        }
        for index in next {
            if !self.containers[index].is_ending() {
                let message = format!("Stopping container {}", self.containers[index].spec.name);
                self.context
                    .events
                    .report(self.reference(Some(index)), Type::Normal, "Killing", message);
            }
            self.containers[index].keep_image();
            self.stop(index, grace);
        }
    }

    /// Takes the steps that are due of containers that must end.
    pub(super) fn end_overdue(&mut self) {
        let now = Instant::now();
        for container in &mut self.containers {
            container.end_if_overdue(now);
        }
    }

    /// Ends every process, and returns when none is left.
    pub(super) async fn terminate(&mut self, mut deadline: Instant) {
        let mut watched = true;
        let mut told = false;
        while self.containers.iter().any(Container::runs) {
            self.stop_next(deadline.saturating_duration_since(Instant::now()));
            if !told {
                told = true;
                // No traffic from here on.
                self.publish().await;
            }
            self.end_overdue();
            let next = self.containers.iter().filter_map(Container::ends_at).min();
            let wait = async {
                match next {
                    Some(next) => sleep_until(next).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                Some(message) = self.messages.1.recv() => self.take(message),
                changed = self.assignment.changed(), if watched => {
                    watched = changed.is_ok();
                    // The grace period may have been cut short by a second delete.
                    let assignment = self.assignment.borrow_and_update().clone();
                    self.pod = assignment.pod;
                    let now = Instant::now();
                    if assignment.gone {
                        deadline = deadline.min(now + GONE_GRACE);
                    }
                    if self.pod.metadata.deletion_timestamp.is_some() {
                        deadline = deadline.min(now + self.grace());
                    }
                }
                () = wait => {}
            }
        }
    }
}
