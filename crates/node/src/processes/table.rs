//! The machine's process table: who a pid is, and which processes carry a mark.
//!
//! Linux reads `/proc`. Elsewhere `ps` tells start times, and marks cannot be seen: there, only the process
//! group of a recorded leader is found.

use std::io;

use rustix::process::{Pid, Signal};

/// The variable that marks every process of a container, children included.
pub(crate) const MARK_VARIABLE: &str = "KAOS_PROCESS";

/// A value that differs between two processes that had the same pid, or `None` when there is no such process.
pub(crate) fn birth(pid: u32) -> Option<String> {
    platform::birth(pid)
}

/// The processes that descend from a recorded one: itself, while `born` is still its birth, its process
/// group, and whatever carries its mark.
pub(crate) fn family(leader: u32, born: &str, mark: &str) -> Vec<Pid> {
    platform::family(leader, born, mark)
}

/// Kills `pid` at once. That it is gone already is no error.
pub(crate) fn kill(pid: Pid) -> io::Result<()> {
    match rustix::process::kill_process(pid, Signal::KILL) {
        Err(error) if error != rustix::io::Errno::SRCH => Err(error.into()),
        _ => Ok(()),
    }
}

#[cfg(target_os = "linux")]
mod platform {
    use std::fs;

    use rustix::process::Pid;

    use super::MARK_VARIABLE;

    struct Stat {
        state: char,
        group: u32,
        /// Clock ticks from the boot to the process's start (field 22 of proc(5)).
        started: u64,
    }

    fn stat(pid: u32) -> Option<Stat> {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name of the program, in parentheses, may hold anything, spaces and parentheses included.
        let mut fields = text[text.rfind(')')? + 1..].split_ascii_whitespace();
        let state = fields.next()?.chars().next()?;
        let group = fields.nth(1)?.parse().ok()?;
        let started = fields.nth(16)?.parse().ok()?;
        Some(Stat {
            state,
            group,
            started,
        })
    }

    pub(super) fn birth(pid: u32) -> Option<String> {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        Some(format!("{} {}", boot.trim(), stat(pid)?.started))
    }

    pub(super) fn family(leader: u32, born: &str, mark: &str) -> Vec<Pid> {
        let lives = birth(leader).as_deref() == Some(born);
        let marked = format!("{MARK_VARIABLE}={mark}");
        let carries_mark = |pid: u32| {
            fs::read(format!("/proc/{pid}/environ")).is_ok_and(|environment| {
                environment
                    .split(|byte| *byte == 0)
                    .any(|variable| variable == marked.as_bytes())
            })
        };
        let belongs = |pid: u32| {
            let Some(stat) = stat(pid) else { return false };
            stat.state != 'Z' && ((lives && stat.group == leader) || carries_mark(pid))
        };
        let Ok(entries) = fs::read_dir("/proc") else {
            return Vec::new();
        };
        entries
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
            .filter(|pid| *pid != std::process::id() && belongs(*pid))
            .filter_map(|pid| Pid::from_raw(i32::try_from(pid).ok()?))
            .collect()
    }
}

#[cfg(not(target_os = "linux"))]
mod platform {
    use std::process::Command;

    use rustix::process::Pid;

    pub(super) fn birth(pid: u32) -> Option<String> {
        let output = Command::new("ps")
            .args(["-o", "lstart=", "-p", &pid.to_string()])
            .output()
            .ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        (!text.trim().is_empty()).then(|| text.trim().to_owned())
    }

    pub(super) fn family(leader: u32, born: &str, _mark: &str) -> Vec<Pid> {
        if birth(leader).as_deref() != Some(born) {
            return Vec::new();
        }
        let Ok(output) = Command::new("ps").args(["-axo", "pid=,pgid="]).output() else {
            return Vec::new();
        };
        String::from_utf8_lossy(&output.stdout)
            .lines()
            .filter_map(|line| {
                let (pid, group) = line.trim().split_once(char::is_whitespace)?;
                let own = group.trim().parse() == Ok(leader);
                own.then(|| pid.parse().ok().and_then(Pid::from_raw)).flatten()
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_a_birth_and_a_free_pid_has_none() {
        let own = std::process::id();
        assert!(birth(own).is_some());
        assert_eq!(birth(own), birth(own));
        // Above the largest pid that any Linux or macOS gives.
        assert_eq!(birth(u32::MAX), None);
    }
}
