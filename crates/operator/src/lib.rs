//! The controllers as a process on a cluster: configured by the environment, connected by a kubeconfig or a pod's
//! ServiceAccount, until they are told to stop.
//!
//! What a kind becomes is decided in `kaos-controllers`.

mod connection;
mod duration;
mod environment;
mod lead;
mod probes;

pub use connection::{Connection, ConnectionError, Source};
pub use environment::{EnvironmentError, Settings, settings};
pub use probes::{ProbeAddress, ProbeError};

use kaos_kube_ext::{Lost, answer};
use kaos_seams::Seams;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing::info;

use lead::Election;
use probes::Readiness;

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
    /// The Lease has no place.
    #[error(
        "{api} has no namespace {namespace}, where the Lease of --leader-elect has to be; make it with `kubectl \
         create namespace {namespace}`, or name the operator's own namespace with SYSTEM_NAMESPACE"
    )]
    NoNamespace {
        /// The address of the API server.
        api: String,
        /// The namespace.
        namespace: String,
    },
    /// The user may not stand for election.
    #[error(
        "{api} does not let this user stand for election: {}; grant it to get, create and update leases of \
         coordination.k8s.io in the namespace {namespace}, or run one operator without --leader-elect",
        answer(cause)
    )]
    NoElection {
        /// The address of the API server.
        api: String,
        /// The namespace of the Lease.
        namespace: String,
        /// The API server's answer.
        cause: Box<kube::Error>,
    },
    /// The API server does not answer, or not as one does.
    #[error("{api} does not tell of Lease {lease}: {}", answer(cause))]
    NoLease {
        /// The address of the API server.
        api: String,
        /// Namespace and name of the Lease.
        lease: String,
        /// What went wrong.
        cause: Box<kube::Error>,
    },
    /// Another leads, or may.
    #[error("this operator leads no longer: {0}")]
    Lost(Lost),
}

/// How the operator runs, whatever it does.
#[derive(Debug, Default)]
pub struct Options {
    /// Whether it works only as long as it is elected among those that are started so.
    pub leader_elect: bool,
    /// Where it serves `/healthz` and `/readyz`.
    pub probes: Option<TcpListener>,
}

/// Runs the controllers until `shutdown`, and then until the work that is under way has ended.
///
/// # Errors
/// When a kind is not served or may not be listed, when there is no election to stand for, and when another leads
/// before the end. What else goes wrong later is tried again.
pub async fn run(
    connection: Connection,
    settings: Settings,
    options: Options,
    seams: Seams,
    shutdown: CancellationToken,
) -> Result<(), Error> {
    let Connection { client, api, .. } = connection;
    let Settings {
        controllers,
        system_namespace,
    } = settings;
    info!(%api, "working for the API server");
    let readiness = Readiness::default();
    let _probes = options
        .probes
        .map(|listener| probes::serve(listener, readiness.clone()));
    let work = {
        let (client, api, seams) = (client.clone(), api.clone(), seams.clone());
        let (listing, shutdown) = (readiness.listing.clone(), shutdown.clone());
        async move {
            kaos_controllers::run_telling(client, controllers, seams, listing, shutdown)
                .await
                .map_err(|error| told(api, error))
        }
    };
    if !options.leader_elect {
        return work.await;
    }
    let election = Election {
        client,
        api,
        namespace: system_namespace,
        seams,
    };
    election.lead(work, &readiness, &shutdown).await
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
