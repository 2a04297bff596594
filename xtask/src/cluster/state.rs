//! What a cluster's folder remembers: its level and its processes.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::Level;
use crate::process::{self, ProcessId};

/// How long the processes of a cluster live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lifetime {
    /// Until `down`.
    UntilDown,
    /// At most as long as this process, also when it is killed.
    TiedToThisProcess,
}

/// The processes of a cluster.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct State {
    /// What was asked for and answers.
    pub(crate) level: Level,
    /// In the order they were started.
    pub(crate) daemons: Vec<Daemon>,
}

/// One process of a cluster.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Daemon {
    /// The name of the program.
    pub(crate) name: String,
    /// The process.
    pub(crate) process: ProcessId,
}

impl State {
    fn path(dir: &Path) -> PathBuf {
        dir.join("cluster.json")
    }

    /// What the folder says, or `None` if it holds no cluster.
    pub(crate) fn load(dir: &Path) -> Result<Option<Self>> {
        let path = Self::path(dir);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
        };
        let state =
            serde_json::from_str(&text).with_context(|| format!("cannot parse {}", path.display()))?;
        Ok(Some(state))
    }

    /// Writes the state, never half of it.
    pub(crate) fn save(&self, dir: &Path) -> Result<()> {
        let path = Self::path(dir);
        let partial = path.with_added_extension("partial");
        fs::write(&partial, serde_json::to_vec_pretty(self)?)
            .with_context(|| format!("cannot write {}", partial.display()))?;
        fs::rename(&partial, &path).with_context(|| format!("cannot write {}", path.display()))
    }

    /// Whether every process still runs.
    pub(crate) fn is_running(&self) -> bool {
        !self.daemons.is_empty() && self.daemons.iter().all(|daemon| daemon.process.is_running())
    }
}

impl Daemon {
    /// Starts a program in a process group of its own, so that a Ctrl-C meant for this process spares it.
    pub(crate) fn spawn(name: &str, command: &Command, log: &Path, lifetime: Lifetime) -> Result<Self> {
        let mut command = match lifetime {
            Lifetime::UntilDown => copy(command),
            Lifetime::TiedToThisProcess => tied(command),
        };
        let output = File::create(log).with_context(|| format!("cannot create {}", log.display()))?;
        let child = command
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .with_context(|| format!("cannot start {}", process::display(&command)))?;
        Ok(Self {
            name: name.to_owned(),
            process: ProcessId::of(child.id())?,
        })
    }
}

fn copy(command: &Command) -> Command {
    let mut copy = Command::new(command.get_program());
    copy.args(command.get_args());
    copy
}

/// The same program started through this one (the hidden command `tied`).
fn tied(command: &Command) -> Command {
    // Not by its path: a build that this program runs may replace the file.
    let mut tied = Command::new("/proc/self/exe");
    tied.arg("tied")
        .arg(std::process::id().to_string())
        .arg("--")
        .arg(command.get_program())
        .args(command.get_args());
    tied
}
