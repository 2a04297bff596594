//! One stdio server process: lines in, lines out, and its end.
//!
//! It leads a process group of its own, because what people start is often a launcher (`npx`, `uvx`, a shell)
//! that starts the server: they end together. Its standard error is the bridge's log, as it is.

use std::{io, process::Stdio, time::Duration};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::{
    io::{AsyncBufRead, AsyncBufReadExt, AsyncWriteExt, BufReader},
    process::{Child, ChildStdin, ChildStdout},
    sync::mpsc,
};

use super::command::Command;

/// The longest line that a server may write, in bytes.
pub(super) const MAX_LINE: usize = 64 << 20;
/// How many lines may wait for a server that does not read.
const QUEUE: usize = 256;
/// How long a server may take to end once its input has, and again once it was asked to by a signal.
const GRACE: Duration = Duration::from_secs(2);

/// What a server wrote.
#[derive(Debug, PartialEq)]
pub(super) enum Output {
    /// A line, without its end.
    Line(String),
    /// A line that is too long: how it begins.
    TooLong { begins: String },
    /// A line that is no UTF-8: how it begins.
    NoText { begins: String },
    /// A line without an end: the server ended or closed its output in the middle of it.
    Broken { begins: String },
}

/// A running server.
pub(super) struct Process {
    child: Child,
    group: Option<Pid>,
    input: mpsc::Sender<String>,
    output: mpsc::Receiver<Output>,
}

impl Process {
    /// Starts one.
    pub(super) fn start(command: &Command) -> io::Result<Self> {
        let mut child = command
            .process()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::Error::other("its input and output are missing"));
        };
        let group = child
            .id()
            .and_then(|id| i32::try_from(id).ok())
            .and_then(Pid::from_raw);
        let (input, lines) = mpsc::channel(QUEUE);
        tokio::spawn(write(stdin, lines));
        // Few lines ahead: a server that writes faster than clients read waits in its pipe.
        let (sender, output) = mpsc::channel(4);
        tokio::spawn(read(stdout, sender));
        Ok(Self {
            child,
            group,
            input,
            output,
        })
    }

    /// Sends one line. False where the server has ended or has not read for long.
    pub(super) fn send(&self, line: String) -> bool {
        self.input.try_send(line).is_ok()
    }

    /// What the server writes next; `None` once it has closed its output.
    pub(super) async fn next(&mut self) -> Option<Output> {
        self.output.recv().await
    }

    /// Has it end, gently at first, and says how it did.
    pub(super) async fn stop(mut self) -> String {
        // Its input ends with the task that writes it.
        let (closed, _) = mpsc::channel(1);
        self.input = closed;
        for signal in [None, Some(Signal::TERM)] {
            if let Some(signal) = signal {
                self.signal(signal);
            }
            if let Ok(status) = tokio::time::timeout(GRACE, self.child.wait()).await {
                return status.map_or_else(|error| error.to_string(), |status| status.to_string());
            }
        }
        self.signal(Signal::KILL);
        let status = self.child.wait().await;
        status.map_or_else(|error| error.to_string(), |status| status.to_string())
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            // It may have ended this moment.
            let _ = kill_process_group(group, signal);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // What the launcher has left behind.
        self.signal(Signal::KILL);
    }
}

async fn write(mut stdin: ChildStdin, mut lines: mpsc::Receiver<String>) {
    while let Some(mut line) = lines.recv().await {
        line.push('\n');
        if stdin.write_all(line.as_bytes()).await.is_err() || stdin.flush().await.is_err() {
            return;
        }
    }
}

async fn read(stdout: ChildStdout, output: mpsc::Sender<Output>) {
    let mut stdout = BufReader::with_capacity(64 << 10, stdout);
    while let Ok(Some(read)) = line(&mut stdout, MAX_LINE).await {
        if output.send(read).await.is_err() {
            return;
        }
    }
}

/// The next line that is not empty, of which no more than `limit` bytes are kept.
async fn line(from: &mut (impl AsyncBufRead + Unpin), limit: usize) -> io::Result<Option<Output>> {
    loop {
        let mut kept = Vec::new();
        let mut too_long = false;
        let ended = loop {
            let available = from.fill_buf().await?;
            if available.is_empty() {
                break false;
            }
            let end = available.iter().position(|&byte| byte == b'\n');
            let part = &available[..end.unwrap_or(available.len())];
            if kept.len() + part.len() > limit {
                too_long = true;
            } else if !too_long {
                kept.extend_from_slice(part);
            }
            let used = end.map_or(available.len(), |end| end + 1);
            from.consume(used);
            if end.is_some() {
                break true;
            }
        };
        if kept.is_empty() && !too_long && !ended {
            return Ok(None);
        }
        if !ended {
            return Ok(Some(Output::Broken {
                begins: begins(&kept),
            }));
        }
        if too_long {
            return Ok(Some(Output::TooLong {
                begins: begins(&kept),
            }));
        }
        match String::from_utf8(kept) {
            Ok(text) if text.trim().is_empty() => {}
            Ok(text) => return Ok(Some(Output::Line(text))),
            Err(error) => {
                return Ok(Some(Output::NoText {
                    begins: begins(error.as_bytes()),
                }));
            }
        }
    }
}

/// The beginning of a line, for the log.
pub(super) fn begins(line: &[u8]) -> String {
    const SHOWN: usize = 200;
    let shown = String::from_utf8_lossy(&line[..line.len().min(SHOWN)]).into_owned();
    if line.len() > SHOWN { shown + "…" } else { shown }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn lines(text: &[u8], limit: usize) -> Vec<Output> {
        // A small buffer, so that lines come in parts.
        let mut from = BufReader::with_capacity(3, text);
        let mut lines = Vec::new();
        while let Some(read) = line(&mut from, limit).await.unwrap() {
            lines.push(read);
        }
        lines
    }

    #[tokio::test]
    async fn lines_of_every_kind_are_read_and_the_next_one_after_them() {
        let text = b"one\n\n  \r\ntwo two\nmuch too long for this\nthree\n\xff\xfe\nfour\nhalf";
        let line = |text: &str| Output::Line(text.to_owned());
        let begins = |text: &str| text.to_owned();
        assert_eq!(
            lines(text, 10).await,
            [
                line("one"),
                line("two two"),
                Output::TooLong {
                    begins: begins("much too l")
                },
                line("three"),
                Output::NoText {
                    begins: begins("\u{fffd}\u{fffd}")
                },
                line("four"),
                Output::Broken {
                    begins: begins("half")
                },
            ]
        );
    }
}
