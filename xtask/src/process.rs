//! Running programs: to the end, for their output, or as long as this one; and telling one process from
//! a later one with the same id.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, getppid, kill_process, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};

/// Runs a command to its end, its output going where ours goes.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let line = display(command);
    let status = command
        .status()
        .with_context(|| format!("cannot start `{line}`"))?;
    if !status.success() {
        bail!("`{line}` failed: {status}");
    }
    Ok(())
}

/// Runs a command to its end and returns what it printed.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let line = display(command);
    let output = command
        .output()
        .with_context(|| format!("cannot start `{line}`"))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        bail!("`{line}` failed: {}\n{}", output.status, stderr.trim_end());
    }
    String::from_utf8(output.stdout).with_context(|| format!("`{line}` printed something that is not UTF-8"))
}

/// Whether a program of this name can be started at all.
pub(crate) fn exists(program: &str, probe: &str) -> bool {
    let outcome = Command::new(program)
        .arg(probe)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    !matches!(outcome, Err(error) if error.kind() == ErrorKind::NotFound)
}

/// A command as one would type it.
pub(crate) fn display(command: &Command) -> String {
    let program = Path::new(command.get_program())
        .file_name()
        .unwrap_or(command.get_program());
    let mut line = program.to_string_lossy().into_owned();
    for argument in command.get_args() {
        line.push(' ');
        line.push_str(&argument.to_string_lossy());
    }
    line
}

/// A process that was started once: its id, and when, because ids are used again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProcessId {
    /// The process id.
    pub(crate) pid: i32,
    /// The kernel's start time of the process, in clock ticks since boot.
    pub(crate) started: u64,
}

impl ProcessId {
    /// The running process with this id.
    pub(crate) fn of(pid: u32) -> Result<Self> {
        let pid = i32::try_from(pid).context("process id out of range")?;
        let stat = stat(pid).with_context(|| format!("process {pid} ended as soon as it was started"))?;
        Ok(Self {
            pid,
            started: stat.started,
        })
    }

    /// Whether it still runs. A process that ended and waits to be collected does not.
    pub(crate) fn is_running(&self) -> bool {
        stat(self.pid).is_some_and(|stat| stat.started == self.started && stat.state != "Z")
    }

    /// Asks it to end, insists after `patience`, and returns when it is gone.
    pub(crate) fn end(&self, patience: Duration) -> Result<()> {
        self.signal(Signal::TERM)?;
        let asked = Instant::now();
        let mut insisted = false;
        while self.is_running() {
            if asked.elapsed() > patience && !insisted {
                self.signal(Signal::KILL)?;
                insisted = true;
            }
            if asked.elapsed() > patience * 2 {
                bail!("process {} does not end", self.pid);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Sends a signal, if it still runs.
    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        if !self.is_running() {
            return Ok(());
        }
        let pid = Pid::from_raw(self.pid).context("process id 0")?;
        match kill_process(pid, signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(error) => Err(error).with_context(|| format!("cannot signal process {}", self.pid)),
        }
    }
}

/// What `/proc/PID/stat` says about a process.
#[derive(Debug)]
pub(crate) struct Stat {
    /// The name of the program, cut by the kernel to 15 bytes.
    pub(crate) name: String,
    /// One letter; `Z` is a process that ended and was not collected.
    pub(crate) state: String,
    /// The process that started it, or that inherited it.
    pub(crate) parent: i32,
    /// Processor time used, user and system, in clock ticks.
    pub(crate) ticks: u64,
    /// Start time in clock ticks since boot.
    pub(crate) started: u64,
}

/// The state of a process, or `None` if there is none with this id.
pub(crate) fn stat(pid: i32) -> Option<Stat> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

fn parse_stat(text: &str) -> Option<Stat> {
    // The name stands in parentheses and may hold spaces and parentheses itself.
    let (head, rest) = text.rsplit_once(')')?;
    let (_, name) = head.split_once('(')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    Some(Stat {
        name: name.to_owned(),
        state: (*fields.first()?).to_owned(),
        parent: fields.get(1)?.parse().ok()?,
        ticks: number(11)? + number(12)?,
        started: number(19)?,
    })
}

/// Becomes `program`, to be ended by the kernel when the process `parent` ends, however that happens.
///
/// Returns only if that failed.
pub(crate) fn become_tied(parent: i32, program: &str, arguments: &[String]) -> Result<()> {
    set_parent_process_death_signal(Some(Signal::TERM)).context("cannot tie this process to its parent")?;
    if getppid().map(Pid::as_raw_nonzero).map(i32::from) != Some(parent) {
        bail!("process {parent} ended before it could be waited for");
    }
    Err(Command::new(program).args(arguments).exec()).with_context(|| format!("cannot start {program}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_is_read() {
        let line = "7 (a) b (c) S 1 7 7 0 -1 4194560 1 2 3 4 10 5 0 0 20 0 1 0 999 1 2";
        let stat = parse_stat(line).expect("a valid line");
        assert_eq!(
            (
                stat.name.as_str(),
                stat.state.as_str(),
                stat.parent,
                stat.ticks,
                stat.started
            ),
            ("a) b (c", "S", 1, 15, 999)
        );
    }

    #[test]
    fn a_later_process_with_the_same_id_is_another_one() {
        let own = ProcessId::of(std::process::id()).expect("this process runs");
        assert!(own.is_running());
        assert!(
            !ProcessId {
                started: own.started + 1,
                ..own
            }
            .is_running()
        );
    }

    #[test]
    fn a_stubborn_process_is_ended() {
        let mut child = Command::new("sh")
            .args(["-c", "trap '' TERM; while :; do sleep 1; done"])
            .spawn()
            .expect("sh");
        let id = ProcessId::of(child.id()).expect("it runs");
        std::thread::sleep(Duration::from_millis(100));
        id.end(Duration::from_millis(200)).expect("it ends");
        assert!(!id.is_running());
        child.wait().expect("it is collected");
    }
}
