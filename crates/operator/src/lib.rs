//! The controllers as a process on a cluster: configured by the environment, connected by a kubeconfig or a pod's
//! ServiceAccount, until they are told to stop.
//!
//! What a kind becomes is decided in `kaos-controllers`.

mod connection;
mod duration;
mod environment;

pub use connection::{Connection, ConnectionError, Source};
pub use environment::{EnvironmentError, config};

use kaos_controllers::Config;
use kaos_kube_ext::answer;
use kaos_seams::Seams;
use tokio_util::sync::CancellationToken;
use tracing::info;

/// What installs the definitions of the kinds.
const INSTALL: &str = "kaos crds | kubectl apply --server-side -f -";

/// Why the operator could not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A kind is not there.
    #[error("{api} does not serve {kind}; install what is missing with `{INSTALL}` and start again")]
    NotInstalled {
        /// The address of the API server.
        api: String,
        /// The kind.
        kind: String,
    },
    /// The user may not do what the operator does.
    #[error(
        "{api} does not let this user list {kind} in all namespaces: {}; grant it, or connect as another user",
        answer(cause)
    )]
    NotAllowed {
        /// The address of the API server.
        api: String,
        /// The kind.
        kind: String,
        /// The API server's answer.
        cause: Box<kube::Error>,
    },
    /// The API server does not answer, or not as one does.
    #[error("{api} does not list {kind}: {}", answer(cause))]
    NotListed {
        /// The address of the API server.
        api: String,
        /// The kind.
        kind: String,
        /// What went wrong.
        cause: Box<kube::Error>,
    },
}

/// Runs the controllers until `shutdown`, and then until the work that is under way has ended.
///
/// # Errors
/// When a kind is not served or may not be listed. What goes wrong later is tried again.
pub async fn run(
    connection: Connection,
    config: Config,
    seams: Seams,
    shutdown: CancellationToken,
) -> Result<(), Error> {
    let Connection { client, api, .. } = connection;
    info!(%api, "working for the API server");
    kaos_controllers::run(client, config, seams, shutdown)
        .await
        .map_err(|error| told(api, error))
}

fn told(api: String, error: kaos_controllers::Error) -> Error {
    let kaos_controllers::Error::NotListed { kind, source } = error;
    let code = match &source {
        kube::Error::Api(status) => status.code,
        _ => 0,
    };
    let cause = Box::new(source);
    match code {
        404 => Error::NotInstalled { api, kind },
        401 | 403 => Error::NotAllowed { api, kind, cause },
        _ => Error::NotListed { api, kind, cause },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: u16) -> Error {
        let status = kube::core::Status::failure("no", "Because").with_code(code);
        let error = kaos_controllers::Error::NotListed {
            kind: "Agent".to_owned(),
            source: kube::Error::Api(status.boxed()),
        };
        told("https://10.0.0.1".to_owned(), error)
    }

    #[test]
    fn a_kind_that_is_missing_is_told_with_what_installs_it() {
        assert_eq!(
            refused(404).to_string(),
            "https://10.0.0.1 does not serve Agent; install what is missing with \
             `kaos crds | kubectl apply --server-side -f -` and start again"
        );
    }

    #[test]
    fn a_missing_right_is_no_missing_kind() {
        let text = refused(403).to_string();
        assert!(
            text.starts_with("https://10.0.0.1 does not let this user list Agent in all namespaces"),
            "{text}"
        );
        assert!(matches!(refused(500), Error::NotListed { .. }));
    }
}
