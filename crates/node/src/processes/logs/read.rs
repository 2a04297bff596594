//! Reading logs back: the last lines, those since a time, and those to come.

use std::{
    collections::VecDeque,
    fs::File,
    io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom},
    pin::Pin,
};

use bytes::Bytes;
use futures::Stream;
use jiff::Timestamp;

use super::{Logs, file, older, runs};
use crate::access::AccessError;

/// Which part of a container's log is wanted; the fields of the API's `pods/log`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogOptions {
    /// The container; may be left out where the pod has only one.
    pub container: Option<String>,
    /// Go on until the container ends.
    pub follow: bool,
    /// Only so many lines from the end of what there is.
    pub tail_lines: Option<u64>,
    /// Only lines that are not older than this time.
    pub since: Option<Timestamp>,
    /// The log of the run before this one, which the pod's status tells as the container's last state.
    pub previous: bool,
    /// Put its time before each line.
    pub timestamps: bool,
    /// End after so many bytes.
    pub limit_bytes: Option<u64>,
}

/// A log, in pieces.
pub type LogStream = Pin<Box<dyn Stream<Item = io::Result<Bytes>> + Send>>;

impl Logs {
    /// The log of a container's run, of its last one where none is named. A container that has never run has an
    /// empty one.
    pub(crate) fn read(
        &self,
        (namespace, pod, uid): (&str, &str, &str),
        container: &str,
        run: Option<u32>,
        options: LogOptions,
    ) -> Result<LogStream, AccessError> {
        let dir = self.pod_dir(namespace, pod, uid).join(container);
        let unreadable = |error: io::Error| {
            AccessError::Unavailable(format!(
                "the log of container {container:?} cannot be read: {error}"
            ))
        };
        let runs = runs(&dir).map_err(unreadable)?;
        let run = match run {
            Some(run) if runs.contains(&run) => run,
            Some(_) => {
                let message = format!(
                    "the log of that run of container {container:?} in pod {pod:?} is kept no longer"
                );
                return Err(AccessError::BadRequest(message));
            }
            None => match runs.last() {
                Some(run) => *run,
                None => return Ok(Box::pin(futures::stream::empty())),
            },
        };
        let path = file(&dir, run);
        // Subscribed before anything is read, so that no write is missed between the two.
        let progress = self.progress(&path).filter(|_| options.follow);
        let mut current = File::open(&path).map_err(unreadable)?;
        let mut reader = Reader::new(options.clone());
        let mut kept = VecDeque::new();
        let mut keep = |line: Line| {
            if reader.wants(&line) {
                kept.push_back(line);
            }
        };
        match File::open(older(&path)) {
            Ok(old) => each_line(old, &mut keep).map_err(unreadable)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            Err(error) => return Err(unreadable(error)),
        };
        let mut position =
            each_line(current.try_clone().map_err(unreadable)?, &mut keep).map_err(unreadable)?;
        if let Some(count) = options.tail_lines {
            drop_all_but_last(&mut kept, count);
        }
        let first: Vec<Bytes> = kept.iter().filter_map(|line| reader.render(line)).collect();
        Ok(Box::pin(async_stream::stream! {
            for piece in first {
                yield Ok(piece);
            }
            let Some(mut progress) = progress else { return };
            let mut part = progress.borrow().part;
            loop {
                if reader.limit_reached() {
                    return;
                }
                let ended = progress.has_changed().is_err();
                let now = progress.borrow_and_update().part;
                let mut lines = Vec::new();
                // What was written before a new part began is still in the old file.
                let read = each_line_from(&mut current, &mut position, &mut |line| lines.push(line));
                if let Err(error) = read {
                    yield Err(error);
                    return;
                }
                if now != part {
                    part = now;
                    position = 0;
                    match File::open(&path) {
                        Ok(next) => current = next,
                        Err(error) => {
                            yield Err(error);
                            return;
                        }
                    }
                    if let Err(error) = each_line_from(&mut current, &mut position, &mut |line| lines.push(line)) {
                        yield Err(error);
                        return;
                    }
                }
                for line in lines {
                    if let Some(piece) = reader.wants(&line).then(|| reader.render(&line)).flatten() {
                        yield Ok(piece);
                    }
                }
                if ended {
                    return;
                }
                // An error means that the writer is gone: one more round reads what it wrote last.
                let _ = progress.changed().await;
            }
        }))
    }
}

struct Line {
    at: Option<Timestamp>,
    time: String,
    whole: bool,
    text: Vec<u8>,
}

impl Line {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let mut fields = bytes.splitn(4, |byte| *byte == b' ');
        let time = String::from_utf8(fields.next()?.to_vec()).ok()?;
        let (_stream, tag) = (fields.next()?, fields.next()?);
        let text = fields.next()?.to_vec();
        Some(Self {
            at: time.parse().ok(),
            time,
            whole: tag == b"F",
            text,
        })
    }
}

/// Gives each whole line of `file` from its start; returns where they end.
fn each_line(mut file: File, give: &mut impl FnMut(Line)) -> io::Result<u64> {
    let mut position = 0;
    each_line_from(&mut file, &mut position, give)?;
    Ok(position)
}

fn each_line_from(file: &mut File, position: &mut u64, give: &mut impl FnMut(Line)) -> io::Result<()> {
    file.seek(SeekFrom::Start(*position))?;
    let mut reader = BufReader::new(file.by_ref());
    let mut bytes = Vec::new();
    loop {
        bytes.clear();
        let read = reader.read_until(b'\n', &mut bytes)?;
        if bytes.last() != Some(&b'\n') {
            return Ok(());
        }
        *position += read as u64;
        bytes.pop();
        if let Some(line) = Line::parse(&bytes) {
            give(line);
        }
    }
}

/// Keeps the last `count` lines, where the parts of a long one count as one.
fn drop_all_but_last(lines: &mut VecDeque<Line>, count: u64) {
    let mut seen = 0;
    let mut keep = 0;
    for line in lines.iter().rev() {
        if line.whole {
            if seen == count {
                break;
            }
            seen += 1;
        }
        keep += 1;
    }
    lines.drain(..lines.len() - keep);
}

struct Reader {
    options: LogOptions,
    given: u64,
    in_line: bool,
}

impl Reader {
    fn new(options: LogOptions) -> Self {
        Self {
            options,
            given: 0,
            in_line: false,
        }
    }

    fn wants(&self, line: &Line) -> bool {
        self.options
            .since
            .is_none_or(|since| line.at.is_none_or(|at| at >= since))
    }

    fn limit_reached(&self) -> bool {
        self.options.limit_bytes.is_some_and(|limit| self.given >= limit)
    }

    fn render(&mut self, line: &Line) -> Option<Bytes> {
        let mut out = Vec::with_capacity(line.text.len() + 40);
        if self.options.timestamps && !self.in_line {
            out.extend_from_slice(line.time.as_bytes());
            out.push(b' ');
        }
        out.extend_from_slice(&line.text);
        if line.whole {
            out.push(b'\n');
        }
        self.in_line = !line.whole;
        if let Some(limit) = self.options.limit_bytes {
            out.truncate(usize::try_from(limit - self.given.min(limit)).unwrap_or(usize::MAX));
        }
        self.given += out.len() as u64;
        (!out.is_empty()).then(|| Bytes::from(out))
    }
}
