//! The test cluster: a real etcd, API server and controllers on loopback, without nodes.
//!
//! Its state is one folder. The folder says which processes belong to it, so that `down` ends them all and
//! `up` tells a cluster that runs from what a killed one left behind.

mod files;
mod state;

use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::ops::Deref;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use self::files::Files;
use self::state::{Daemon, Lifetime, State};
use crate::process;
use crate::tools::go::ClusterPrograms;
use crate::workspace::{Workspace, short_hash};

pub(crate) use self::state::Lifetime as ClusterLifetime;

/// How much of Kubernetes runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    /// The API server and its store.
    Api,
    /// Kubernetes' own controllers as well: Deployments, garbage collection, service accounts.
    Controllers,
}

/// How long one part may take to answer. Far more than it takes, because builds run beside it.
const READY_DEADLINE: Duration = Duration::from_secs(90);
/// How long a process may take to end before it is killed; nothing it holds is worth waiting for.
const STOP_PATIENCE: Duration = Duration::from_secs(3);
/// A port found free can be taken by another process before it is used; then all is tried again.
const ATTEMPTS: usize = 3;

/// A test cluster: the folder of its state.
#[derive(Clone, Debug)]
pub(crate) struct Cluster {
    dir: PathBuf,
}

impl Cluster {
    /// The cluster of a folder, running or not.
    pub(crate) fn at(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// The cluster a clone uses unless told otherwise: one per clone, in the cache folder.
    pub(crate) fn of_clone(workspace: &Workspace) -> Self {
        let key = short_hash([workspace.root.as_os_str().as_encoded_bytes()]);
        Self::at(workspace.cache.join("clusters").join(key))
    }

    /// A cluster for the time of this process alone. Removes those that killed processes left behind.
    pub(crate) fn of_this_process(workspace: &Workspace) -> Result<ClusterGuard> {
        let folder = workspace.cache.join("clusters");
        fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        for entry in fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))? {
            let path = entry?.path();
            let pid = path
                .file_name()
                .and_then(|name| name.to_str()?.strip_prefix(RUN)?.parse().ok());
            if pid.is_some_and(|pid| process::stat(pid).is_none()) {
                // Dropping it ends what is left of it.
                drop(ClusterGuard(Self::at(path)));
            }
        }
        Ok(ClusterGuard(Self::at(
            folder.join(format!("{RUN}{}", std::process::id())),
        )))
    }

    /// The kubeconfig of the cluster's administrator.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.dir.join("kubeconfig")
    }

    /// Starts what `level` asks for and does not run, and returns when it answers.
    pub(crate) fn up(&self, level: Level, programs: &ClusterPrograms, lifetime: Lifetime) -> Result<()> {
        let _lock = self.lock()?;
        if let Some(state) = State::load(&self.dir)? {
            if state.is_running() && self.answers(programs) {
                return if state.level >= level {
                    Ok(())
                } else {
                    self.add_controllers(state, programs, lifetime)
                };
            }
            eprintln!("removing what an ended cluster left in {}", self.dir.display());
            self.clear(&state)?;
        }
        let mut attempt = 1;
        loop {
            match self.start(level, programs, lifetime) {
                Ok(()) => return Ok(()),
                Err(error) if attempt < ATTEMPTS => {
                    eprintln!("{error:#}\ntrying again");
                    self.clear_stored()?;
                    attempt += 1;
                }
                Err(error) => {
                    self.clear_stored()?;
                    return Err(error);
                }
            }
        }
    }

    /// Ends every process of the cluster and removes its folder. Says whether there was one.
    pub(crate) fn down(&self) -> Result<bool> {
        let _lock = self.lock()?;
        let Some(state) = State::load(&self.dir)? else {
            return Ok(false);
        };
        self.clear(&state)?;
        Ok(true)
    }

    /// Whether its processes run.
    pub(crate) fn is_running(&self) -> Result<bool> {
        Ok(State::load(&self.dir)?.is_some_and(|state| state.is_running()))
    }

    fn start(&self, level: Level, programs: &ClusterPrograms, lifetime: Lifetime) -> Result<()> {
        let [etcd, etcd_peers, api] = free_ports()?;
        let files = Files::write(&self.dir, api)?;
        let mut state = State {
            level: Level::Api,
            daemons: Vec::new(),
        };

        let mut command = Command::new(&programs.etcd);
        let (clients, peers) = (
            format!("http://127.0.0.1:{etcd}"),
            format!("http://127.0.0.1:{etcd_peers}"),
        );
        command
            .arg("--name=test")
            .arg(format!("--data-dir={}", self.dir.join("etcd").display()))
            .arg(format!("--listen-client-urls={clients}"))
            .arg(format!("--advertise-client-urls={clients}"))
            .arg(format!("--listen-peer-urls={peers}"))
            .arg(format!("--initial-advertise-peer-urls={peers}"))
            .arg(format!("--initial-cluster=test={peers}"))
            // What it holds is thrown away; waiting for the disk would only make tests slow.
            .arg("--unsafe-no-fsync")
            .arg("--log-level=warn");
        self.spawn(&mut state, "etcd", &command, lifetime)?;
        self.wait_for(&state, "etcd", || {
            TcpStream::connect((Ipv4Addr::LOCALHOST, etcd)).is_ok()
        })?;

        let mut command = Command::new(&programs.kube_apiserver);
        command
            .arg(format!("--etcd-servers={clients}"))
            .arg(format!("--secure-port={api}"))
            .args(["--bind-address=127.0.0.1", "--advertise-address=127.0.0.1"])
            // It would publish its address for pods, and refuses to publish a loopback address.
            .arg("--endpoint-reconciler-type=none")
            .arg(format!("--tls-cert-file={}", files.server_certificate.display()))
            .arg(format!("--tls-private-key-file={}", files.server_key.display()))
            .arg(format!(
                "--service-account-key-file={}",
                files.account_public_key.display()
            ))
            .arg(format!(
                "--service-account-signing-key-file={}",
                files.account_key.display()
            ))
            .arg("--service-account-issuer=https://kubernetes.default.svc")
            .arg(format!("--token-auth-file={}", files.tokens.display()))
            .args([
                "--authorization-mode=Node,RBAC",
                "--service-cluster-ip-range=10.96.0.0/16",
            ])
            .args(["--allow-privileged=true", "--profiling=false"])
            // Many tests at once are one client to it; it must not slow them down.
            .arg("--enable-priority-and-fairness=false");
        self.spawn(&mut state, "kube-apiserver", &command, lifetime)?;
        self.wait_for(&state, "kube-apiserver", || self.answers(programs))?;

        if level == Level::Controllers {
            self.add_controllers(state, programs, lifetime)
        } else {
            Ok(())
        }
    }

    fn add_controllers(
        &self,
        mut state: State,
        programs: &ClusterPrograms,
        lifetime: Lifetime,
    ) -> Result<()> {
        let files = Files::of(&self.dir);
        let mut command = Command::new(&programs.kube_controller_manager);
        command
            .arg(format!("--kubeconfig={}", self.kubeconfig().display()))
            .arg(format!(
                "--service-account-private-key-file={}",
                files.account_key.display()
            ))
            .arg(format!("--root-ca-file={}", files.authority.display()))
            .args(["--leader-elect=false", "--secure-port=0", "--profiling=false"])
            // The defaults are for a shared cluster and would make tests wait.
            .args(["--kube-api-qps=500", "--kube-api-burst=1000"]);
        self.spawn(&mut state, "kube-controller-manager", &command, lifetime)?;
        // The first thing a new namespace needs from the controllers.
        self.wait_for(&state, "kube-controller-manager", || {
            self.kubectl(
                programs,
                &["get", "serviceaccount", "default", "--namespace=default"],
            )
        })?;
        state.level = Level::Controllers;
        state.save(&self.dir)
    }

    fn spawn(&self, state: &mut State, name: &str, command: &Command, lifetime: Lifetime) -> Result<()> {
        let log = self.log(name);
        state.daemons.push(Daemon::spawn(name, command, &log, lifetime)?);
        state.save(&self.dir)
    }

    fn log(&self, name: &str) -> PathBuf {
        self.dir.join("logs").join(name)
    }

    /// Waits until `ready`, and no longer than the process lives.
    fn wait_for(&self, state: &State, name: &str, ready: impl Fn() -> bool) -> Result<()> {
        let started = Instant::now();
        while !ready() {
            let late = started.elapsed() > READY_DEADLINE;
            if late || !state.is_running() {
                let log = fs::read_to_string(self.log(name)).unwrap_or_default();
                let lines: Vec<&str> = log.lines().collect();
                let tail = lines[lines.len().saturating_sub(15)..].join("\n");
                let what = if late { "does not answer" } else { "ended" };
                bail!("{name} {what}; the end of its log:\n{tail}");
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    fn answers(&self, programs: &ClusterPrograms) -> bool {
        self.kubectl(programs, &["get", "--raw", "/readyz"])
    }

    fn kubectl(&self, programs: &ClusterPrograms, arguments: &[&str]) -> bool {
        Command::new(&programs.kubectl)
            .arg(format!("--kubeconfig={}", self.kubeconfig().display()))
            .arg("--request-timeout=5s")
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    }

    fn clear_stored(&self) -> Result<()> {
        match State::load(&self.dir)? {
            Some(state) => self.clear(&state),
            None => Ok(()),
        }
    }

    fn clear(&self, state: &State) -> Result<()> {
        for daemon in state.daemons.iter().rev() {
            daemon
                .process
                .end(STOP_PATIENCE)
                .with_context(|| format!("cannot end {}", daemon.name))?;
        }
        fs::remove_dir_all(&self.dir).with_context(|| format!("cannot remove {}", self.dir.display()))
    }

    fn lock_path(&self) -> PathBuf {
        self.dir.with_added_extension("lock")
    }

    /// Keeps other runs of this task away from the folder. The lock lies beside it, because `clear` removes it.
    fn lock(&self) -> Result<File> {
        let path = self.lock_path();
        let parent = path.parent().context("the state folder has no parent")?;
        fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))?;
        let lock = File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
        lock.lock()
            .with_context(|| format!("cannot lock {}", path.display()))?;
        Ok(lock)
    }
}

