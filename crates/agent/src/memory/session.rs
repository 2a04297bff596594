//! The names of sessions.

use std::fmt;

use kaos_seams::Random;

/// How long a session's name may be, in bytes.
const LENGTH_LIMIT: usize = 128;
/// How much of a wrong name is quoted, in characters.
const QUOTED: usize = 40;

/// A session's name: visible ASCII, so that it fits a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SessionId(String);

/// A name that is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("session id {0:?} is not valid: use 1 to {LENGTH_LIMIT} characters of visible ASCII")]
pub(crate) struct InvalidSession(String);

impl SessionId {
    /// Takes the name that a request gives.
    pub(crate) fn parse(text: &str) -> Result<Self, InvalidSession> {
        let valid =
            (1..=LENGTH_LIMIT).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
        if valid {
            return Ok(Self(text.to_owned()));
        }
        Err(InvalidSession(text.chars().take(QUOTED).collect()))
    }

    /// A name for a session that was given none.
    pub(crate) fn generate(random: &dyn Random) -> Self {
        Self(format!("session_{}", random.hex(6)))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use kaos_seams::SeededRandom;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_that_fit_a_header_are_sessions() {
        for good in ["a", "session_0123456789ab", &"x".repeat(128)] {
            assert_eq!(SessionId::parse(good).unwrap().as_str(), good);
        }
        let error = SessionId::parse("my chat").unwrap_err().to_string();
        assert_eq!(
            error,
            "session id \"my chat\" is not valid: use 1 to 128 characters of visible ASCII"
        );
        for bad in ["", "a b", "a\n", "ü", &"x".repeat(129)] {
            assert!(SessionId::parse(bad).is_err(), "{bad:?}");
        }
        let generated = SessionId::generate(&SeededRandom::new(1));
        assert_eq!(generated.as_str().len(), "session_".len() + 12);
        assert_eq!(SessionId::parse(generated.as_str()), Ok(generated));
    }

    proptest! {
        #[test]
        fn every_session_fits_a_header(text in ".{0,140}") {
            if let Ok(id) = SessionId::parse(&text) {
                prop_assert!(http::HeaderValue::from_str(id.as_str()).is_ok());
            }
        }
    }
}
