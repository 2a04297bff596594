//! A value that must not be seen.

use std::fmt;

/// An API key. Its `Debug` shows nothing of it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(String);

impl Secret {
    pub(crate) fn new(value: String) -> Self {
        Self(value)
    }

    /// The key itself, to be sent and never to be logged.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }

    /// `text` without the key: upstreams like to quote a wrong one.
    pub(crate) fn redact(&self, text: &str) -> String {
        text.replace(&self.0, "[redacted]")
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}
