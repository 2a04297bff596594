//! `kaos up --detach`: the instance as a process of its own, watched until everything is ready.
//!
//! The process is this program with the same arguments, in a session of its own. Its standard error goes to a log
//! file, which is shown as it grows. Its standard output is a pipe: once everything is ready it says there what there
//! is to say, and ends that with [`END`]. A pipe that ends otherwise is a failure.

use std::{
    ffi::OsString,
    fs::{DirBuilder, File, OpenOptions},
    io::{Read, Seek, Write, stderr, stdout},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::Path,
    process::Stdio,
    time::Duration,
};

use anyhow::{Context, Result};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::Command,
    time::{interval, timeout},
};

use crate::{
    args::Global,
    commands::interrupted,
    exit::{Coded, NOT_READY},
    target::{data_dir, shown},
};

/// Tells a process that it is the one in the background.
const VARIABLE: &str = "KAOS_DETACHED";
/// Its log, in the data folder.
const LOG: &str = "up.log";
/// Ends what the process says once everything is ready.
const END: u8 = 0;
/// How often the log is looked at.
const LOOK: Duration = Duration::from_millis(50);

/// Whether this is the process in the background.
pub(crate) fn is_detached() -> bool {
    std::env::var_os(VARIABLE).is_some()
}

/// Leaves the terminal: its end, and its Ctrl-C, mean nothing any more.
pub(crate) fn leave_terminal() -> Result<()> {
    rustix::process::setsid().context("failed to leave the terminal")?;
    Ok(())
}

/// Tells the process that waits that everything is ready, and has been said.
pub(crate) fn let_go() {
    let mut out = stdout().lock();
    // The instance goes on when nobody waits.
    let _ = out.write_all(&[END]).and_then(|()| out.flush());
}

/// Starts the process, and returns once it says that everything is ready.
pub(crate) async fn detach(global: &Global, patience: Duration) -> Result<()> {
    let data_dir = data_dir(global)?;
    let (log, mut shown_log) = open_log(&data_dir)?;
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let program = std::env::current_exe().context("failed to find this program's own file")?;
    let mut child = Command::new(program)
        .args(arguments)
        .env(VARIABLE, "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .context("failed to start a process in the background")?;
    let mut pipe = BufReader::new(
        child
            .stdout
            .take()
            .context("the process has no standard output")?,
    );
    let mut said = Vec::new();
    let ended = {
        let mut told = std::pin::pin!(timeout(patience, pipe.read_until(END, &mut said)));
        let mut interrupt = std::pin::pin!(interrupted());
        let mut look = interval(LOOK);
        loop {
            tokio::select! {
                read = &mut told => break Some(read),
                ended = &mut interrupt => {
                    ended?;
                    break None;
                }
                _ = look.tick() => show(&mut shown_log)?,
            }
        }
    };
    show(&mut shown_log)?;
    let process = child.id().unwrap_or_default();
    let goes_on = format!(
        "it goes on in the background (process {process}): `kaos status` says how far it is, `kaos down` stops it, \
         and its log is {}",
        shown(&data_dir.join(LOG))
    );
    match ended {
        None => eprintln!("{goes_on}"),
        Some(Err(_)) => {
            let message = format!(
                "not everything is ready after {} s; {goes_on}",
                patience.as_secs()
            );
            return Err(Coded::telling(NOT_READY, message));
        }
        Some(Ok(read)) => {
            read.context("the process in the background cannot be heard")?;
            if said.pop() != Some(END) {
                // It has ended, and its log has said why.
                let status = child.wait().await?;
                let code = status
                    .code()
                    .and_then(|code| u8::try_from(code).ok())
                    .filter(|code| *code != 0);
                return Err(Coded::told(code.unwrap_or(1)));
            }
            stdout().write_all(&said)?;
            eprintln!("{goes_on}");
        }
    }
    Ok(())
}

/// The log, to write and to read. A log of another process that runs is not touched: that one refuses.
fn open_log(data_dir: &Path) -> Result<(File, File)> {
    let failed = || format!("failed to use {}", data_dir.display());
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(data_dir)
        .with_context(failed)?;
    let path = data_dir.join(LOG);
    let log = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(&path)
        .with_context(failed)?;
    let mut reader = File::open(&path).with_context(failed)?;
    reader.seek(std::io::SeekFrom::End(0))?;
    Ok((log, reader))
}

/// Shows what the log has more than before.
fn show(log: &mut File) -> Result<()> {
    let mut new = Vec::new();
    log.read_to_end(&mut new)?;
    stderr().write_all(&new)?;
    Ok(())
}
