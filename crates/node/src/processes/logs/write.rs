//! Writing a log.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use jiff::Timestamp;
use tokio::sync::watch;

use super::{Progress, older};

/// The longest text of one line on disk, in bytes.
const LINE_LIMIT: usize = 16 * 1024;

/// Which of its outputs a container wrote to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stream {
    Stdout,
    Stderr,
}

impl Stream {
    fn name(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

/// A log that is being written. Followers see its end when it is dropped.
#[derive(Debug)]
pub(crate) struct LogFile {
    path: PathBuf,
    limit: u64,
    current: Mutex<(File, u64)>,
    progress: watch::Sender<Progress>,
}

impl LogFile {
    pub(super) fn open(path: PathBuf, limit: u64) -> io::Result<(Self, watch::Receiver<Progress>)> {
        let file = open(&path)?;
        let size = file.metadata()?.len();
        let (progress, watching) = watch::channel(Progress::default());
        Ok((
            Self {
                path,
                limit,
                current: Mutex::new((file, size)),
                progress,
            },
            watching,
        ))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Appends whole lines; the file becomes the older part first if they do not fit.
    pub(super) fn append(&self, lines: &[u8]) -> io::Result<()> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let mut part = 0;
        if current.1 > 0 && current.1 + lines.len() as u64 > self.limit {
            fs::rename(&self.path, older(&self.path))?;
            *current = (open(&self.path)?, 0);
            part = 1;
        }
        current.0.write_all(lines)?;
        current.1 += lines.len() as u64;
        drop(current);
        self.progress.send_modify(|progress| {
            progress.part += part;
            progress.writes += 1;
        });
        Ok(())
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(path)
}

/// Formats what a stream gives into lines of a log.
#[derive(Default)]
pub(super) struct Lines {
    rest: Vec<u8>,
}

impl Lines {
    /// Takes `bytes` and returns the lines that are complete, or too long to wait for.
    pub(super) fn push(&mut self, bytes: &[u8], stream: Stream, at: Timestamp) -> Vec<u8> {
        let mut out = Vec::with_capacity(bytes.len() + 64);
        self.rest.extend_from_slice(bytes);
        let mut done = 0;
        loop {
            let rest = &self.rest[done..];
            let (end, next, tag) = match rest.iter().take(LINE_LIMIT + 1).position(|byte| *byte == b'\n') {
                Some(end) => (end, end + 1, 'F'),
                None if rest.len() > LINE_LIMIT => (LINE_LIMIT, LINE_LIMIT, 'P'),
                None => break,
            };
            write_line(&mut out, &rest[..end], stream, at, tag);
            done += next;
        }
        self.rest.drain(..done);
        out
    }

    /// The last line, when it was not ended.
    pub(super) fn finish(self, stream: Stream, at: Timestamp) -> Vec<u8> {
        let mut out = Vec::new();
        if !self.rest.is_empty() {
            write_line(&mut out, &self.rest, stream, at, 'F');
        }
        out
    }
}

fn write_line(out: &mut Vec<u8>, text: &[u8], stream: Stream, at: Timestamp, tag: char) {
    out.extend_from_slice(format!("{at:.9} {} {tag} ", stream.name()).as_bytes());
    out.extend_from_slice(text);
    out.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_cut_at_newlines_and_at_the_limit() {
        let at = Timestamp::from_second(0).unwrap();
        let mut lines = Lines::default();
        assert_eq!(
            lines.push(b"a\nb", Stream::Stdout, at),
            b"1970-01-01T00:00:00.000000000Z stdout F a\n"
        );
        assert_eq!(
            lines.push(b"c\n", Stream::Stdout, at),
            b"1970-01-01T00:00:00.000000000Z stdout F bc\n"
        );
        let long = lines.push(&vec![b'x'; LINE_LIMIT + 1], Stream::Stderr, at);
        assert!(long.starts_with(b"1970-01-01T00:00:00.000000000Z stderr P xx"));
        assert_eq!(
            lines.finish(Stream::Stderr, at),
            b"1970-01-01T00:00:00.000000000Z stderr F x\n"
        );
    }
}
