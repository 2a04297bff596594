//! One Python worker process and the protocol with it.
//!
//! Owns the child process: dropping a [`Worker`] kills it. Never decides when to start or replace one; the
//! [pool](super::pool) does. The other end of the protocol is `python/worker.py`.

use std::{
    io,
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
    time::Duration,
};

use futures::{SinkExt, StreamExt};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio_util::codec::{FramedRead, FramedWrite, LinesCodec, LinesCodecError};

use super::{config::FILE_VARIABLE, source::Loaded};
use crate::packages::{PYTHON_VARIABLE, PackageError};

/// How long Python may take to start and to run the source's top level; large imports are slow when cold.
const START_TIMEOUT: Duration = Duration::from_secs(120);
/// The longest answer of a worker, in bytes.
const MAX_ANSWER: usize = 16 * 1024 * 1024;

/// The modules of a worker, in the order in which they import each other.
const MODULES: [(&str, &str); 3] = [
    ("kaos_docstrings", include_str!("../python/docstrings.py")),
    ("kaos_json_types", include_str!("../python/json_types.py")),
    ("kaos_worker", include_str!("../python/worker.py")),
];

/// Makes modules of the first line, without a file: the root file system may be read-only. The current folder
/// is no place to import from, so that a `json.py` lying there does no harm.
const BOOTSTRAP: &str = "\
import sys
sys.path[:] = [entry for entry in sys.path if entry]
import json, types
start = json.loads(sys.stdin.buffer.readline())
for name, code in start['modules']:
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(code, name + '.py', 'exec'), module.__dict__)
module.main(start['source'])
";

/// Why the tools cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// There is no interpreter.
    #[error(
        "Python was not found: {python:?} is not in PATH or does not exist; install Python 3.9 or newer, or \
         set {PYTHON_VARIABLE} to its path"
    )]
    NoPython {
        /// The program that was looked for.
        python: String,
    },
    /// The interpreter cannot be run.
    #[error("Python cannot be started: {python:?}: {source}; set {PYTHON_VARIABLE} to a Python 3.9 or newer")]
    Spawn {
        /// The program.
        python: String,
        /// What the operating system said.
        source: io::Error,
    },
    /// The interpreter is of a version that the workers are not written for.
    #[error(
        "{python:?} is Python {version}, and 3.9 is the oldest that works; set {PYTHON_VARIABLE} to a newer one"
    )]
    TooOld {
        /// The program.
        python: String,
        /// Its version.
        version: String,
    },
    /// The file with the source cannot be read.
    #[error(
        "the tools cannot be read: {FILE_VARIABLE} is {path:?}: {source}; mount a file with Python source there"
    )]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// The source is wrong; what happened and where.
    #[error("the tools cannot be loaded: {place}{}: {message}{}", at_line(*line), shown(text))]
    Source {
        /// Where the source is from.
        place: String,
        /// Python's message.
        message: String,
        /// The line of the source, from 1.
        line: Option<u64>,
        /// The text of that line.
        text: String,
    },
    /// The source needs another Python.
    #[error(
        "the tools cannot be loaded: {place} requires Python {required}, and {python:?} is Python {version}; set          {PYTHON_VARIABLE} to one that fits"
    )]
    OtherPython {
        /// Where the source is from.
        place: String,
        /// The versions that it asks for.
        required: String,
        /// The program.
        python: String,
        /// Its version.
        version: String,
    },
    /// Packages that the source imports cannot be installed.
    #[error("the tools cannot be loaded: {place}: {source}")]
    Packages {
        /// Where the source is from.
        place: String,
        /// What went wrong.
        source: PackageError,
    },
    /// The interpreter ended or said something else.
    #[error(
        "Python ended before the tools were loaded ({what}); its messages are in the log above; check that \
         {python:?} is Python 3.9 or newer and that the source does not end the process"
    )]
    Ended {
        /// The program.
        python: String,
        /// How it ended.
        what: String,
    },
    /// The source's top level does not end.
    #[error(
        "the tools were not loaded within {} s: {place} runs too long at its top level; move long work into the \
         functions",
        START_TIMEOUT.as_secs()
    )]
    Timeout {
        /// Where the source is from.
        place: String,
    },
}

