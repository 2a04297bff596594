//! A project folder of its own, and `kaos up` running in it.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

use crate::{Process, descendants, kaos, kubectl, repository};

/// What waits for a slow machine, not for a slow program: figures are measured elsewhere.
const PATIENCE: Duration = Duration::from_secs(240);

/// What a finished command printed.
#[derive(Clone, Debug)]
pub struct Output {
    /// Its exit status.
    pub status: ExitStatus,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Output {
    /// The output of a command that was meant to succeed.
    ///
    /// # Errors
    /// When it failed; the error holds what it printed.
    pub fn ok(self) -> Result<Self> {
        ensure!(
            self.status.success(),
            "{}\n{}{}",
            self.status,
            self.stdout,
            self.stderr
        );
        Ok(self)
    }

    /// The error text of a command that was meant to fail.
    ///
    /// # Errors
    /// When it succeeded.
    pub fn failed(self) -> Result<String> {
        ensure!(
            !self.status.success(),
            "it succeeded:\n{}{}",
            self.stdout,
            self.stderr
        );
        Ok(self.stderr)
    }
}

/// A folder as a user's project: the samples in it, and nothing of the user's configuration.
pub struct Folder {
    folder: tempfile::TempDir,
}

impl Folder {
    /// A new folder with a copy of the samples.
    ///
    /// # Errors
    /// When files cannot be copied.
    pub fn new() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        copy_folder(&repository().join("samples"), &folder.path().join("samples"))?;
        Ok(Self { folder })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Writes a file into it.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.path().join(name);
        fs::write(&path, text)?;
        Ok(path)
    }

    /// A command in this folder with `kaos` on its path and a home of its own.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        let binaries = kaos().parent().map(Path::to_owned).unwrap_or_default();
        let kubectl = kubectl().parent().map(Path::to_owned).unwrap_or_default();
        let mut path = vec![binaries, kubectl];
        path.extend(std::env::split_paths(
            &std::env::var_os("PATH").unwrap_or_default(),
        ));
        command
            .current_dir(self.path())
            .env("PATH", std::env::join_paths(path).unwrap_or_default())
            .env("HOME", self.path())
            .env_remove("KUBECONFIG")
            .env_remove("KAOS_LOG")
            .env_remove("KAOS_DATA_DIR")
            .stdin(Stdio::null());
        command
    }

    /// Runs a command to its end.
    ///
    /// # Errors
    /// When it cannot be started, or does not end in time.
    pub fn run(&self, program: &str, arguments: &[&str]) -> Result<Output> {
        let mut command = self.command(program);
        command.args(arguments);
        finish(command).with_context(|| format!("{program} {arguments:?}"))
    }

    /// Runs a line as a user pastes it into a shell.
    ///
    /// # Errors
    /// As [`Folder::run`].
    pub fn shell(&self, line: &str) -> Result<Output> {
        self.run("sh", &["-c", line])
    }

    /// Runs kubectl against the instance of this folder.
    ///
    /// # Errors
    /// As [`Folder::run`].
    pub fn kubectl(&self, arguments: &[&str]) -> Result<Output> {
        let mut command = self.command(kubectl());
        command.args(["--kubeconfig", ".kaos/kubeconfig"]).args(arguments);
        finish(command).with_context(|| format!("kubectl {arguments:?}"))
    }

    /// Starts `kaos up` with these arguments.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn up(&self, arguments: &[&str]) -> Result<Up> {
        self.start(&[&["up"], arguments].concat())
    }

    /// Starts `kaos` with these arguments.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(&self, arguments: &[&str]) -> Result<Up> {
        self.start_with(arguments, &[])
    }

    /// As [`Folder::start`], with variables in its environment.
    ///
    /// # Errors
    /// As [`Folder::start`].
    pub fn start_with(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Result<Up> {
        let mut command = self.command(kaos());
        command
            .args(arguments)
            .envs(variables.iter().copied())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let text = Arc::new(Mutex::new(String::new()));
        let readers = vec![
            copy(child.stdout.take().context("no standard output")?, text.clone()),
            copy(child.stderr.take().context("no standard error")?, text.clone()),
        ];
        Ok(Up { child, text, readers })
    }
}

fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_folder(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

fn finish(mut command: Command) -> Result<Output> {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let (out, err) = (
        Arc::new(Mutex::new(String::new())),
        Arc::new(Mutex::new(String::new())),
    );
    let readers = [
        copy(child.stdout.take().context("no standard output")?, out.clone()),
        copy(child.stderr.take().context("no standard error")?, err.clone()),
    ];
    let status = ended(&mut child)?;
    for reader in readers {
        let _ = reader.join();
    }
    let text = |text: &Mutex<String>| text.lock().map(|text| text.clone()).unwrap_or_default();
    Ok(Output {
        status,
        stdout: text(&out),
        stderr: text(&err),
    })
}

fn copy(from: impl Read + Send + 'static, to: Arc<Mutex<String>>) -> JoinHandle<()> {
    thread::spawn(move || {
        let mut from = BufReader::new(from);
        let mut line = Vec::new();
        while from.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
            if let Ok(mut to) = to.lock() {
                to.push_str(&String::from_utf8_lossy(&line));
            }
            line.clear();
        }
    })
}

fn ended(child: &mut Child) -> Result<ExitStatus> {
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if begun.elapsed() > PATIENCE {
            child.kill()?;
            bail!("it did not end within {} s", PATIENCE.as_secs());
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// A running `kaos`, `kaos up` most often. Dropping it kills it.
pub struct Up {
    child: Child,
    text: Arc<Mutex<String>>,
    readers: Vec<JoinHandle<()>>,
}

impl Up {
    /// What it has printed so far, standard output and standard error together.
    pub fn text(&self) -> String {
        self.text.lock().map(|text| text.clone()).unwrap_or_default()
    }

    /// Waits until it has printed `words`.
    ///
    /// # Errors
    /// When it ends before, or does not print them in time.
    pub fn prints(&mut self, words: &str) -> Result<String> {
        let begun = Instant::now();
        loop {
            let text = self.text();
            if text.contains(words) {
                return Ok(text);
            }
            if let Some(status) = self.child.try_wait()? {
                bail!("it ended ({status}) without printing {words:?}:\n{}", self.text());
            }
            ensure!(begun.elapsed() < PATIENCE, "it did not print {words:?}:\n{text}");
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until all is ready and returns what was printed.
    ///
    /// # Errors
    /// As [`Up::prints`].
    pub fn ready(&mut self) -> Result<String> {
        self.prints("\nReady in ")?;
        // The lines to paste follow, and an empty one.
        thread::sleep(Duration::from_millis(100));
        Ok(self.text())
    }

    /// Its process and every one below it.
    pub fn processes(&self) -> Vec<Process> {
        let mut all: Vec<Process> = Process::read(self.child.id()).into_iter().collect();
        all.extend(descendants(self.child.id()));
        all
    }

    /// Sends a signal.
    ///
    /// # Errors
    /// When it has ended.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let pid = i32::try_from(self.child.id())
            .ok()
            .and_then(Pid::from_raw)
            .context("no process")?;
        Ok(kill_process(pid, signal)?)
    }

    /// Waits until it has ended.
    ///
    /// # Errors
    /// When it does not.
    pub fn ended(mut self) -> Result<Output> {
        let status = ended(&mut self.child)?;
        for reader in self.readers.drain(..) {
            let _ = reader.join();
        }
        Ok(Output {
            status,
            stdout: String::new(),
            stderr: self.text(),
        })
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
