//! Where things are: the clone, the cache folder outside of it, and whether this is CI.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

/// The clone this task runs in and the folders it may use.
#[derive(Clone, Debug)]
pub(crate) struct Workspace {
    /// The root of the clone.
    pub(crate) root: PathBuf,
    /// Holds what is expensive to build and belongs to no clone: always correct when it is empty.
    pub(crate) cache: PathBuf,
}

impl Workspace {
    /// Finds the clone from what cargo says, and the cache folder from `KAOS_CACHE_DIR`, `XDG_CACHE_HOME`
    /// or `HOME`, in this order.
    pub(crate) fn find() -> Result<Self> {
        let manifest_dir = env::var_os("CARGO_MANIFEST_DIR")
            .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
        let root = manifest_dir
            .parent()
            .context("xtask lies in a folder of the workspace")?
            .to_path_buf();
        let cache = if let Some(dir) = env::var_os("KAOS_CACHE_DIR") {
            PathBuf::from(dir)
        } else if let Some(dir) = env::var_os("XDG_CACHE_HOME") {
            Path::new(&dir).join("kaos")
        } else {
            let home = env::var_os("HOME").context("no cache folder: set KAOS_CACHE_DIR or HOME")?;
            Path::new(&home).join(".cache/kaos")
        };
        Ok(Self { root, cache })
    }

    /// A command of this clone's cargo.
    pub(crate) fn cargo(&self) -> Command {
        let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.current_dir(&self.root);
        command
    }

    /// The folder cargo builds into.
    pub(crate) fn target_dir(&self) -> PathBuf {
        env::var_os("CARGO_TARGET_DIR").map_or_else(|| self.root.join("target"), |dir| self.root.join(dir))
    }

    /// The binary `kaos` as cargo builds it: `debug` or `release`.
    pub(crate) fn kaos_binary(&self, profile: &str) -> PathBuf {
        self.target_dir().join(profile).join("kaos")
    }
}

/// Whether this runs in CI, where nothing may be skipped because something is missing.
pub(crate) fn in_ci() -> bool {
    env::var("CI").is_ok_and(|value| !value.is_empty() && value != "false" && value != "0")
}

/// The first 12 hexadecimal digits of the SHA-256 of `parts`: enough to key a folder by its inputs.
pub(crate) fn short_hash<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> String {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update((part.len() as u64).to_be_bytes());
        hasher.update(part);
    }
    hasher
        .finalize()
        .iter()
        .take(6)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::short_hash;

    #[test]
    fn the_hash_tells_where_one_part_ends() {
        assert_eq!(short_hash([b"ab".as_slice(), b"c"]).len(), 12);
        assert_ne!(
            short_hash([b"ab".as_slice(), b"c"]),
            short_hash([b"a".as_slice(), b"bc"])
        );
    }
}
