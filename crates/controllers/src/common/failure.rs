//! What an error of the API server means: whose it is, and what is said about it.

use std::fmt;

use kaos_kube_ext::{ApplyError, Operation, PruneError, answer};

/// Why a pass over a resource ended early. Shown as what the status says.
#[derive(Debug)]
pub(crate) enum Failure {
    /// An object could not be applied.
    Apply(ApplyError),
    /// An object that is no longer wanted could not be deleted.
    Delete(PruneError),
    /// Something else was asked of the API server, and it said no.
    Api {
        /// What was to be done.
        action: &'static str,
        /// The server's answer.
        source: kube::Error,
    },
    /// The resource does not come from an API server: a mistake in this program.
    NotStored,
}

impl From<ApplyError> for Failure {
    fn from(error: ApplyError) -> Self {
        Self::Apply(error)
    }
}

impl From<PruneError> for Failure {
    fn from(error: PruneError) -> Self {
        Self::Delete(error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Apply(ApplyError::Api {
                kind,
                operation,
                source,
                ..
            }) => {
                write!(f, "Failed to {operation} {kind}: {}", answer(source))?;
                match (self.is_users(), made_from(kind)) {
                    (true, Some(fields)) => write!(f, "; change {fields}, from which it is made"),
                    _ => Ok(()),
                }
            }
            Self::Apply(foreign @ ApplyError::Foreign { kind, .. }) => {
                write!(f, "Failed to create {kind}: {foreign}")
            }
            Self::Apply(error) => error.fmt(f),
            Self::Delete(PruneError { kind, name, source }) => write!(
                f,
                "failed to delete {kind} {name}, which is no longer wanted: {}",
                answer(source)
            ),
            Self::Api { action, source } => write!(f, "{action}: {}", answer(source)),
            Self::NotStored => f.write_str("the resource has no uid or no namespace"),
        }
    }
}

/// The fields of a resource that reach an object of this kind unseen by us.
fn made_from(kind: &str) -> Option<&'static str> {
    match kind {
        "Deployment" => Some("spec.podSpec or spec.container"),
        "ConfigMap" => Some("spec.proxyConfig"),
        "HTTPRoute" => Some("spec.gatewayRoute"),
        _ => None,
    }
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
            Self::Delete(PruneError { source, .. }) | Self::Api { source, .. } => {
                blame_of(source, Operation::Get)
            }
            Self::Apply(ApplyError::Malformed { .. }) | Self::NotStored => Blame::Cluster,
        }
    }

    /// Whether the user has to act.
    pub(crate) fn is_users(&self) -> bool {
        self.blame() == Blame::User
    }

    /// Whether somebody else's object has the name.
    pub(crate) fn is_name_taken(&self) -> bool {
        matches!(self, Self::Apply(ApplyError::Foreign { .. }))
    }

    /// What cannot be done, and the answer to the last try.
    pub(crate) fn what_and_answer(&self) -> (String, String) {
        let (what, source) = match self {
            Self::Apply(ApplyError::Api {
                kind,
                name,
                operation,
                source,
            }) => {
                let done = match operation {
                    Operation::Get => "read",
                    Operation::Create => "created",
                    Operation::Update => "updated",
                };
                (format!("{kind} {name} cannot be {done}"), source)
            }
            Self::Delete(PruneError { kind, name, source }) => {
                (format!("{kind} {name} cannot be deleted"), source)
            }
            Self::Api { action, source } => ((*action).to_owned(), source),
            Self::Apply(ApplyError::BeingDeleted { kind, name }) => {
                let waits = "its finalizers keep it, and another one is to be made".to_owned();
                return (format!("{kind} {name} is being deleted"), waits);
            }
            other => return ("its objects cannot be applied".to_owned(), other.to_string()),
        };
        (what, answer(source).into_owned())
    }

    /// One word for the condition.
    pub(crate) fn reason(&self) -> &'static str {
        match (self.is_name_taken(), self.blame()) {
            (true, _) => "NameTaken",
            (_, Blame::User) => "RefusedByServer",
            _ if matches!(self, Self::Delete(_) | Self::Api { .. }) => "CleanupFailed",
            _ => "ApplyFailed",
        }
    }
}

fn blame_of(error: &kube::Error, operation: Operation) -> Blame {
    match error {
        // The object follows from the spec alone, so another spec is needed.
        kube::Error::Api(status) if matches!(status.code, 400 | 413 | 422) && operation != Operation::Get => {
            Blame::User
        }
        // Forbidden: rights, quotas, admission.
        kube::Error::Api(status) if matches!(status.code, 400 | 401 | 403 | 413 | 422) => Blame::Cluster,
        _ => Blame::Passing,
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    fn refused(code: u16, message: &str) -> kube::Error {
        kube::Error::Api(Box::new(Status::failure(message, "Reason").with_code(code)))
    }

    fn applying(kind: &str, code: u16, message: &str) -> Failure {
        Failure::Apply(ApplyError::Api {
            kind: kind.to_owned(),
            name: "agent-sam".to_owned(),
            operation: Operation::Update,
            source: refused(code, message),
        })
    }

    #[test]
    fn a_refusal_is_told_in_the_servers_words_with_what_to_change() {
        let invalid = r#"Deployment.apps "agent-sam" is invalid: spec.template.spec.restartPolicy: Unsupported value: "Never": supported values: "Always""#;
        assert_eq!(
            applying("Deployment", 422, invalid).to_string(),
            format!(
                "Failed to update Deployment: {invalid}; change spec.podSpec or spec.container, from which it is made"
            )
        );
        // What the user cannot change.
        assert_eq!(
            applying("Deployment", 403, "exceeded quota").to_string(),
            "Failed to update Deployment: exceeded quota"
        );
        assert_eq!(
            Failure::api("failed to write the status")(refused(500, "")).to_string(),
            "failed to write the status: the API server answers 500 Reason"
        );
    }

    #[test]
    fn what_cannot_be_done_is_told_with_the_last_answer() {
        let update = applying("Deployment", 503, "down");
        let being_deleted = Failure::Apply(ApplyError::BeingDeleted {
            kind: "Service".to_owned(),
            name: "agent-sam".to_owned(),
        });
        for (failure, what, last) in [
            (update, "Deployment agent-sam cannot be updated", "down"),
            (
                Failure::Delete(PruneError {
                    kind: "Service".to_owned(),
                    name: "agent-sam".to_owned(),
                    source: refused(409, "it has changed"),
                }),
                "Service agent-sam cannot be deleted",
                "it has changed",
            ),
            (
                being_deleted,
                "Service agent-sam is being deleted",
                "its finalizers keep it, and another one is to be made",
            ),
            (
                Failure::api("failed to remove finalizers")(refused(500, "")),
                "failed to remove finalizers",
                "the API server answers 500 Reason",
            ),
        ] {
            assert_eq!(failure.what_and_answer(), (what.to_owned(), last.to_owned()));
        }
    }

    #[test]
    fn what_another_spec_would_mend_is_the_users() {
        for (code, expected) in [
            (400, Blame::User),
            (413, Blame::User),
            (422, Blame::User),
            (403, Blame::Cluster),
            (409, Blame::Passing),
            (500, Blame::Passing),
        ] {
            assert_eq!(applying("ConfigMap", code, "no").blame(), expected, "{code}");
        }
    }
}