/// How the folder of a cluster is named that belongs to one process; its id follows.
const RUN: &str = "run-";

/// Ends a cluster when a run that used it is over.
#[derive(Debug)]
pub(crate) struct ClusterGuard(Cluster);

impl Deref for ClusterGuard {
    type Target = Cluster;
    fn deref(&self) -> &Cluster {
        &self.0
    }
}

impl ClusterGuard {
    /// Ends the cluster and leaves nothing: the folder is never used again, nor its lock.
    fn end(&self) -> Result<()> {
        self.0.down()?;
        let lock = self.0.lock_path();
        fs::remove_file(&lock).with_context(|| format!("cannot remove {}", lock.display()))
    }
}

impl Drop for ClusterGuard {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            eprintln!("cannot end the test cluster: {error:#}");
        }
    }
}

/// Ports nobody listens on. They are held together until all are found, so that they differ.
fn free_ports<const N: usize>() -> Result<[u16; N]> {
    let mut held = Vec::with_capacity(N);
    let mut ports = [0; N];
    for port in &mut ports {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free port on 127.0.0.1")?;
        *port = listener.local_addr()?.port();
        held.push(listener);
    }
    Ok(ports)
}

/// Prints what a shell needs to talk to the cluster.
pub(crate) fn print_env(cluster: &Cluster, programs: &ClusterPrograms) {
    println!("export KUBECONFIG={}", cluster.kubeconfig().display());
    println!("export KAOS_TEST_KUBECONFIG={}", cluster.kubeconfig().display());
    println!("export KUBECTL={}", programs.kubectl.display());
}

