//! `kaos down`: stop the local instance.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use tokio::time::{Instant, sleep};

use crate::{
    args::Global,
    target::{data_dir, shown},
};

/// Longer than the grace period that pods have by default.
const PATIENCE: Duration = Duration::from_secs(45);

/// Asks the running instance to stop and waits until it has.
pub(crate) async fn down(global: &Global) -> Result<()> {
    let path = data_dir(global)?;
    let Some(record) = kaos_local::running(&path) else {
        eprintln!("nothing runs on {}", shown(&path));
        return Ok(());
    };
    let pid = i32::try_from(record.pid)
        .ok()
        .and_then(Pid::from_raw)
        .context("the instance has no process")?;
    kill_process(pid, Signal::TERM).with_context(|| format!("failed to stop process {}", record.pid))?;
    let deadline = Instant::now() + PATIENCE;
    while kaos_local::running(&path).is_some() {
        if Instant::now() > deadline {
            bail!(
                "process {} has not stopped after {} s; its log says why",
                record.pid,
                PATIENCE.as_secs()
            );
        }
        sleep(Duration::from_millis(20)).await;
    }
    eprintln!("stopped; `kaos up` resumes what {} holds", shown(&path));
    Ok(())
}
