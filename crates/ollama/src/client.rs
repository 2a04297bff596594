//! The part of Ollama's API that lists and pulls models.

use std::{sync::Arc, time::Duration};

use kaos_seams::Dialer;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tokio::time::timeout;
use url::Url;

use crate::name::ModelName;

/// How long a listing may take.
const LIST_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest silence within a pull. Ollama says nothing while it checks what it has, which takes its time
/// with large models.
const IDLE_TIMEOUT: Duration = Duration::from_secs(300);
/// The largest line of a pull and the largest other answer, in bytes.
const MAX_LINE: usize = 64 * 1024;
const MAX_ANSWER: usize = 4 * 1024 * 1024;
/// How much of an unexpected answer is quoted, in characters.
const QUOTED: usize = 200;

/// What went wrong with Ollama.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address is no URL.
    #[error("{address:?} is no address: {problem}; write http://HOST:PORT")]
    Address {
        /// What was given.
        address: String,
        /// What is wrong with it.
        problem: String,
    },
    /// No connection, or it broke.
    #[error("{0}")]
    Unreachable(String),
    /// No answer in time.
    #[error("no answer within {0} s")]
    Late(u64),
    /// Ollama said what is wrong.
    #[error("{0}")]
    Refused(String),
    /// What came is not what Ollama answers.
    #[error("an answer that is not Ollama's: {0}")]
    Garbage(String),
    /// A pull ended without an end.
    #[error("the connection ended before the model was complete")]
    CutOff,
}

impl From<reqwest::Error> for Error {
    fn from(error: reqwest::Error) -> Self {
        if error.is_timeout() {
            return Self::Late(crate::CONNECT_TIMEOUT.as_secs());
        }
        // The innermost cause says what happened; the outer ones say where, which the caller knows.
        let error = error.without_url();
        let mut reason = error.to_string();
        let mut cause = std::error::Error::source(&error);
        while let Some(current) = cause {
            reason = current.to_string();
            cause = current.source();
        }
        Self::Unreachable(reason)
    }
}

/// A running Ollama.
#[derive(Clone, Debug)]
pub struct Ollama {
    base: Url,
    http: reqwest::Client,
    dialer: Arc<dyn Dialer>,
}

#[derive(Deserialize)]
struct Tags {
    /// Null where there are none.
    models: Option<Vec<Tag>>,
}

#[derive(Deserialize)]
struct Tag {
    name: String,
}

#[derive(Serialize)]
struct PullRequest<'a> {
    model: &'a str,
    stream: bool,
}

/// One line of a pull's answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct Frame {
    #[serde(default)]
    pub(crate) status: String,
    #[serde(default)]
    pub(crate) digest: Option<String>,
    #[serde(default)]
    pub(crate) total: Option<u64>,
    #[serde(default)]
    pub(crate) completed: Option<u64>,
    #[serde(default)]
    pub(crate) error: Option<String>,
}

#[derive(Deserialize)]
struct Refusal {
    error: String,
}

impl Ollama {
    /// The Ollama at `address` (`http://HOST:PORT`), which need not run yet.
    ///
    /// A TLS provider must be installed before (`kaos_telemetry::install_crypto_provider`).
    ///
    /// # Errors
    /// When the address is no URL.
    pub fn new(address: &str, dialer: Arc<dyn Dialer>) -> Result<Self, Error> {
        let base = Url::parse(address).map_err(|error| Error::Address {
            address: address.to_owned(),
            problem: error.to_string(),
        })?;
        if !matches!(base.scheme(), "http" | "https") {
            return Err(Error::Address {
                address: address.to_owned(),
                problem: "it is neither http nor https".to_owned(),
            });
        }
        Ok(Self {
            base,
            http: crate::http_client()?,
            dialer,
        })
    }

    /// The names of the models that are there.
    ///
    /// # Errors
    /// When Ollama does not answer as it should.
    pub async fn tags(&self) -> Result<Vec<String>, Error> {
        let asked = async {
            let answer = self.http.get(self.url("/api/tags")?).send().await?;
            let tags: Tags = read_json(answer).await?;
            Ok(tags.models.into_iter().flatten().map(|tag| tag.name).collect())
        };
        timeout(LIST_TIMEOUT, asked)
            .await
            .unwrap_or(Err(Error::Late(LIST_TIMEOUT.as_secs())))
    }

