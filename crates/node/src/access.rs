//! Why a log or an address cannot be given.

/// A refusal with the HTTP status that an API server answers for it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// The pod, Service, container or log does not exist (404).
    #[error("{0}")]
    NotFound(String),
    /// The request names no container where it must, or a port that is not there (400).
    #[error("{0}")]
    BadRequest(String),
    /// It exists, but there is nothing behind it now (503).
    #[error("{0}")]
    Unavailable(String),
}

impl AccessError {
    /// The HTTP status code.
    pub fn status(&self) -> u16 {
        match self {
            Self::NotFound(_) => 404,
            Self::BadRequest(_) => 400,
            Self::Unavailable(_) => 503,
        }
    }
}
