//! Starting and ending one process.

use std::{
    ffi::OsString,
    io,
    os::unix::process::ExitStatusExt as _,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    sync::{Arc, mpsc},
    time::Duration,
};

use jiff::Timestamp;
use kaos_seams::Seams;
use rustix::process::Pid;
pub(crate) use rustix::process::Signal;
use tokio::{
    io::AsyncWriteExt as _,
    process::{Child, Command},
    runtime::Handle,
    sync::{oneshot, watch},
};
use tokio_util::task::TaskTracker;

use super::{
    logs::{Output, Stream, pump},
    record::Record,
    table::MARK_VARIABLE,
};
use crate::launcher::Launcher;

/// How long the output of an ended process is still read, when something that escaped holds it open.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// What to run.
#[derive(Debug)]
pub(crate) struct ProcessSpec {
    pub(crate) program: PathBuf,
    pub(crate) args: Vec<String>,
    /// The whole environment: nothing of the node's own is passed on.
    pub(crate) env: Vec<(String, String)>,
    pub(crate) working_dir: PathBuf,
    /// Where its output goes.
    pub(crate) output: Output,
}

/// Why a process could not be started.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SpawnError {
    #[error("cannot start {program}: {source}")]
    Start { program: String, source: io::Error },
    #[error("cannot put the process on record: {0}")]
    Record(io::Error),
    #[error("the working directory {0} does not exist")]
    WorkingDir(String),
    #[error("the node is stopping")]
    Stopping,
}

/// How a process ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Exit {
    /// The exit code; 128 plus the signal when one ended it, as a shell says it.
    pub(crate) code: i32,
    pub(crate) signal: Option<i32>,
    pub(crate) started: Timestamp,
    pub(crate) finished: Timestamp,
}

impl Exit {
    fn new(status: &ExitStatus, started: Timestamp, finished: Timestamp) -> Self {
        let signal = status.signal();
        let code = status.code().or(signal.map(|signal| 128 + signal)).unwrap_or(-1);
        Self {
            code,
            signal,
            started,
            finished,
        }
    }
}

/// A process that was started. Dropping it does not end it: that is for [`Process::signal`].
#[derive(Clone, Debug)]
pub(crate) struct Process {
    group: Pid,
    pub(crate) started: Timestamp,
    exit: watch::Receiver<Option<Exit>>,
}

impl Process {
    /// Sends `signal` to the whole process group, unless it has ended.
    pub(crate) fn signal(&self, signal: Signal) {
        if self.exit.borrow().is_some() {
            return;
        }
        if let Err(error) = rustix::process::kill_process_group(self.group, signal) {
            tracing::debug!(%error, "a process ended before the signal");
        }
    }

    /// Waits for its end, and that of all its children.
    pub(crate) async fn wait(&mut self) -> Exit {
        match self.exit.wait_for(Option::is_some).await.map(|exit| exit.clone()) {
            Ok(Some(exit)) => exit,
            // Its guard is gone, which happens only when the runtime shuts down.
            _ => std::future::pending().await,
        }
    }
}

type Job = (Command, oneshot::Sender<io::Result<Child>>);

/// Starts processes, all from one thread that lives as long as the spawner: the parent-death signal comes
/// when the *thread* that started a process ends, and a runtime's threads may end at any time.
#[derive(Clone, Debug)]
pub(crate) struct Spawner {
    jobs: Arc<mpsc::Sender<Job>>,
    launcher: Launcher,
    records: PathBuf,
    seams: Seams,
    running: TaskTracker,
}

impl Spawner {
    /// Starts the thread, inside a runtime. `records` is the folder that [`super::reap`] reads.
    pub(crate) fn start(launcher: Launcher, records: &Path, seams: Seams) -> io::Result<Self> {
        let (jobs, queue) = mpsc::channel::<Job>();
        let runtime = Handle::current();
        std::thread::Builder::new()
            .name("kaos-spawn".to_owned())
            .spawn(move || {
                let _runtime = runtime.enter();
                for (mut command, reply) in queue {
                    // A caller that is gone drops the child, which ends it: it was not released yet.
                    let _ = reply.send(command.spawn());
                }
            })?;
        Ok(Self {
            jobs: Arc::new(jobs),
            launcher,
            records: records.to_owned(),
            seams,
            running: TaskTracker::new(),
        })
    }

