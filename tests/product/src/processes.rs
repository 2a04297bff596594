//! Processes as Linux shows them: what descends from an instance, and whether it is gone.

use std::{
    fs,
    time::{Duration, Instant},
};

/// A process, told from a later one with the same number by its start time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// Its parent.
    pub parent: u32,
    /// Clock ticks from boot to its start.
    pub started: u64,
    /// Its command line.
    pub command: String,
}

impl Process {
    /// Reads `/proc/PID`. `None` where the process has ended, zombies included.
    pub fn read(pid: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name, in parentheses, may itself have spaces and parentheses.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        if fields.first() == Some(&"Z") {
            return None;
        }
        let command = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        Some(Self {
            pid,
            parent: fields.get(1)?.parse().ok()?,
            started: fields.get(19)?.parse().ok()?,
            command: String::from_utf8_lossy(&command).replace('\0', " "),
        })
    }

    /// Whether it still runs.
    pub fn runs(&self) -> bool {
        Self::read(self.pid).is_some_and(|now| now.started == self.started)
    }

    /// Waits until it has ended; `false` after the deadline.
    pub fn ends_within(&self, deadline: Duration) -> bool {
        let begun = Instant::now();
        while self.runs() {
            if begun.elapsed() > deadline {
                return false;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        true
    }
}

/// Every process below `pid`.
pub fn descendants(pid: u32) -> Vec<Process> {
    let all: Vec<Process> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| Process::read(entry.ok()?.file_name().to_str()?.parse().ok()?))
        .collect();
    let mut found: Vec<Process> = Vec::new();
    let mut parents = vec![pid];
    while let Some(parent) = parents.pop() {
        for child in all.iter().filter(|process| process.parent == parent) {
            parents.push(child.pid);
            found.push(child.clone());
        }
    }
    found
}
