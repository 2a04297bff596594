//! The process that is measured.

use std::{
    fs::File,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    process::{Child, Command},
    time::{Instant, sleep},
};

const PATIENCE: Duration = Duration::from_secs(60);

/// A running `kaos serve operator`, killed when it is dropped.
pub(crate) struct Operator {
    child: Child,
    log: PathBuf,
}

impl Operator {
    /// Starts it with routes, and returns when it works.
    pub(crate) async fn start(kaos: &Path, kubeconfig: &Path) -> Result<Self> {
        let log = kubeconfig.with_file_name("operator.log");
        let child = Command::new(kaos)
            .args([
                "serve",
                "operator",
                "--health-probe-bind-address=0",
                "--kubeconfig",
            ])
            .arg(kubeconfig)
            .envs([("GATEWAY_API_ENABLED", "true"), ("GATEWAY_NAME", "gateway")])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log)?)
            .kill_on_drop(true)
            .spawn()
            .context("the operator does not start")?;
        let mut operator = Self { child, log };
        let started = Instant::now();
        while !operator.text()?.contains("controllers started") {
            if let Some(status) = operator.child.try_wait()? {
                bail!("the operator ended, {status}: {}", operator.text()?);
            }
            ensure!(
                started.elapsed() < PATIENCE,
                "the operator does not begin: {}",
                operator.text()?
            );
            sleep(Duration::from_millis(20)).await;
        }
        Ok(operator)
    }

    fn text(&self) -> Result<String> {
        Ok(std::fs::read_to_string(&self.log)?)
    }

    fn pid(&self) -> Result<u32> {
        self.child.id().context("the operator has ended")
    }

    /// Processor time used so far.
    pub(crate) fn processor_seconds(&self) -> Result<f64> {
        let text = std::fs::read_to_string(format!("/proc/{}/stat", self.pid()?))?;
        // The name, in parentheses, may itself have spaces.
        let (_, fields) = text.rsplit_once(')').context("the kernel tells nothing")?;
        let fields: Vec<f64> = fields
            .split_whitespace()
            .map(|field| field.parse().unwrap_or_default())
            .collect();
        let (user, system) = (fields.get(11), fields.get(12));
        let ticks = user.context("no user time")? + system.context("no system time")?;
        Ok(ticks / rustix::param::clock_ticks_per_second() as f64)
    }

    /// The most memory that was ever resident.
    pub(crate) fn peak_mib(&self) -> Result<f64> {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.pid()?))?;
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib: f64 = line
            .and_then(|line| line.split_whitespace().next())
            .context("no peak")?
            .parse()?;
        Ok(kib / 1024.0)
    }

    /// Asks it to end, and waits.
    pub(crate) async fn end(mut self) -> Result<()> {
        let pid = i32::try_from(self.pid()?)
            .ok()
            .and_then(Pid::from_raw)
            .context("no process")?;
        kill_process(pid, Signal::TERM)?;
        let status = self.child.wait().await?;
        ensure!(status.success(), "the operator ended, {status}: {}", self.text()?);
        Ok(())
    }
}
