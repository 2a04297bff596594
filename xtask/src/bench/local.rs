//! `kaos up` on this machine: how soon it answers, and what it costs.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::Figure;
use super::instance::Instance;
use crate::process;
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
const KIB: f64 = 1024.0;

/// Measures it.
pub(super) fn measure(workspace: &Workspace, kaos: &Path) -> Result<Vec<Figure>> {
    let mut starts = Vec::new();
    for _ in 1..START_RUNS {
        starts.push(answering(workspace, kaos)?.1);
    }
    let (instance, first_answer) = answering(workspace, kaos)?;
    starts.push(first_answer);
    thread::sleep(SETTLE);
    let (resident, proportional) = memory(&instance)?;
    let idle = idle_share(&instance)?;
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

/// An instance that has answered, and how long that took from its start on an empty data folder.
fn answering(workspace: &Workspace, kaos: &Path) -> Result<(Instance, Duration)> {
    let started = Instant::now();
    let instance = Instance::start(workspace, kaos, MANIFEST)?;
    let answer = instance.ask(AGENT, QUESTION)?;
    ensure!(answer.contains(ANSWER), "the answer is not the tool's: {answer}");
    Ok((instance, started.elapsed()))
}

/// Resident and proportional memory of all processes in MiB.
fn memory(instance: &Instance) -> Result<(f64, f64)> {
    let (mut resident, mut proportional) = (0.0, 0.0);
    for pid in instance.processes()? {
        let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).context("a process ended")?;
        let mib = |field: &str| -> f64 {
            let line = text.lines().find_map(|line| line.strip_prefix(field));
            let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
            kib.unwrap_or_default() / KIB
        };
        resident += mib("Rss:");
        proportional += mib("Pss:");
    }
    Ok((resident, proportional))
}

/// The share of one core used over a while in which nobody asks for anything.
fn idle_share(instance: &Instance) -> Result<f64> {
    let used = || -> Result<u64> {
        Ok(instance
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
