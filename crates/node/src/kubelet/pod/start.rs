//! How containers start: what they need is made ready, then their processes are.

use std::{path::PathBuf, sync::Arc};

use tokio::{sync::mpsc, time::Instant};

use super::{Message, RETRY, Worker, last_words::LastWords, shown};
use crate::{
    events::Type,
    files::create_private_dir,
    kubelet::{
        action::Action,
        container::{Launch, Plan, Refused, declared_ports},
        probe::{Finding, Probes},
        sources::Sources,
        state::{Hook, Phase, Running},
        volumes::materialise,
    },
};

impl Worker {
    /// Reads what the pod refers to and makes its volumes so. Returns whether containers may start.
    pub(super) async fn prepare(&mut self) -> bool {
        match Sources::read(&self.context, &self.namespace, &self.pod).await {
            Ok(sources) => self.sources = sources,
            Err(error) => {
                tracing::warn!(pod = %self.name, %error, "what a pod refers to cannot be read; trying again");
                self.retry_at = Some(Instant::now() + RETRY);
                return false;
            }
        }
        if let Err(message) = self.make_volumes() {
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
        self.shown = shown(&self.pod);
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

    fn make_volumes(&self) -> Result<(), String> {
        for folder in ["tmp", "work", "volumes"] {
            let folder = self.dir.join(folder);
            create_private_dir(&folder)
                .map_err(|error| format!("cannot create {}: {error}", folder.display()))?;
        }
        // Before any of them starts, so that each can be told the addresses of the others.
        for container in &self.containers {
            let (name, ports) = (&container.spec.name, declared_ports(&container.spec));
            let reserved = self.context.ports.reserve(&self.uid, name, &ports);
            reserved.map_err(|error| format!("no free port on 127.0.0.1: {error}"))?;
        }
        let services = &self.context.services;
        materialise(&self.pod, &self.sources, &self.volumes(), |text| {
            services.rewrite(text)
        })
        .map_err(|error| error.0)
    }

    pub(super) fn volumes(&self) -> PathBuf {
        self.dir.join("volumes")
    }

    pub(super) async fn start(&mut self, index: usize) {
        let Err(Refused {
            reason,
            message,
            again,
        }) = self.try_start(index).await
        else {
            return;
        };
        let (event, text) = match reason {
            "ErrImageNeverPull" => (reason, message.clone()),
            _ => ("Failed", format!("Error: {message}")),
        };
        self.context
            .events
            .report(self.reference(Some(index)), Type::Warning, event, text);
        let until = again.map(|wait| Instant::now() + wait);
        self.containers[index].wait(reason, Some(message), until);
    }

    async fn try_start(&mut self, index: usize) -> Result<(), Refused> {
        let context = self.context.clone();
        let spec = self.containers[index].spec.clone();
        let plan = Plan::new(&context.images, &spec, &self.pod, &self.sources, &self.volumes())?;
        let before = context.ports.of(&self.uid);
        let ports = plan.assign_ports(&context.ports, &self.uid)?;
        let restarts = self.containers[index].restarts + u32::from(self.containers[index].has_run);
        let log = context
            .logs
            .create((&self.namespace, &self.name, &self.uid), &spec.name, restarts)
            .map_err(|error| {
                Refused::for_now(
                    "CreateContainerError",
                    format!("the log cannot be opened: {error}"),
                )
            })?;
        let Launch {
            process,
            executor,
            names_siblings,
        } = plan.process(&context, &self.pod, &ports, &self.dir, log)?;
        let executor = Arc::new(executor);
        let wrong = |message| Refused {
            reason: "CreateContainerConfigError",
            message,
            again: None,
        };
        let probes = Probes::of(&spec, &ports, &executor).map_err(wrong)?;
        let hook = |field: &str, handler: Option<_>| {
            let resolved = handler.map(|handler| Action::of_hook(handler, &spec, &ports));
            let action = resolved
                .transpose()
                .map_err(|error| wrong(format!("lifecycle.{field}: {error}")))?;
            Ok::<_, Refused>(action.map(|action| Hook {
                action,
                executor: executor.clone(),
            }))
        };
        let lifecycle = spec.lifecycle.as_ref();
        let post_start = hook("postStart", lifecycle.and_then(|hooks| hooks.post_start.as_ref()))?;
        let pre_stop = hook("preStop", lifecycle.and_then(|hooks| hooks.pre_stop.as_ref()))?;
        let reference = self.reference(Some(index));
        let told = |reason, verb: &str| {
            let message = format!("{verb} container {}", spec.name);
            context
                .events
                .report(reference.clone(), Type::Normal, reason, message);
        };
        told("Created", "Created");
        let process = context
            .spawner
            .spawn(process)
            .await
            .map_err(|error| Refused::for_now("RunContainerError", error.to_string()))?;
        told("Started", "Started");
        if before != ports {
            self.tell_siblings(index);
        }

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
        let begun = post_start.is_none();
        let watching = tokio::spawn(watch(post_start, probes, index, run, sender)).abort_handle();
        let container = &mut self.containers[index];
        container.restarts = restarts;
        container.has_run = true;
        container.began = true;
        container.phase = Phase::Running(Running {
            run,
            process,
            begun,
            started: false,
            ready: false,
            probes: watching,
            pre_stop,
            ending: None,
            next_image: None,
            names_siblings,
        });
        Ok(())
    }

    /// Starts the containers again that were told an address of this one, which is at another now: somebody took
    /// its port while it was down.
    fn tell_siblings(&mut self, moved: usize) {
        let name = self.containers[moved].spec.name.clone();
        for index in 0..self.containers.len() {
            let container = &mut self.containers[index];
            let Phase::Running(running) = &mut container.phase else {
                continue;
            };
            if index == moved || !running.names_siblings {
                continue;
            }
            running.next_image.clone_from(&container.spec.image);
            let grace = self.grace();
            self.kill(
                index,
                &format!("names the address of container {name}, which has changed"),
                grace,
            );
        }
    }
}

/// Runs the `postStart` hook of a run, then its probes, and reports what they find, until dropped.
async fn watch(hook: Option<Hook>, probes: Probes, container: usize, run: u64, found: mpsc::Sender<Message>) {
    if let Some(Hook { action, executor }) = hook {
        let result = action.run(&executor).await;
        let failed = result.is_err();
        let finding = match result {
            Ok(()) => Finding::Begun,
            Err(reason) => Finding::HookFailed(reason),
        };
        let message = Message::Probed {
            container,
            run,
            finding,
        };
        if found.send(message).await.is_err() || failed {
            return;
        }
    }
    probes.run(container, run, found).await;
}
