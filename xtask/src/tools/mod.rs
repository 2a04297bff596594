//! Programs the tasks need and that no package of a bare machine brings, built once into the cache folder.

pub(crate) mod cargo_deny;
pub(crate) mod go;
pub(crate) mod node;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_built_to_the_end_counts() {
        let cache = std::env::temp_dir().join(format!("kaos-build-once-{}", std::process::id()));
        let place = cache.join("tool-1");
        let failed = build_once(&place, "tool", |partial| {
            fs::write(partial.join("half"), "")?;
            anyhow::bail!("interrupted")
        });
        assert_eq!(failed.expect_err("it failed").to_string(), "cannot build tool");
        assert!(!place.exists());

        let write = |text: &'static str| move |partial: &Path| Ok(fs::write(partial.join("whole"), text)?);
        build_once(&place, "tool", write("first")).expect("built");
        build_once(&place, "tool", write("second")).expect("there already");
        assert_eq!(fs::read_to_string(place.join("whole")).expect("a file"), "first");
        assert!(!place.join("half").exists());
        fs::remove_dir_all(&cache).expect("removed");
    }
}
