//! Which program of this machine stands for a container image.

use std::path::PathBuf;

/// An image that this node can run, as a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageMapping {
    /// The image's name without tag and digest, as `kaos` or `ghcr.io/example/tool`.
    pub repository: String,
    /// The program that is the image's entry point.
    pub program: PathBuf,
    /// Arguments of the entry point: they stand before the container's own `args`, and before its `command`
    /// too, since a program has no other commands inside.
    pub args: Vec<String>,
    /// Variables of the image; the container's own win.
    pub env: Vec<(String, String)>,
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
            program: "/bin/true".into(),
            args: vec![],
            env: vec![],
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
}
