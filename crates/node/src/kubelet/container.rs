//! From a container's spec to the process that stands for it.

use std::{collections::BTreeMap, env, path::Path};

use k8s_openapi::api::core::v1::{Container, Pod};
use kube::ResourceExt as _;

use super::{
    Context,
    env::{ConfigError, expand, variables},
    sources::Sources,
    volumes::Mounts,
};
use crate::{
    image::{self, ImageMapping},
    ports::PodPorts,
    processes::{ProcessSpec, logs::LogFile},
};

/// Variables of the node's own environment that a container gets too: what any program needs to find
/// others, its user and the language. Everything else stays with the node.
const INHERITED: [&str; 4] = ["PATH", "HOME", "LANG", "TZ"];

/// Why a container is not started, with the reason that its waiting state shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

impl From<ConfigError> for Refused {
    fn from(error: ConfigError) -> Self {
        Self {
            reason: "CreateContainerConfigError",
            message: error.0,
        }
    }
}

/// What a container's process will be, but for its ports and its log.
pub(crate) struct Plan<'a> {
    mapping: &'a ImageMapping,
    container: &'a Container,
    variables: BTreeMap<String, String>,
    mounts: Mounts,
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
        let mapping = image::resolve(images, image).map_err(|error| Refused {
            reason: "ErrImageNeverPull",
            message: error.to_string(),
        })?;
        let variables = variables(container, pod, sources)?;
        let mounts = Mounts::of(container, volumes, &variables)?;
        mounts.create_missing(pod, volumes)?;
        Ok(Self {
            mapping,
            container,
            variables,
            mounts,
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
    ) -> Result<ProcessSpec, Refused> {
        let rewrite = |text: &str| context.services.rewrite(&self.mounts.rewrite(text));
        let mut env: BTreeMap<String, String> = INHERITED
            .iter()
            .filter_map(|name| Some(((*name).to_owned(), env::var(name).ok()?)))
            .collect();
        env.insert("HOSTNAME".to_owned(), pod.name_any());
        env.insert("TMPDIR".to_owned(), pod_dir.join("tmp").display().to_string());
        env.extend(self.mapping.env.iter().cloned());
        env.extend(
            self.variables
                .iter()
                .map(|(name, value)| (name.clone(), rewrite(value))),
        );
        if let Some(declared) = declared_ports(self.container).first()
            && let Some(port) = ports.get(&(self.container.name.clone(), *declared))
        {
            env.insert("KAOS_LISTEN".to_owned(), format!("127.0.0.1:{port}"));
            // A PORT of the pod's own that means something else stays.
            let own = env.get("PORT");
            if own.is_none_or(|own| *own == declared.to_string()) {
                env.insert("PORT".to_owned(), port.to_string());
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
        let working_dir = match &self.container.working_dir {
            Some(dir) if !dir.is_empty() => self.mounts.rewrite(dir).into(),
            _ => pod_dir.join("work"),
        };
        let env = env.into_iter().collect();
        Ok(ProcessSpec {
            program: self.mapping.program.clone(),
            args,
            env,
            working_dir,
            log,
        })
    }

    /// The arguments in a `command`, which replaces an image's entry point: here, it can only name the one
    /// program that the image stands for.
    fn arguments(&self, command: &[String]) -> Result<Vec<String>, Refused> {
        let base = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
        let wanted = base(&command[0]);
        let program = base(&self.mapping.program.display().to_string());
        if wanted == program || wanted == base(&self.mapping.repository) {
            return Ok(command[1..].to_vec());
        }
        Err(Refused {
            reason: "CreateContainerConfigError",
            message: format!(
                "command {:?} cannot be run: on this machine, image {:?} holds only the program {program:?}; \
                 start the command with it, or leave command out and use args",
                command[0],
                self.container.image.as_deref().unwrap_or_default(),
            ),
        })
    }
}
