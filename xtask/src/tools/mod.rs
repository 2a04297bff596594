//! Programs the tasks need and that no package of a bare machine brings, built once into the cache folder.

pub(crate) mod cargo_deny;
pub(crate) mod go;
pub(crate) mod python;

use std::fs::{self, File};
use std::path::Path;

use anyhow::{Context, Result};

/// A tool, or why it cannot be had on this machine.
#[derive(Debug)]
pub(crate) enum Tool<T> {
    /// It is built.
    Ready(T),
    /// It cannot be built here, and why.
    Missing(String),
}

impl<T> Tool<T> {
    /// The tool, or its absence as an error.
    pub(crate) fn required(self) -> Result<T> {
        match self {
            Self::Ready(tool) => Ok(tool),
            Self::Missing(reason) => Err(anyhow::anyhow!(reason)),
        }
    }
}

/// Makes the folder `place` with `build`, unless it is there.
///
/// `build` fills a folder beside it, which gets its name only when all went well: what an interrupted run
/// left behind is never taken for a result. Runs that want the same folder wait for each other.
pub(crate) fn build_once(place: &Path, what: &str, build: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    if place.exists() {
        return Ok(());
    }
    let parent = place.parent().context("a folder of the cache")?;
    fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))?;
    let lock_path = place.with_added_extension("lock");
    let lock = File::create(&lock_path).with_context(|| format!("cannot create {}", lock_path.display()))?;
    lock.lock()
        .with_context(|| format!("cannot lock {}", lock_path.display()))?;
    if place.exists() {
        return Ok(());
    }
    let partial = place.with_added_extension("partial");
    if partial.exists() {
        fs::remove_dir_all(&partial).with_context(|| format!("cannot remove {}", partial.display()))?;
    }
    fs::create_dir(&partial).with_context(|| format!("cannot create {}", partial.display()))?;
    eprintln!("building {what} into {} (once)", place.display());
    build(&partial).with_context(|| format!("cannot build {what}"))?;
    fs::rename(&partial, place).with_context(|| format!("cannot rename {}", partial.display()))
}