fn at_line(line: Option<u64>) -> String {
    line.map(|line| format!(", line {line}")).unwrap_or_default()
}

fn shown(text: &str) -> String {
    if text.is_empty() {
        String::new()
    } else {
        format!(": {text:?}; correct this line")
    }
}

/// A tool as its worker describes it.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub(super) struct Definition {
    pub(super) name: String,
    pub(super) description: String,
    pub(super) schema: Map<String, Value>,
    /// The schema of what it returns, where its return type says.
    pub(super) output: Option<Map<String, Value>>,
}

/// One part of a result.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(untagged)]
pub(super) enum Content {
    Text {
        text: String,
    },
    /// Base64 and its media type.
    Data {
        data: String,
        mime: String,
    },
}

/// What a call came to, on the worker's word.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Answer {
    Returned {
        content: Vec<Content>,
        structured: Option<Map<String, Value>>,
    },
    /// The tool raised, or refused its arguments.
    Failed(String),
}

/// The worker can serve no further calls.
#[derive(Debug, thiserror::Error)]
pub(super) enum Broken {
    #[error("its Python process ended ({0})")]
    Ended(String),
    #[error("its result is larger than {} MiB", MAX_ANSWER / 1024 / 1024)]
    TooLarge,
    #[error("its Python process answered out of turn")]
    OutOfTurn,
}

#[derive(Deserialize)]
struct Started {
    tools: Option<Vec<Definition>>,
    failed: Option<Failed>,
    too_old: Option<String>,
}

#[derive(Deserialize)]
struct Failed {
    message: String,
    line: Option<u64>,
    text: Option<String>,
}

#[derive(Serialize)]
struct Call<'a> {
    call: u64,
    tool: &'a str,
    arguments: &'a Map<String, Value>,
}

#[derive(Deserialize)]
struct Called {
    call: u64,
    #[serde(default)]
    content: Vec<Content>,
    structured: Option<Map<String, Value>>,
    error: Option<String>,
}

/// A Python process with the tools loaded.
pub(super) struct Worker {
    child: Child,
    requests: FramedWrite<ChildStdin, LinesCodec>,
    answers: FramedRead<ChildStdout, LinesCodec>,
    calls: u64,
    /// The tools of its source.
    pub(super) tools: Arc<[Definition]>,
}

impl Worker {
    /// Starts a process and has it load the source.
    pub(super) async fn start(python: &Path, source: &Loaded) -> Result<Self, StartError> {
        let starting = Self::start_unbounded(python, source);
        tokio::time::timeout(START_TIMEOUT, starting)
            .await
            .unwrap_or_else(|_| {
                Err(StartError::Timeout {
                    place: source.place.clone(),
                })
            })
    }

