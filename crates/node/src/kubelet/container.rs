//! From a container's spec to the process that stands for it.

use std::{
    cell::Cell,
    collections::BTreeMap,
    env, io,
    path::{Path, PathBuf},
    time::Duration,
};

use k8s_openapi::api::core::v1::{Container, Pod};
use kube::ResourceExt as _;

use super::{
    Context,
    action::Executor,
    env::{ConfigError, expand, variables},
    siblings,
    sources::Sources,
    volumes::Mounts,
};
use crate::{
    image::{self, ImageMapping, PortNotice},
    ports::{PodPorts, PortMap},
    processes::{Output, ProcessSpec, logs::LogFile},
};

/// Variables of the node's own environment that a container gets too: what any program needs to find
/// others, its user and the language. Everything else stays with the node.
const INHERITED: [&str; 4] = ["PATH", "HOME", "LANG", "TZ"];

/// How often something is looked for that only a person can bring.
const PERSON: Duration = Duration::from_secs(5);
/// How often anything else that is missing is looked for.
const RETRY: Duration = Duration::from_secs(1);

/// Why a container is not started, with the reason that its waiting state shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    /// When to try again; `None` where only another spec can help.
    pub(crate) again: Option<Duration>,
}

impl Refused {
    /// A container that may start at any time.
    pub(crate) fn for_now(reason: &'static str, message: String) -> Self {
        Self {
            reason,
            message,
            again: Some(RETRY),
        }
    }
}

impl From<ConfigError> for Refused {
    fn from(error: ConfigError) -> Self {
        Self::for_now("CreateContainerConfigError", error.0)
    }
}

/// What a container's process will be, but for its ports and its log.
pub(crate) struct Plan<'a> {
    mapping: &'a ImageMapping,
    program: PathBuf,
    container: &'a Container,
    variables: BTreeMap<String, String>,
    mounts: Mounts,
}

/// A process that is ready to be started, and what goes with it.
pub(crate) struct Launch {
    pub(crate) process: ProcessSpec,
    /// For its probes and hooks.
    pub(crate) executor: Executor,
    /// Whether it was told the address of another container of the pod.
    pub(crate) names_siblings: bool,
}

/// The ports that a container declares.
pub(crate) fn declared_ports(container: &Container) -> Vec<u16> {
    let ports = container.ports.iter().flatten();
    ports
        .filter(|port| port.protocol.as_deref().is_none_or(|protocol| protocol == "TCP"))
        .filter_map(|port| u16::try_from(port.container_port).ok())
        .collect()
}

impl<'a> Plan<'a> {
    /// Resolves everything that `container` refers to.
    pub(crate) fn new(
        images: &'a [ImageMapping],
        container: &'a Container,
        pod: &Pod,
        sources: &Sources,
        volumes: &Path,
    ) -> Result<Self, Refused> {
        let image = container.image.as_deref().unwrap_or_default();
        // The reason of an image that is not there and must not be pulled.
        let missing = |message, again| Refused {
            reason: "ErrImageNeverPull",
            message,
            again,
        };
        // An image is mapped when the node starts; a program may be installed at any time.
        let mapping = image::resolve(images, image).map_err(|error| missing(error.to_string(), None))?;
        let program = mapping
            .program
            .locate()
            .map_err(|message| missing(message, Some(PERSON)))?;
        let variables = variables(container, pod, sources)?;
        let mut mounts = Mounts::of(container, volumes, &variables)?;
        let copies = volumes.with_file_name("subpaths").join(&container.name);
        mounts.make_sub_paths(pod, volumes, &copies)?;
        Ok(Self {
            mapping,
            program,
            container,
            variables,
            mounts,
        })
    }

    /// Gives the container its ports.
    pub(crate) fn assign_ports(&self, ports: &PortMap, uid: &str) -> Result<PodPorts, Refused> {
        let declared = declared_ports(self.container);
        let name = &self.container.name;
        if self.mapping.port != PortNotice::Fixed {
            return ports.assign(uid, name, &declared).map_err(|error| {
                Refused::for_now(
                    "CreateContainerError",
                    format!("no free port on 127.0.0.1: {error}"),
                )
            });
        }
        ports.assign_as_they_are(uid, name, &declared).map_err(|error| {
            let message = match error.kind() {
                io::ErrorKind::AddrInUse => format!(
                    "port {error} of this machine is used by another program, and the program of image {:?} cannot \
                     be told another one; it starts when the port is free",
                    self.container.image.as_deref().unwrap_or_default()
                ),
                _ => format!("the ports on 127.0.0.1 cannot be looked at: {error}"),
            };
            Refused::for_now("CreateContainerError", message)
        })
    }