    /// Waits until every process that was started has ended and is on record no more. Nothing is to be started
    /// meanwhile.
    pub(crate) async fn finished(&self) {
        self.running.close();
        self.running.wait().await;
    }

    /// Starts a process. It runs once it is on record.
    pub(crate) async fn spawn(&self, spec: ProcessSpec) -> Result<Process, SpawnError> {
        let ProcessSpec {
            program,
            args,
            env,
            working_dir,
            output,
        } = spec;
        let _starting = self.running.token();
        if !working_dir.is_dir() {
            return Err(SpawnError::WorkingDir(working_dir.display().to_string()));
        }
        let shown = program.display().to_string();
        let failed = |source| SpawnError::Start {
            program: shown.clone(),
            source,
        };
        let mark = self.seams.random.hex(16);
        let parent = OsString::from(std::process::id().to_string());
        let mut command = Command::new(&self.launcher.program);
        command
            .args(&self.launcher.args)
            .arg(parent)
            .arg(&program)
            .args(args)
            .env_clear()
            .envs(env)
            .env(MARK_VARIABLE, &mark)
            .current_dir(working_dir)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let (reply, started) = oneshot::channel();
        self.jobs
            .send((command, reply))
            .map_err(|_| SpawnError::Stopping)?;
        let child = started.await.map_err(|_| SpawnError::Stopping)?.map_err(failed)?;
        let gone = || io::Error::other("it ended at once");
        let pid = child.id().ok_or_else(gone).map_err(failed)?;
        let group = i32::try_from(pid)
            .ok()
            .and_then(Pid::from_raw)
            .ok_or_else(gone)
            .map_err(failed)?;
        let record = Record::of(pid, &mark).ok_or_else(gone).map_err(failed)?;
        record.write(&self.records).map_err(SpawnError::Record)?;
        // From the record on nothing waits here: whoever gives up waiting would leave it behind.
        let now = self.seams.clock.now();
        let (done, exit) = watch::channel(None);
        self.running
            .spawn(guard(child, record, self.clone(), output, done, now));
        Ok(Process {
            group,
            started: now,
            exit,
        })
    }
}

/// Lets a process run that is on record, and stays with it until it has ended with all its children and its output
/// is written.
async fn guard(
    mut child: Child,
    record: Record,
    spawner: Spawner,
    output: Output,
    done: watch::Sender<Option<Exit>>,
    started: Timestamp,
) {
    if let Some(mut stdin) = child.stdin.take() {
        // It cannot take the byte when it has ended; then its exit tells.
        let _ = stdin.write_all(&[1]).await;
    }
    let clock = spawner.seams.clock.clone();
    let output = Arc::new(output);
    let stdout = child
        .stdout
        .take()
        .map(|out| tokio::spawn(pump(out, Stream::Stdout, output.clone(), clock.clone())));
    let stderr = child
        .stderr
        .take()
        .map(|err| tokio::spawn(pump(err, Stream::Stderr, output.clone(), clock.clone())));
    let status = match child.wait().await {
        Ok(status) => status,
        Err(error) => {
            tracing::error!(%error, pid = record.pid, "cannot wait for a process");
            ExitStatus::from_raw(0xff00)
        }
    };
    let finished = clock.now();
    // A container is over when its first process is: what it left running ends with it.
    let records = spawner.records.clone();
    let ended = tokio::task::spawn_blocking(move || {
        match record.kill_family() {
            Ok(_) => record.remove(&records),
            // The record stays, so that the next start tries again.
            Err(error) => tracing::error!(%error, pid = record.pid, "what a container left running stays"),
        }
    });
    let _ = ended.await;
    for mut reading in [stdout, stderr].into_iter().flatten() {
        if tokio::time::timeout(LAST_WORDS, &mut reading).await.is_err() {
            reading.abort();
            let _ = reading.await;
        }
    }
    drop(output);
    done.send_replace(Some(Exit::new(&status, started, finished)));
}
