//! What a change of a running pod's spec does to its containers.
//!
//! As with a kubelet, only another image restarts a container: the API lets hardly anything else of a pod
//! change in place.

use k8s_openapi::api::core::v1::Container as ContainerSpec;
use tokio::time::Instant;

use super::Worker;
use crate::{
    events::Type,
    kubelet::{
        backoff::Backoff,
        role::{RestartPolicy, Role},
        state::Phase,
        supported,
    },
};

impl Worker {
    /// Takes over what the pod's spec says now.
    pub(super) fn follow_spec(&mut self) {
        self.examine();
        let pod = self.pod.clone();
        let Some(spec) = &pod.spec else { return };
        for index in 0..self.containers.len() {
            let list = match self.containers[index].role {
                Role::Init | Role::Sidecar => spec.init_containers.as_deref().unwrap_or_default(),
                Role::Main => &spec.containers,
            };
            let name = &self.containers[index].spec.name;
            if let Some(wanted) = list.iter().find(|wanted| wanted.name == *name) {
                self.follow_image(index, wanted);
            }
        }
    }

    fn follow_image(&mut self, index: usize, wanted: &ContainerSpec) {
        let container = &mut self.containers[index];
        if container.wanted_image() == wanted.image.as_ref() {
            return;
        }
        match &mut container.phase {
            // One that initialises is let finish, with the image it was started from.
            Phase::Running(_) if container.role == Role::Init => {}
            Phase::Running(running) => {
                running.next_image.clone_from(&wanted.image);
                let message = format!(
                    "Container {} definition changed, will be restarted",
                    container.spec.name
                );
                self.context
                    .events
                    .report(self.reference(Some(index)), Type::Normal, "Killing", message);
                let grace = self.grace();
                self.stop(index, grace);
                return;
            }
            // It was the old image that failed or was missing.
            Phase::Waiting { until, .. } => {
                *until = Some(Instant::now());
                container.backoff = Backoff::default();
            }
            Phase::Terminated(_) => {}
        }
        container.spec.image.clone_from(&wanted.image);
    }

    /// Decides whether this node can give what the pod asks for, and tells when it cannot.
    pub(super) fn examine(&mut self) {
        let refusal = supported::refusal(&self.pod);
        if refusal == self.refusal {
            return;
        }
        match &refusal {
            Some(message) => {
                let text = format!("Error: {message}");
                self.context
                    .events
                    .report(self.reference(None), Type::Warning, "Failed", text);
            }
            // Preparing anew sets off the containers that wait.
            None => self.prepared = false,
        }
        self.refusal = refusal;
    }

    /// Keeps the containers of a refused pod from starting. One that runs goes on until it ends.
    pub(super) fn hold(&mut self, message: &str) {
        let policy = RestartPolicy::of(&self.pod);
        for container in &mut self.containers {
            match &container.phase {
                Phase::Running(_) => continue,
                Phase::Terminated(ended) if !policy.restarts(ended.exit.code, container.role) => continue,
                Phase::Terminated(ended) => container.last = Some(ended.clone()),
                Phase::Waiting { .. } => {}
            }
            container.wait("CreateContainerConfigError", Some(message.to_owned()), None);
        }
    }
}