    /// The process, with `ports` for the declared ports.
    pub(crate) fn process(
        self,
        context: &Context,
        pod: &Pod,
        ports: &PodPorts,
        pod_dir: &Path,
        log: LogFile,
    ) -> Result<Launch, Refused> {
        let names_siblings = Cell::new(false);
        let rewrite = |text: &str| {
            let text = self.mounts.rewrite(text);
            // Before the names of Services, whose addresses are on the loopback, too.
            let reached = siblings::rewrite(&text, &self.container.name, ports);
            names_siblings.set(names_siblings.get() || reached != text);
            context.services.rewrite(&reached)
        };
        let mut env: BTreeMap<String, String> = INHERITED
            .iter()
            .filter_map(|name| Some(((*name).to_owned(), env::var(name).ok()?)))
            .collect();
        env.insert("HOSTNAME".to_owned(), pod.name_any());
        env.insert("TMPDIR".to_owned(), pod_dir.join("tmp").display().to_string());
        let image = self.mapping.env.iter().map(|(name, value)| (name, value));
        let variables = image.chain(&self.variables);
        env.extend(variables.map(|(name, value)| (name.clone(), rewrite(value))));
        let first = declared_ports(self.container).first().and_then(|declared| {
            let given = ports.get(&(self.container.name.clone(), *declared))?;
            Some((*declared, *given))
        });
        if let Some((declared, port)) = first {
            env.insert("KAOS_LISTEN".to_owned(), format!("127.0.0.1:{port}"));
            // A PORT of the pod's own that means something else stays.
            let own = env.get("PORT");
            if own.is_none_or(|own| *own == declared.to_string()) {
                env.insert("PORT".to_owned(), port.to_string());
            }
            if let PortNotice::Env { name, value } = &self.mapping.port {
                env.insert(name.clone(), PortNotice::fill(value, port));
            }
        }

        let words = |list: &Option<Vec<String>>| -> Vec<String> {
            list.iter()
                .flatten()
                .map(|word| rewrite(&expand(word, &self.variables)))
                .collect()
        };
        let (command, mut rest) = (words(&self.container.command), words(&self.container.args));
        let mut args = if command.is_empty() {
            self.mapping.args.clone()
        } else {
            self.arguments(&command)?
        };
        args.append(&mut rest);
        if let (PortNotice::Args(told), Some((_, port))) = (&self.mapping.port, first) {
            args.extend(told.iter().map(|word| PortNotice::fill(word, port)));
        }
        let working_dir = match &self.container.working_dir {
            Some(dir) if !dir.is_empty() => self.mounts.rewrite(dir).into(),
            _ => pod_dir.join("work"),
        };
        let env: Vec<(String, String)> = env.into_iter().collect();
        let names = self.names();
        Ok(Launch {
            process: ProcessSpec {
                program: self.program.clone(),
                args,
                env: env.clone(),
                working_dir: working_dir.clone(),
                output: Output::Log(log),
            },
            names_siblings: names_siblings.get(),
            executor: Executor {
                spawner: context.spawner.clone(),
                env,
                working_dir,
                mounts: self.mounts,
                program: self.program,
                names,
            },
        })
    }

    /// What a command may call the image's program.
    fn names(&self) -> Vec<String> {
        let repository = &self.mapping.repository;
        let image = repository.rsplit('/').next().unwrap_or_default();
        vec![self.mapping.program.file_name(), image.to_owned()]
    }

    /// The arguments in a `command`, which replaces an image's entry point: here, it can only name the one
    /// program that the image stands for.
    fn arguments(&self, command: &[String]) -> Result<Vec<String>, Refused> {
        let wanted = command[0].rsplit('/').next().unwrap_or_default();
        if self.names().iter().any(|name| name == wanted) {
            return Ok(command[1..].to_vec());
        }
        Err(Refused {
            reason: "CreateContainerConfigError",
            message: format!(
                "command {:?} cannot be run: on this machine, image {:?} holds only the program {:?}; \
                 start the command with it, or leave command out and use args",
                command[0],
                self.container.image.as_deref().unwrap_or_default(),
                self.mapping.program.file_name(),
            ),
            again: None,
        })
    }
}
