//! The step between the node and a container's program: a process that ties its life to the node's and
//! then becomes the program.
//!
//! The node starts `Launcher::program` with `Launcher::args` followed by what [`main`] reads:
//! `PARENT_PID PROGRAM [ARGUMENT]…`. The launcher
//!
//! 1. asks the kernel for SIGKILL when the node's spawning thread dies (Linux; elsewhere the reaping at the
//!    node's next start must do),
//! 2. ends if the node is gone already,
//! 3. waits for one byte on its standard input, which the node sends when the process is on record, so that
//!    no unrecorded program ever runs,
//! 4. executes the program in its own place: same pid, same process group.

use std::{
    ffi::OsString,
    io::{self, Read as _},
    os::unix::process::CommandExt as _,
    path::PathBuf,
    process::{Command, Stdio},
};

/// How the node starts the launcher: usually this same binary with a hidden subcommand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launcher {
    /// The binary that calls [`main`].
    pub program: PathBuf,
    /// What makes it do so.
    pub args: Vec<String>,
}

/// The exit code of a launcher that could not start the program because it was not found, as in a shell.
const NOT_FOUND: i32 = 127;
/// The exit code of a launcher that could not start the program for another reason, as in a shell.
const CANNOT_EXECUTE: i32 = 126;

/// Becomes the program that `args` (without the launcher's own) name. Returns the exit code of a failure,
/// whose reason it has written to standard error; on success it does not return.
pub fn main(args: impl IntoIterator<Item = OsString>) -> i32 {
    let mut args = args.into_iter();
    let (Some(parent), Some(program)) = (
        args.next().and_then(|pid| pid.to_str()?.parse::<i32>().ok()),
        args.next(),
    ) else {
        eprintln!("launch: expected the parent's pid and a program; this command is for the node only");
        return CANNOT_EXECUTE;
    };
    if let Err(error) = die_with_parent() {
        eprintln!("launch: cannot tie this process to the node: {error}");
        return CANNOT_EXECUTE;
    }
    // The parent may have died before the signal was asked for.
    let real_parent = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get());
    if real_parent != Some(parent) {
        eprintln!("launch: the node (pid {parent}) is gone");
        return CANNOT_EXECUTE;
    }
    if !io::stdin().read(&mut [0]).is_ok_and(|read| read == 1) {
        eprintln!("launch: the node gave this process up");
        return CANNOT_EXECUTE;
    }
    let error = Command::new(&program).args(args).stdin(Stdio::null()).exec();
    eprintln!("launch: cannot execute {}: {error}", program.display());
    if error.kind() == io::ErrorKind::NotFound {
        NOT_FOUND
    } else {
        CANNOT_EXECUTE
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn die_with_parent() -> io::Result<()> {
    use rustix::process::{Signal, set_parent_process_death_signal};
    Ok(set_parent_process_death_signal(Some(Signal::KILL))?)
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn die_with_parent() -> io::Result<()> {
    Ok(())
}