    /// Has Ollama pull `model`, and calls `on` with each line of its answer. What has come before stays with
    /// Ollama, so a pull that broke off goes on where it was.
    ///
    /// # Errors
    /// When the pull does not end well.
    pub(crate) async fn pull(
        &self,
        model: &ModelName,
        mut on: impl FnMut(&Frame) + Send,
    ) -> Result<(), Error> {
        let request = PullRequest {
            model: model.as_str(),
            stream: true,
        };
        let late = |_| Error::Late(IDLE_TIMEOUT.as_secs());
        let sent = self.http.post(self.url("/api/pull")?).json(&request).send();
        let mut answer = timeout(IDLE_TIMEOUT, sent).await.map_err(late)??;
        if !answer.status().is_success() {
            return Err(timeout(IDLE_TIMEOUT, refusal(answer)).await.map_err(late)?);
        }
        let mut rest = Vec::new();
        let mut succeeded = false;
        while let Some(chunk) = timeout(IDLE_TIMEOUT, answer.chunk()).await.map_err(late)?? {
            for byte in chunk {
                if byte == b'\n' {
                    succeeded |= line(&rest, &mut on)?;
                    rest.clear();
                } else if rest.len() < MAX_LINE {
                    rest.push(byte);
                } else {
                    return Err(Error::Garbage(format!("a line of more than {MAX_LINE} bytes")));
                }
            }
        }
        // The last line may have no end; half of one is no JSON.
        if !succeeded && !rest.is_empty() {
            succeeded = serde_json::from_slice::<Frame>(&rest).is_ok() && line(&rest, &mut on)?;
        }
        if succeeded { Ok(()) } else { Err(Error::CutOff) }
    }

    fn url(&self, path: &str) -> Result<Url, Error> {
        let url = self.base.join(path).map_err(|error| Error::Address {
            address: self.base.to_string(),
            problem: error.to_string(),
        })?;
        Ok(self.dialer.locate(&url))
    }
}

/// Reads one line; whether it says that the model is complete.
fn line(text: &[u8], on: &mut impl FnMut(&Frame)) -> Result<bool, Error> {
    if text.iter().all(u8::is_ascii_whitespace) {
        return Ok(false);
    }
    let frame: Frame = serde_json::from_slice(text).map_err(|_| Error::Garbage(quoted(text)))?;
    match frame.error {
        Some(error) if error.trim().is_empty() => return Err(Error::Garbage(quoted(text))),
        Some(error) => return Err(Error::Refused(error)),
        None => {}
    }
    on(&frame);
    Ok(frame.status == "success")
}

/// The answer's body as JSON, or what it says went wrong.
pub(crate) async fn read_json<T: DeserializeOwned>(answer: reqwest::Response) -> Result<T, Error> {
    if !answer.status().is_success() {
        return Err(refusal(answer).await);
    }
    let body = whole(answer).await?;
    serde_json::from_slice(&body).map_err(|_| Error::Garbage(quoted(&body)))
}

async fn refusal(answer: reqwest::Response) -> Error {
    let status = answer.status();
    let body = match whole(answer).await {
        Ok(body) => body,
        Err(error) => return error,
    };
    match serde_json::from_slice::<Refusal>(&body) {
        Ok(refusal) => Error::Refused(refusal.error),
        Err(_) => Error::Garbage(format!("{status} {}", quoted(&body)).trim_end().to_owned()),
    }
}

async fn whole(mut answer: reqwest::Response) -> Result<Vec<u8>, Error> {
    let mut body = Vec::new();
    while let Some(chunk) = answer.chunk().await? {
        if body.len() + chunk.len() > MAX_ANSWER {
            return Err(Error::Garbage(format!("more than {MAX_ANSWER} bytes")));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

fn quoted(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let text = text.trim();
    let mut short: String = text.chars().take(QUOTED).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use kaos_fuzz::Corpus;

    use super::*;

    #[test]
    fn fuzzed_lines_tell_of_progress_or_what_is_wrong() {
        let corpus = Corpus::of(concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/progress"));
        corpus
            .with_words(&["\"status\":", "\"error\":", "\"total\":"])
            .fuzz(|bytes| {
                for text in bytes.split(|byte| *byte == b'\n') {
                    let mut told = 0;
                    match line(text, &mut |_| told += 1) {
                        Ok(done) => assert!(told == 1 || !done),
                        Err(error) => assert!(!error.to_string().is_empty() && told == 0),
                    }
                }
            });
    }
}
