//! Which program of this machine stands for a container image.

use std::{env, os::unix::fs::PermissionsExt as _, path::PathBuf};

/// An image that this node can run, as a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageMapping {
    /// The image's name without tag and digest, as `kaos` or `ghcr.io/example/tool`.
    pub repository: String,
    /// The program that is the image's entry point.
    pub program: Program,
    /// Arguments of the entry point: they stand before the container's own `args`, and before its `command`
    /// too, since a program has no other commands inside.
    pub args: Vec<String>,
    /// Variables of the image; the container's own win. Mount paths in them are rewritten as in the container's.
    pub env: Vec<(String, String)>,
    /// How the program is told where to listen.
    pub port: PortNotice,
}

/// Where an image's program is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Program {
    /// This file.
    File(PathBuf),
    /// A program that the user installs, looked for on the node's `PATH` whenever a container starts.
    OnPath {
        /// The file's name.
        name: String,
        /// What to do where it is not there, as the end of a sentence: `install it from https://…`.
        install: String,
    },
}

/// How a program is told the port that stands for its container's first port. Every container gets
/// `KAOS_LISTEN` and `PORT`; this is for programs that read neither.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortNotice {
    /// It reads `KAOS_LISTEN` or `PORT`.
    Listen,
    /// A variable of this name and value, in which `{port}` stands for the port. It wins over the container's
    /// own, which names the port of a cluster.
    Env {
        /// The variable.
        name: String,
        /// Its value.
        value: String,
    },
    /// Arguments after all others, in which `{port}` stands for the port.
    Args(Vec<String>),
    /// It cannot be told: it listens on the container's ports themselves, and waits until they are free.
    Fixed,
}

impl PortNotice {
    /// `text` for this port.
    pub(crate) fn fill(text: &str, port: u16) -> String {
        text.replace("{port}", &port.to_string())
    }
}

impl Program {
    /// The file to run, or the message of a container that waits for it.
    pub(crate) fn locate(&self) -> Result<PathBuf, String> {
        match self {
            Self::File(path) => Ok(path.clone()),
            Self::OnPath { name, install } => on_path(name).ok_or_else(|| {
                format!(
                    "this image runs as the program {name:?} of this machine, which is not on the PATH: {install}"
                )
            }),
        }
    }

    /// The name of its file, which a container's `command` may begin with.
    pub(crate) fn file_name(&self) -> String {
        match self {
            Self::File(path) => path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned(),
            Self::OnPath { name, .. } => name.clone(),
        }
    }
}

/// The first executable file of this name on the `PATH`.
fn on_path(name: &str) -> Option<PathBuf> {
    let folders = env::var_os("PATH")?;
    env::split_paths(&folders)
        .map(|folder| folder.join(name))
        .find(|path| {
            path.metadata()
                .is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
        })
}

/// An image for which there is no mapping: the message of the container's waiting state.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "image {image:?} is not mapped to a program on this machine: the local node runs no container images, \
     only {known}. Use one of these, or run the manifest on a cluster"
)]
pub(crate) struct UnmappedImage {
    image: String,
    known: String,
}

/// The mapping of `image`, whatever its tag or digest.
pub(crate) fn resolve<'a>(
    mappings: &'a [ImageMapping],
    image: &str,
) -> Result<&'a ImageMapping, UnmappedImage> {
    let repository = normalized(repository(image));
    mappings
        .iter()
        .find(|mapping| normalized(&mapping.repository) == repository)
        .ok_or_else(|| {
            let names: Vec<&str> = mappings
                .iter()
                .map(|mapping| mapping.repository.as_str())
                .collect();
            let known = if names.is_empty() {
                "none so far".to_owned()
            } else {
                names.join(", ")
            };
            UnmappedImage {
                image: image.to_owned(),
                known,
            }
        })
}

/// `image` without digest and tag. A colon before the last slash belongs to the registry's port.
fn repository(image: &str) -> &str {
    let image = image.split_once('@').map_or(image, |(name, _)| name);
    let name_start = image.rfind('/').map_or(0, |slash| slash + 1);
    match image[name_start..].find(':') {
        Some(colon) => &image[..name_start + colon],
        None => image,
    }
}

/// The short form of Docker Hub's names, in which `docker.io/library/` is left out.
fn normalized(repository: &str) -> &str {
    let name = repository.strip_prefix("docker.io/").unwrap_or(repository);
    name.strip_prefix("library/").unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_digests_and_registry_ports_do_not_count_in_the_name() {
        for (image, expected) in [
            ("kaos", "kaos"),
            ("kaos:0.1.0", "kaos"),
            ("kaos@sha256:0f", "kaos"),
            ("kaos:0.1.0@sha256:0f", "kaos"),
            ("ghcr.io/a/b:tag", "ghcr.io/a/b"),
            ("localhost:5000/a/b", "localhost:5000/a/b"),
            ("localhost:5000/a/b:1", "localhost:5000/a/b"),
        ] {
            assert_eq!(repository(image), expected, "{image}");
        }
    }

    #[test]
    fn an_unmapped_image_says_what_can_be_used() {
        let mapping = |repository: &str| ImageMapping {
            repository: repository.into(),
            program: Program::File("/bin/true".into()),
            args: vec![],
            env: vec![],
            port: PortNotice::Listen,
        };
        let mappings = [mapping("kaos"), mapping("docker.io/library/busybox")];
        assert_eq!(resolve(&mappings, "kaos:9").unwrap().repository, "kaos");
        assert_eq!(
            resolve(&mappings, "busybox:1").unwrap().repository,
            "docker.io/library/busybox"
        );
        let message = resolve(&mappings, "kaos-extra:1").unwrap_err().to_string();
        assert!(
            message.contains("\"kaos-extra:1\"") && message.contains("only kaos, "),
            "{message}"
        );
    }

    #[test]
    fn a_program_of_the_machine_is_found_on_the_path_or_says_what_to_install() {
        let program = |name: &str| Program::OnPath {
            name: name.to_owned(),
            install: "install it".to_owned(),
        };
        assert!(program("sh").locate().unwrap().ends_with("sh"));
        let message = program("no-such-program-of-anybody").locate().unwrap_err();
        assert!(
            message.contains("\"no-such-program-of-anybody\"") && message.ends_with("install it"),
            "{message}"
        );
    }
}
