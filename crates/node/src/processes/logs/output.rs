//! Where the output of a process goes: into the log of its container, or into memory for whoever waits for it.

use std::sync::{Arc, Mutex, PoisonError};

use kaos_seams::Clock;
use tokio::io::{AsyncRead, AsyncReadExt as _};

use super::write::{Lines, LogFile, Stream};

/// How much of a short-lived program's output is kept, in bytes: what a kubelet keeps of a probe's.
const TAIL_LIMIT: usize = 10 * 1024;

/// Where the output of a process goes.
#[derive(Debug)]
pub(crate) enum Output {
    /// The log of a container.
    Log(LogFile),
    /// Memory.
    Tail(Tail),
}

/// The beginning of what a program printed, on both of its outputs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tail(Arc<Mutex<Vec<u8>>>);

impl Tail {
    /// What it has printed so far.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }

    fn append(&self, bytes: &[u8]) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let room = TAIL_LIMIT.saturating_sub(kept.len()).min(bytes.len());
        kept.extend_from_slice(&bytes[..room]);
    }
}

/// Carries an output of a process to where it goes until it is closed.
pub(crate) async fn pump(
    mut from: impl AsyncRead + Unpin,
    stream: Stream,
    to: Arc<Output>,
    clock: Arc<dyn Clock>,
) {
    let mut lines = Lines::default();
    let mut buffer = vec![0; 16 * 1024];
    let mut lost = 0;
    let mut append = |log: &LogFile, text: Vec<u8>| {
        if text.is_empty() {
            return;
        }
        // A full disk must not stop the container: what cannot be written is lost, and told once.
        match log.append(&text) {
            Err(error) if lost == 0 => {
                lost += text.len();
                tracing::warn!(
                    log = %log.path().display(), %error,
                    "the log of a container cannot be written; what it prints is lost until it can"
                );
            }
            Err(_) => lost += text.len(),
            Ok(()) if lost > 0 => {
                tracing::warn!(log = %log.path().display(), bytes = lost, "lost of the log of a container");
                lost = 0;
            }
            Ok(()) => {}
        }
    };
    loop {
        let read = match from.read(&mut buffer).await {
            Ok(0) | Err(_) => break,
            Ok(read) => &buffer[..read],
        };
        match &*to {
            Output::Log(log) => append(log, lines.push(read, stream, clock.now())),
            Output::Tail(tail) => tail.append(read),
        }
    }
    if let Output::Log(log) = &*to {
        append(log, lines.finish(stream, clock.now()));
    }
}