    async fn start_unbounded(program: &Path, source: &Loaded) -> Result<Self, StartError> {
        let python = || program.display().to_string();
        let mut child = spawn(program).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => StartError::NoPython { python: python() },
            _ => StartError::Spawn {
                python: python(),
                source,
            },
        })?;
        let ended = |what: String| StartError::Ended {
            python: python(),
            what,
        };
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(ended("its input and output are missing".to_owned()));
        };
        let mut worker = Self {
            child,
            requests: FramedWrite::new(stdin, LinesCodec::new()),
            answers: FramedRead::new(stdout, LinesCodec::new_with_max_length(MAX_ANSWER)),
            calls: 0,
            tools: Arc::new([]),
        };
        let first = serde_json::json!({ "modules": MODULES, "source": source.text }).to_string();
        let started = match worker.exchange(first).await {
            Ok(line) => serde_json::from_str::<Started>(&line).map_err(|error| ended(error.to_string()))?,
            Err(broken) => return Err(ended(broken.to_string())),
        };
        match started {
            Started {
                failed: Some(failed), ..
            } => Err(StartError::Source {
                place: source.place.clone(),
                message: failed.message,
                line: failed.line,
                text: failed.text.unwrap_or_default(),
            }),
            Started {
                too_old: Some(version),
                ..
            } => Err(StartError::TooOld {
                python: python(),
                version,
            }),
            Started {
                tools: Some(tools), ..
            } => {
                worker.tools = tools.into();
                Ok(worker)
            }
            Started { .. } => Err(ended("it named no tools".to_owned())),
        }
    }

    /// Runs one call to its end.
    pub(super) async fn call(
        &mut self,
        tool: &str,
        arguments: &Map<String, Value>,
    ) -> Result<Answer, Broken> {
        self.calls += 1;
        // Strings and numbers only: this cannot fail, and if it did no answer could come.
        let request = serde_json::to_string(&Call {
            call: self.calls,
            tool,
            arguments,
        })
        .map_err(|_| Broken::OutOfTurn)?;
        let line = self.exchange(request).await?;
        let called: Called = serde_json::from_str(&line).map_err(|_| Broken::OutOfTurn)?;
        if called.call != self.calls {
            return Err(Broken::OutOfTurn);
        }
        Ok(match called.error {
            Some(error) => Answer::Failed(error),
            None => Answer::Returned {
                content: called.content,
                structured: called.structured,
            },
        })
    }

    /// Sends a line and waits for the next one, or for the end of the process. Both are watched, because a
    /// process that the tool has left behind can hold the pipe open.
    async fn exchange(&mut self, request: String) -> Result<String, Broken> {
        if self.requests.send(request).await.is_err() {
            return Err(Broken::Ended(self.ending().await));
        }
        let line = tokio::select! {
            biased;
            line = self.answers.next() => line,
            status = self.child.wait() => {
                // Its last words may still be in the pipe.
                let last = tokio::time::timeout(Duration::from_millis(100), self.answers.next()).await;
                match last {
                    Ok(Some(Ok(line))) => Some(Ok(line)),
                    _ => return Err(Broken::Ended(status_text(status))),
                }
            }
        };
        match line {
            Some(Ok(line)) => Ok(line),
            Some(Err(LinesCodecError::MaxLineLengthExceeded)) => Err(Broken::TooLarge),
            Some(Err(LinesCodecError::Io(_))) | None => Err(Broken::Ended(self.ending().await)),
        }
    }

    /// How the process ended; it is given a moment, since its pipes close first.
    async fn ending(&mut self) -> String {
        match tokio::time::timeout(Duration::from_secs(1), self.child.wait()).await {
            Ok(status) => status_text(status),
            Err(_) => "it closed its output".to_owned(),
        }
    }

    /// Completes when the process has ended of its own accord.
    pub(super) async fn ended(&mut self) -> String {
        status_text(self.child.wait().await)
    }
}

fn status_text(status: io::Result<std::process::ExitStatus>) -> String {
    status.map_or_else(|error| error.to_string(), |status| status.to_string())
}

fn spawn(python: &Path) -> io::Result<Child> {
    Command::new(python)
        .arg("-u")
        .arg("-c")
        .arg(BOOTSTRAP)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        // What user code prints and its tracebacks belong in the server's log as they are.
        .stderr(Stdio::inherit())
        // The worker stays in the server's process group, so that whoever stops that group stops it too; it
        // also ends by itself when its input does.
        .kill_on_drop(true)
        .spawn()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_worker_ends_when_its_input_does_even_within_a_call() {
        let source = Loaded {
            text: "import time\ndef hang(): time.sleep(3600)\n".to_owned(),
            place: "here".to_owned(),
        };
        let mut worker = Worker::start(Path::new("python3"), &source).await.unwrap();
        let request = r#"{"call": 1, "tool": "hang", "arguments": {}}"#.to_owned();
        worker.requests.send(request).await.unwrap();
        // All that a server which is killed leaves behind.
        drop(worker.requests);
        let ended = tokio::time::timeout(Duration::from_secs(30), worker.child.wait()).await;
        assert!(ended.expect("the worker ends").unwrap().success());
    }
}
