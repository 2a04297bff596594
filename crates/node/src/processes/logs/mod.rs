//! Logs of containers: written line by line with a timestamp, kept within a size, read back and followed.
//!
//! One folder per container, `<namespace>_<pod>_<uid>/<container>/`, one file per run, named by its restart
//! count, with one older part (`.old`) when it grew too large. A line on disk is
//! `<RFC 3339 time> <stdout|stderr> <F|P> <text>`, as container runtimes write it: `F` ends a line, `P` is a
//! part of one that was too long to be kept whole.

mod output;
mod read;
#[cfg(test)]
mod tests;
mod write;

use std::{
    collections::HashMap,
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::watch;

pub(crate) use output::{Output, Tail, pump};
pub use read::{LogOptions, LogStream};
pub(crate) use write::{LogFile, Stream};

/// The size in bytes at which a file becomes the older part, and the size of what is kept of it.
const PART_LIMIT: u64 = 10 * 1024 * 1024;
/// How many runs of a container are kept: this one and the one before.
const RUNS_KEPT: usize = 2;

/// How far a log that is being written has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Progress {
    /// How often the file became the older part.
    part: u64,
    /// How often something was written.
    writes: u64,
}

/// The logs of this node.
#[derive(Clone, Debug)]
pub(crate) struct Logs {
    dir: PathBuf,
    open: Arc<Mutex<HashMap<PathBuf, watch::Receiver<Progress>>>>,
}

impl Logs {
    pub(crate) fn new(dir: PathBuf) -> Self {
        Self {
            dir,
            open: Arc::default(),
        }
    }

    fn pod_dir(&self, namespace: &str, pod: &str, uid: &str) -> PathBuf {
        self.dir.join(format!("{namespace}_{pod}_{uid}"))
    }

    /// Opens the log of a container's run, and removes those of runs too long ago.
    pub(crate) fn create(
        &self,
        (namespace, pod, uid): (&str, &str, &str),
        container: &str,
        restart: u32,
    ) -> io::Result<LogFile> {
        let dir = self.pod_dir(namespace, pod, uid).join(container);
        crate::files::create_private_dir(&dir)?;
        for old in runs(&dir)?
            .into_iter()
            .rev()
            .filter(|run| *run < restart)
            .skip(RUNS_KEPT - 1)
        {
            for path in [file(&dir, old), older(&file(&dir, old))] {
                match fs::remove_file(path) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
            }
        }
        let path = file(&dir, restart);
        let (log, progress) = LogFile::open(path.clone(), PART_LIMIT)?;
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|_, progress| progress.has_changed().is_ok());
        open.insert(path, progress);
        Ok(log)
    }

    /// Removes the logs of a pod that is gone.
    pub(crate) fn remove(&self, namespace: &str, pod: &str, uid: &str) -> io::Result<()> {
        match fs::remove_dir_all(self.pod_dir(namespace, pod, uid)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn progress(&self, path: &Path) -> Option<watch::Receiver<Progress>> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.get(path)
            .filter(|progress| progress.has_changed().is_ok())
            .cloned()
    }
}

fn file(dir: &Path, restart: u32) -> PathBuf {
    dir.join(format!("{restart}.log"))
}

fn older(path: &Path) -> PathBuf {
    path.with_extension("log.old")
}

/// The restart counts of the runs that have a log, in order.
fn runs(dir: &Path) -> io::Result<Vec<u32>> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut runs = Vec::new();
    for entry in entries {
        let name = entry?.file_name();
        runs.extend(
            name.to_str()
                .and_then(|name| name.strip_suffix(".log")?.parse::<u32>().ok()),
        );
    }
    runs.sort_unstable();
    Ok(runs)
}