/// One line about a program of the cluster, for people who run it by hand.
pub(crate) fn describe(cluster: &Cluster, programs: &ClusterPrograms) -> Result<String> {
    let version = process::output(
        Command::new(&programs.kubectl)
            .arg(format!("--kubeconfig={}", cluster.kubeconfig().display()))
            .args(["get", "--raw", "/version"]),
    )?;
    let version: serde_json::Value = serde_json::from_str(&version).context("/version is not JSON")?;
    Ok(format!(
        "Kubernetes {} answers, kubeconfig {}",
        version["gitVersion"].as_str().unwrap_or("of an unknown version"),
        cluster.kubeconfig().display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_differ() {
        let [first, second, third] = free_ports().expect("ports");
        assert!(first != second && second != third && first != third);
    }

    #[test]
    fn a_folder_without_a_cluster_is_left_alone() {
        let dir = std::env::temp_dir().join(format!("kaos-no-cluster-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("a folder");
        let file = dir.join("mine");
        fs::write(&file, "").expect("a file");
        assert!(!Cluster::at(dir.clone()).down().expect("nothing to do"));
        assert!(file.exists());
        fs::remove_dir_all(&dir).expect("removed");
        fs::remove_file(Cluster::at(dir).lock_path()).expect("removed");
    }
}
