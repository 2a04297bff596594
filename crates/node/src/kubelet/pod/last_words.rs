//! The termination message of a container that writes none: the end of its log, where its
//! `terminationMessagePolicy` is `FallbackToLogsOnError` and it failed.

use std::time::Duration;

use futures::StreamExt as _;

use crate::processes::{
    Exit,
    logs::{LogOptions, Logs},
};

/// As much of the log as a kubelet takes.
const LINES: u64 = 80;
const BYTES: usize = 2048;
/// The log ends with the process, unless something it started still holds it open.
const PATIENCE: Duration = Duration::from_secs(1);

/// Where to look for them.
pub(super) struct LastWords {
    pub(super) wanted: bool,
    pub(super) logs: Logs,
    /// Namespace, name and uid.
    pub(super) pod: (String, String, String),
    pub(super) container: String,
}

impl LastWords {
    /// The last words of a run that has ended so.
    pub(super) async fn of(&self, exit: &Exit) -> Option<String> {
        if !self.wanted || exit.code == 0 {
            return None;
        }
        let (namespace, name, uid) = &self.pod;
        let options = LogOptions {
            follow: true,
            tail_lines: Some(LINES),
            ..LogOptions::default()
        };
        let mut log = self
            .logs
            .read((namespace, name, uid), &self.container, None, options)
            .ok()?;
        let mut text = Vec::new();
        let all = async {
            while let Some(Ok(piece)) = log.next().await {
                text.extend_from_slice(&piece);
            }
        };
        // What was read by then is what there is.
        let _ = tokio::time::timeout(PATIENCE, all).await;
        let start = text.len().saturating_sub(BYTES);
        let text = String::from_utf8_lossy(&text[start..]).into_owned();
        (!text.trim().is_empty()).then_some(text)
    }
}
