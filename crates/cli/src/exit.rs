//! Exit codes, for scripts.

use std::fmt;

use kaos_local::{ApplyError, BringError, Findings, OfflineError};

/// What the help and the reference say of them.
pub(crate) const TABLE: &str = "\
Exit codes: 0 done; 1 failed; 2 the command line is wrong; 3 the manifests are wrong, and nothing was applied; \
4 not ready in time; 5 nothing runs here and no cluster is configured.";

/// The codes beside those of clap (2) and of success (0).
const FAILED: u8 = 1;
/// The manifests are wrong.
pub(crate) const REFUSED: u8 = 3;
/// Not ready in time.
pub(crate) const NOT_READY: u8 = 4;
/// Nothing to talk to.
pub(crate) const NOTHING_RUNS: u8 = 5;

/// An error with a code of its own.
#[derive(Debug)]
pub(crate) struct Coded {
    code: u8,
    /// `None` where it has been told already.
    message: Option<String>,
}

impl Coded {
    /// An error to be told.
    pub(crate) fn telling(code: u8, message: impl Into<String>) -> anyhow::Error {
        let message = Some(message.into());
        Self { code, message }.into()
    }

    /// An error that has been told.
    pub(crate) fn told(code: u8) -> anyhow::Error {
        Self { code, message: None }.into()
    }
}

impl fmt::Display for Coded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message.as_deref().unwrap_or_default())
    }
}

impl std::error::Error for Coded {}

/// Whether the error has been told.
pub(crate) fn is_told(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<Coded>()
        .is_some_and(|coded| coded.message.is_none())
}

/// The code of an error.
pub(crate) fn code(error: &anyhow::Error) -> u8 {
    let refused = error.is::<Findings>()
        || matches!(error.downcast_ref(), Some(ApplyError::Refused(_)))
        || matches!(
            error.downcast_ref(),
            Some(BringError::Apply(ApplyError::Refused(_)))
        )
        || matches!(error.downcast_ref(), Some(OfflineError::Refused(_)));
    match error.downcast_ref::<Coded>() {
        Some(coded) => coded.code,
        None if refused => REFUSED,
        None => FAILED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_error_has_its_code() {
        assert_eq!(code(&anyhow::anyhow!("x")), FAILED);
        assert_eq!(code(&Coded::telling(NOT_READY, "x").context("y")), NOT_READY);
        assert_eq!(code(&anyhow::Error::from(Findings::default())), REFUSED);
        let refused = BringError::Apply(ApplyError::Refused(Findings::default()));
        assert_eq!(code(&anyhow::Error::from(refused)), REFUSED);
        assert!(is_told(&Coded::told(REFUSED)) && !is_told(&Coded::telling(FAILED, "x")));
    }
}
