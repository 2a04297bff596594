//! How far a pull has come, as the step tells it and the controllers read it.

use std::{collections::BTreeMap, time::Duration};

use kaos_seams::Dialer;
use serde::{Deserialize, Serialize};
use url::Url;

use crate::client::{Error, Frame, read_json};

/// Where the model is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum State {
    /// Ollama does not answer, or has not been asked yet.
    #[default]
    Waiting,
    /// On its way.
    Pulling,
    /// There.
    Pulled,
    /// The last try failed; it is tried again.
    Failed,
}

/// How far the pull of a model has come.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// The model's name.
    pub model: String,
    /// Where the model is.
    pub state: State,
    /// Bytes that have come.
    pub completed: u64,
    /// Bytes of all parts that Ollama has told of so far; 0 before it told of any.
    pub total: u64,
    /// The share that has come, in hundredths; left out while `total` is 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percent: Option<u8>,
    /// What went wrong at the last try, in Ollama's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Progress {
    /// With these bytes.
    pub(crate) fn of_bytes(mut self, completed: u64, total: u64) -> Self {
        self.completed = completed.min(total);
        self.total = total;
        // In 128 bits, since Ollama's figures may be anything.
        let share = (u128::from(self.completed) * 100).checked_div(u128::from(total));
        self.percent = share.and_then(|share| u8::try_from(share).ok());
        self
    }
}

/// The bytes of each part of a model, summed up.
#[derive(Debug, Default)]
pub(crate) struct Parts(BTreeMap<String, (u64, u64)>);

impl Parts {
    /// Takes in what a frame says; whether it said anything of bytes.
    pub(crate) fn take(&mut self, frame: &Frame) -> bool {
        let (Some(digest), Some(total)) = (&frame.digest, frame.total) else {
            return false;
        };
        self.0
            .insert(digest.clone(), (frame.completed.unwrap_or_default(), total));
        true
    }

    /// Completed and total bytes.
    pub(crate) fn sum(&self) -> (u64, u64) {
        self.0.values().fold((0, 0), |(completed, total), part| {
            (completed.saturating_add(part.0), total.saturating_add(part.1))
        })
    }
}

/// Asks the step at `endpoint` (`http://HOST:PORT`) how far it is.
///
/// # Errors
/// When it cannot be reached within `deadline`, or what answers is not the step.
pub async fn progress(endpoint: &str, dialer: &dyn Dialer, deadline: Duration) -> Result<Progress, Error> {
    let url = Url::parse(endpoint)
        .and_then(|url| url.join("/progress"))
        .map_err(|error| Error::Address {
            address: endpoint.to_owned(),
            problem: error.to_string(),
        })?;
    let http = crate::http_client().map_err(Error::from)?;
    let asked = async {
        let answer = http.get(dialer.locate(&url)).send().await?;
        read_json(answer).await
    };
    tokio::time::timeout(deadline, asked)
        .await
        .unwrap_or(Err(Error::Late(deadline.as_secs())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_summed_and_figures_that_cannot_be_do_no_harm() {
        let frame = |digest: &str, completed, total| Frame {
            digest: Some(digest.to_owned()),
            completed,
            total,
            ..Frame::default()
        };
        let mut parts = Parts::default();
        assert!(!parts.take(&Frame::default()));
        assert!(parts.take(&frame("a", Some(50), Some(100))));
        assert!(parts.take(&frame("b", None, Some(100))));
        assert!(parts.take(&frame("a", Some(100), Some(100))));
        let (completed, total) = parts.sum();
        let progress = Progress::default().of_bytes(completed, total);
        assert_eq!(
            (progress.completed, progress.total, progress.percent),
            (100, 200, Some(50))
        );

        parts.take(&frame("c", Some(u64::MAX), Some(u64::MAX)));
        let (completed, total) = parts.sum();
        assert_eq!(Progress::default().of_bytes(completed, total).percent, Some(100));
        assert_eq!(Progress::default().of_bytes(9, 0).percent, None);
    }
}
