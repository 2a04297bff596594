//! `kaos up` as the benchmarks run it: on an empty data folder, ended when they are done.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;

use super::load::free_port;
use crate::process::{self, ProcessId};
use crate::workspace::Workspace;

/// A running `kaos up`, ended when it is dropped.
pub(super) struct Instance {
    kaos: PathBuf,
    child: Child,
    data: PathBuf,
    /// Where its agents and tools answer, under the paths of the Gateway.
    pub(super) gateway: SocketAddr,
}

impl Instance {
    /// Starts it with a manifest of the repository, and waits until all is ready.
    pub(super) fn start(workspace: &Workspace, kaos: &Path, manifest: &str) -> Result<Self> {
        let data = std::env::temp_dir().join(format!("kaos-bench-{}", std::process::id()));
        if data.exists() {
            fs::remove_dir_all(&data).with_context(|| format!("cannot remove {}", data.display()))?;
        }
        let port = free_port()?;
        let child = Command::new(kaos)
            .current_dir(&workspace.root)
            .arg("--data-dir")
            .arg(&data)
            .args(["up", "--gateway-port", &port.to_string(), manifest])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start `kaos up`")?;
        let mut instance = Self {
            kaos: kaos.to_owned(),
            child,
            data,
            gateway: SocketAddr::from(([127, 0, 0, 1], port)),
        };
        let mut output = BufReader::new(instance.child.stdout.take().context("the output is piped")?);
        let mut line = String::new();
        while !line.starts_with("Ready in ") {
            line.clear();
            ensure!(
                output.read_line(&mut line)? > 0,
                "`kaos up` ended before it was ready"
            );
        }
        // Nothing reads what it prints from here on, and a full pipe would hold it up.
        thread::spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
        Ok(instance)
    }

    /// What `kaos chat` prints as the answer of an agent.
    pub(super) fn ask(&self, agent: &str, question: &str) -> Result<String> {
        let mut chat = Command::new(&self.kaos);
        chat.arg("--data-dir")
            .arg(&self.data)
            .args(["chat", agent, question]);
        process::output(&mut chat)
    }

    /// It and everything below it, without Python.
    pub(super) fn processes(&self) -> Result<Vec<i32>> {
        let all: Vec<(i32, process::Stat)> = fs::read_dir("/proc")
            .context("cannot list processes")?
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .filter_map(|pid| Some((pid, process::stat(pid)?)))
            .collect();
        let mut tree = vec![i32::try_from(self.child.id())?];
        let mut next = 0;
        while let Some(parent) = tree.get(next).copied() {
            tree.extend(
                all.iter()
                    .filter(|(_, stat)| stat.parent == parent)
                    .map(|(pid, _)| *pid),
            );
            next += 1;
        }
        let python = |pid: &i32| process::stat(*pid).is_none_or(|stat| stat.name.starts_with("python"));
        tree.retain(|pid| !python(pid));
        Ok(tree)
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // As Ctrl-C does; what it leaves behind is the subject of tests, not of this.
        let ended = ProcessId::of(self.child.id()).and_then(|process| process.signal(Signal::INT));
        if ended.is_err() || self.child.wait().is_err() {
            eprintln!("cannot end `kaos up`");
        }
        if let Err(error) = fs::remove_dir_all(&self.data) {
            eprintln!("cannot remove {}: {error}", self.data.display());
        }
    }
}
