//! Records of running processes on disk, so that whatever a killed node leaves behind is ended at the next
//! start.

use std::{
    fs, io,
    path::{Path, PathBuf},
    thread::sleep,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use super::table::{birth, family, kill};
use crate::files::{create_private_dir, write_atomically};

/// How long to wait for killed processes to be gone.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often to look.
const INTERVAL: Duration = Duration::from_millis(5);

/// One process as it is on disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    /// The leader's pid, which is its process group too.
    pub(super) pid: u32,
    /// What tells it from another process that gets the same pid later.
    born: String,
    /// The mark in the environment of the process and its children.
    mark: String,
}

impl Record {
    /// Of a process that runs; `None` when it has ended already.
    pub(super) fn of(pid: u32, mark: &str) -> Option<Self> {
        Some(Self {
            pid,
            born: birth(pid)?,
            mark: mark.to_owned(),
        })
    }

    fn path(&self, dir: &Path) -> PathBuf {
        dir.join(format!("{}-{}.json", self.pid, self.mark))
    }

    /// Writes it, durably.
    pub(super) fn write(&self, dir: &Path) -> io::Result<()> {
        write_atomically(&self.path(dir), &serde_json::to_vec(self)?)
    }

    /// Removes it from disk.
    pub(super) fn remove(&self, dir: &Path) {
        if let Err(error) = fs::remove_file(self.path(dir)) {
            tracing::debug!(%error, pid = self.pid, "the record of a process was gone");
        }
    }

    /// Kills everything that descends from the process and waits until it is gone. Blocks: for blocking
    /// threads. Returns how many were killed.
    pub(super) fn kill_family(&self) -> io::Result<usize> {
        let end = Instant::now() + PATIENCE;
        let mut killed = std::collections::BTreeSet::new();
        loop {
            // Again and again, since a member may have forked between the look and the kill.
            let members = family(self.pid, &self.born, &self.mark);
            if members.is_empty() {
                return Ok(killed.len());
            }
            if Instant::now() > end {
                return Err(io::Error::other(format!(
                    "processes {members:?} do not end after SIGKILL"
                )));
            }
            for member in members {
                kill(member)?;
                killed.insert(member.as_raw_nonzero().get());
            }
            sleep(INTERVAL);
        }
    }
}

/// Ends what an earlier run left behind: for each record in `dir`, the processes that are provably its own.
/// Returns how many were killed. Blocks; for the node's start.
pub(crate) fn reap(dir: &Path) -> io::Result<usize> {
    create_private_dir(dir)?;
    let mut killed = 0;
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let record: Record = match fs::read(&path).and_then(|text| Ok(serde_json::from_slice(&text)?)) {
            Ok(record) => record,
            Err(error) => {
                // A record is whole or not there, so this is a leftover of a write or not ours: it names
                // no process that could be ended safely.
                tracing::warn!(path = %path.display(), %error, "the record of a process cannot be read");
                fs::remove_file(&path)?;
                continue;
            }
        };
        killed += record.kill_family()?;
        fs::remove_file(&path)?;
    }
    Ok(killed)
}
