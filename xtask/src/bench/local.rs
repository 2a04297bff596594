//! `kaos up` on this machine: how soon it answers, and what it costs.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;

use super::Figure;
use crate::process::{self, ProcessId};
use crate::workspace::Workspace;

const MANIFEST: &str = "samples/quickstart.yaml";
const AGENT: &str = "assistant";
const QUESTION: &str = "What is 1234 times 5678?";
/// Only the tool can have said it: the mock model does not multiply.
const ANSWER: &str = "7006652";

const START_RUNS: usize = 5;
const VERSION_RUNS: usize = 100;
/// After the last request, before idleness is measured.
const SETTLE: Duration = Duration::from_secs(5);
const IDLE: Duration = Duration::from_secs(20);
const MIB: f64 = 1024.0 * 1024.0;

/// Measures it.
pub(super) fn measure(workspace: &Workspace, kaos: &Path) -> Result<Vec<Figure>> {
    let mut starts = Vec::new();
    for _ in 1..START_RUNS {
        starts.push(Instance::start(workspace, kaos)?.first_answer);
    }
    let instance = Instance::start(workspace, kaos)?;
    starts.push(instance.first_answer);
    thread::sleep(SETTLE);
    let (resident, proportional) = instance.memory()?;
    let idle = instance.idle_share()?;
    drop(instance);
    Ok(vec![
        start_figure(starts),
        Figure {
            what: "resident memory of all processes, Python excluded".to_owned(),
            measured: format!("{resident:.0} MiB (shared pages counted once: {proportional:.0} MiB)"),
            target: "≤ 100 MiB",
            holds: resident <= 100.0,
        },
        Figure {
            what: "processor time when idle".to_owned(),
            measured: format!("{:.2} % of a core", idle * 100.0),
            target: "< 1 %",
            holds: idle < 0.01,
        },
        version_figure(kaos)?,
        size_figure(kaos)?,
    ])
}

fn start_figure(mut starts: Vec<Duration>) -> Figure {
    starts.sort();
    let (median, worst) = (starts[starts.len() / 2], starts[starts.len() - 1]);
    Figure {
        what: "`kaos up samples/quickstart.yaml`, empty data folder, to the first answered chat".to_owned(),
        measured: format!(
            "{:.2} s (worst of {}: {:.2} s)",
            median.as_secs_f64(),
            starts.len(),
            worst.as_secs_f64()
        ),
        target: "≤ 2 s",
        holds: median <= Duration::from_secs(2),
    }
}

fn version_figure(kaos: &Path) -> Result<Figure> {
    let mut times = Vec::new();
    for _ in 0..VERSION_RUNS {
        let started = Instant::now();
        process::output(Command::new(kaos).arg("version"))?;
        times.push(started.elapsed());
    }
    times.sort();
    let median = times[times.len() / 2];
    Ok(Figure {
        what: "`kaos version`".to_owned(),
        measured: format!(
            "{:.1} ms (median of {VERSION_RUNS})",
            median.as_secs_f64() * 1000.0
        ),
        target: "≤ 15 ms",
        holds: median <= Duration::from_millis(15),
    })
}

fn size_figure(kaos: &Path) -> Result<Figure> {
    let bytes = fs::metadata(kaos)
        .with_context(|| format!("cannot read {}", kaos.display()))?
        .len();
    Ok(Figure {
        what: "release binary".to_owned(),
        measured: format!("{:.1} MB", bytes as f64 / 1e6),
        target: "≤ 30 MB",
        holds: bytes <= 30_000_000,
    })
}

/// A running `kaos up`, ended when it is dropped.
struct Instance {
    child: Child,
    data: PathBuf,
    first_answer: Duration,
}

impl Instance {
    /// Starts it on an empty data folder, asks as soon as it is ready, and checks the answer.
    fn start(workspace: &Workspace, kaos: &Path) -> Result<Self> {
        let data = std::env::temp_dir().join(format!("kaos-bench-{}", std::process::id()));
        if data.exists() {
            fs::remove_dir_all(&data).with_context(|| format!("cannot remove {}", data.display()))?;
        }
        let started = Instant::now();
        let child = Command::new(kaos)
            .current_dir(&workspace.root)
            .arg("--data-dir")
            .arg(&data)
            .args(["up", MANIFEST])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start `kaos up`")?;
        let mut instance = Self {
            child,
            data,
            first_answer: Duration::ZERO,
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
        let chat = ["chat", AGENT, QUESTION];
        let answer = process::output(
            Command::new(kaos)
                .arg("--data-dir")
                .arg(&instance.data)
                .args(chat),
        )?;
        instance.first_answer = started.elapsed();
        ensure!(answer.contains(ANSWER), "the answer is not the tool's: {answer}");
        Ok(instance)
    }

    /// It and everything below it, without Python.
    fn processes(&self) -> Result<Vec<i32>> {
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

    /// Resident and proportional memory in MiB.
    fn memory(&self) -> Result<(f64, f64)> {
        let (mut resident, mut proportional) = (0.0, 0.0);
        for pid in self.processes()? {
            let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).context("a process ended")?;
            let kib = |field: &str| -> f64 {
                let line = text.lines().find_map(|line| line.strip_prefix(field));
                line.and_then(|line| line.split_whitespace().next()?.parse().ok())
                    .unwrap_or_default()
            };
            resident += kib("Rss:") * 1024.0 / MIB;
            proportional += kib("Pss:") * 1024.0 / MIB;
        }
        Ok((resident, proportional))
    }

    /// The share of one core used over a while in which nobody asks for anything.
    fn idle_share(&self) -> Result<f64> {
        let used = || -> Result<u64> {
            Ok(self
                .processes()?
                .into_iter()
                .filter_map(process::stat)
                .map(|stat| stat.ticks)
                .sum())
        };
        let (before, started) = (used()?, Instant::now());
        thread::sleep(IDLE);
        let ticks = used()?.saturating_sub(before);
        Ok(ticks as f64 / rustix::param::clock_ticks_per_second() as f64 / started.elapsed().as_secs_f64())
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
