//! What an error of an apply means: whose it is, and what is said about it.

use kaos_kube_ext::{ApplyError, Operation};

/// Why a pass over a resource ended early.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// An object could not be applied.
    #[error(transparent)]
    Apply(#[from] ApplyError),
    /// Something else was asked of the API server, and it said no.
    #[error("{action}: {source}")]
    Api {
        /// What was to be done.
        action: &'static str,
        /// The server's answer.
        source: kube::Error,
    },
    /// A file could not be written as YAML: a mistake in this program.
    #[error("the configuration cannot be written: {0}")]
    Unwritable(#[from] serde_saphyr::SerializeError),
    /// The resource does not come from an API server: a mistake in this program.
    #[error("the resource has no uid or no namespace")]
    NotStored,
}

/// Who has to act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blame {
    /// The user, by changing the resource. Trying again is of no use.
    User,
    /// Whoever runs the cluster, and the status says so. Tried again.
    Cluster,
    /// Nobody: it passes. Tried again, and the status stays as it is.
    Passing,
}

impl Failure {
    /// A failure to do `action`.
    pub(crate) fn api(action: &'static str) -> impl Fn(kube::Error) -> Self {
        move |source| Self::Api { action, source }
    }

    pub(crate) fn blame(&self) -> Blame {
        match self {
            Self::Apply(ApplyError::Foreign { .. }) => Blame::Cluster,
            Self::Apply(ApplyError::BeingDeleted { .. }) => Blame::Passing,
            Self::Apply(ApplyError::Api {
                operation, source, ..
            }) => blame_of(source, *operation),
            Self::Api { source, .. } => blame_of(source, Operation::Get),
            Self::Apply(ApplyError::Malformed { .. }) | Self::Unwritable(_) | Self::NotStored => {
                Blame::Cluster
            }
        }
    }

    /// One word for the condition.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::Apply(ApplyError::Foreign { .. }) => "NameTaken",
            _ => "ApplyFailed",
        }
    }

    /// What the status says.
    pub(crate) fn message(&self) -> String {
        match self {
            Self::Apply(ApplyError::Api {
                kind,
                operation,
                source,
                ..
            }) => {
                format!("Failed to {operation} {kind}: {source}")
            }
            Self::Apply(ApplyError::Foreign { kind, .. }) => format!("Failed to create {kind}: {self}"),
            other => other.to_string(),
        }
    }
}

fn blame_of(error: &kube::Error, operation: Operation) -> Blame {
    match error {
        // The object follows from the spec alone, so another spec is needed.
        kube::Error::Api(status) if matches!(status.code, 400 | 422) && operation != Operation::Get => {
            Blame::User
        }
        // Forbidden: rights, quotas, admission.
        kube::Error::Api(status) if matches!(status.code, 400 | 401 | 403 | 422) => Blame::Cluster,
        _ => Blame::Passing,
    }
}
