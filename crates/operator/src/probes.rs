//! What the kubelet asks: `/healthz`, whether the process lives, and `/readyz`, whether it does its work.
//!
//! The answers read as those of kube-apiserver: `ok`, or with `?verbose` and where something is missing a line for
//! each check.

use std::{
    fmt::Write,
    io::{self, ErrorKind},
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    str::FromStr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use axum::{
    Router,
    extract::{RawQuery, State},
    http::StatusCode,
    routing::get,
};
use kaos_controllers::Listing;
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;
use tracing::{error, info};

/// Where the probes are served, in the form of controller-runtime's flag: `:8081` is that port on every address,
/// `127.0.0.1:8081` on one, and `0` or nothing is nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeAddress {
    /// They are not served.
    Nowhere,
    /// A port on every address.
    Everywhere(u16),
    /// One address.
    At(SocketAddr),
}

impl FromStr for ProbeAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let address = match text.strip_prefix(':') {
            _ if text.is_empty() || text == "0" => Some(Self::Nowhere),
            Some(port) => port.parse().ok().map(Self::Everywhere),
            None => text.parse().ok().map(Self::At),
        };
        address.ok_or_else(|| {
            "write :8081 for a port on every address, 127.0.0.1:8081 for one address, or 0 for none"
                .to_owned()
        })
    }
}

/// Why the probes cannot be served.
#[derive(Debug, thiserror::Error)]
#[error(
    "the health probes cannot be served at {address}: {cause}; choose another address with \
     --health-probe-bind-address, or 0 for none"
)]
pub struct ProbeError {
    address: String,
    cause: io::Error,
}

impl ProbeAddress {
    /// Takes the port, if there is to be one.
    ///
    /// # Errors
    /// When another process has it, or there is no such address here.
    pub async fn bind(self) -> Result<Option<TcpListener>, ProbeError> {
        let (address, bound) = match self {
            Self::Nowhere => return Ok(None),
            Self::At(address) => (address.to_string(), TcpListener::bind(address).await),
            Self::Everywhere(port) => {
                let bound = match TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).await {
                    // A machine without IPv6.
                    Err(error) if error.kind() != ErrorKind::AddrInUse => {
                        TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await
                    }
                    bound => bound,
                };
                (format!(":{port}"), bound)
            }
        };
        bound.map(Some).map_err(|cause| ProbeError { address, cause })
    }
}

/// What `/readyz` is told. Cheap to clone; clones know the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Readiness {
    /// What the controllers have listed.
    pub(crate) listing: Listing,
    stands_by: Arc<AtomicBool>,
}

/// A name, and what is missing.
type Check = (&'static str, Result<(), &'static str>);

impl Readiness {
    /// Whether this operator waits until another leads no longer. That is all that it has to do then.
    pub(crate) fn stands_by(&self, stands_by: bool) {
        self.stands_by.store(stands_by, Ordering::Relaxed);
    }

    fn checks(&self) -> Vec<Check> {
        if self.stands_by.load(Ordering::Relaxed) {
            return vec![("api-server", Ok(())), ("leader-election", Ok(()))];
        }
        let Some(kinds) = self.listing.kinds() else {
            return vec![("api-server", Err("it has not answered yet"))];
        };
        let listed = |is_listed: bool| is_listed.then_some(()).ok_or("not listed yet");
        let kinds = kinds
            .into_iter()
            .map(|(kind, is_listed)| (kind, listed(is_listed)));
        [("api-server", Ok(()))].into_iter().chain(kinds).collect()
    }
}

/// Serves the probes until the handle is dropped.
pub(crate) fn serve(listener: TcpListener, readiness: Readiness) -> AbortOnDropHandle<()> {
    if let Ok(address) = listener.local_addr() {
        info!(%address, "serving health probes");
    }
    let app = Router::new()
        .route("/healthz", get(async || "ok"))
        .route("/readyz", get(ready))
        .with_state(readiness);
    AbortOnDropHandle::new(tokio::spawn(async move {
        if let Err(error) = axum::serve(listener, app).await {
            error!(%error, "the health probes are not served any more");
        }
    }))
}

async fn ready(State(readiness): State<Readiness>, RawQuery(query): RawQuery) -> (StatusCode, String) {
    let query = query.unwrap_or_default();
    let is_verbose = query
        .split('&')
        .any(|pair| pair.split('=').next() == Some("verbose"));
    answer(&readiness.checks(), is_verbose)
}

fn answer(checks: &[Check], is_verbose: bool) -> (StatusCode, String) {
    let is_ready = checks.iter().all(|(_, check)| check.is_ok());
    if is_ready && !is_verbose {
        return (StatusCode::OK, "ok".to_owned());
    }
    let mut text = String::new();
    for (name, check) in checks {
        // Writing to a String does not fail.
        let _ = match check {
            Ok(()) => writeln!(text, "[+]{name} ok"),
            Err(missing) => writeln!(text, "[-]{name} failed: {missing}"),
        };
    }
    let (code, end) = if is_ready {
        (StatusCode::OK, "passed")
    } else {
        (StatusCode::INTERNAL_SERVER_ERROR, "failed")
    };
    let _ = writeln!(text, "readyz check {end}");
    (code, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_controller_runtime_does() {
        for (text, address) in [
            ("0", ProbeAddress::Nowhere),
            ("", ProbeAddress::Nowhere),
            (":8081", ProbeAddress::Everywhere(8081)),
            (":0", ProbeAddress::Everywhere(0)),
            ("127.0.0.1:8081", ProbeAddress::At(([127, 0, 0, 1], 8081).into())),
            ("[::1]:8081", ProbeAddress::At((Ipv6Addr::LOCALHOST, 8081).into())),
        ] {
            assert_eq!(text.parse(), Ok(address), "{text}");
        }
        for text in ["8081", ":", ":65536", ":-1", "127.0.0.1", "http://127.0.0.1:8081"] {
            let error = text.parse::<ProbeAddress>().unwrap_err();
            assert!(error.starts_with("write :8081 "), "{text}: {error}");
        }
    }

    #[tokio::test]
    async fn a_port_that_is_taken_is_named_with_what_to_do() {
        let taken = ProbeAddress::Everywhere(0).bind().await.unwrap().unwrap();
        let port = taken.local_addr().unwrap().port();
        let error = ProbeAddress::Everywhere(port).bind().await.unwrap_err();
        let text = error.to_string();
        assert!(
            text.starts_with(&format!(
                "the health probes cannot be served at :{port}: Address already in use"
            )) && text.ends_with("choose another address with --health-probe-bind-address, or 0 for none"),
            "{text}"
        );
    }

    #[test]
    fn what_is_missing_is_named_and_what_is_not_is_told_to_who_asks() {
        let missing = [("api-server", Ok(())), ("agents", Err("not listed yet"))];
        for is_verbose in [false, true] {
            assert_eq!(
                answer(&missing, is_verbose),
                (
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "[+]api-server ok\n[-]agents failed: not listed yet\nreadyz check failed\n".to_owned()
                )
            );
        }
        let there = &missing[..1];
        assert_eq!(answer(there, false), (StatusCode::OK, "ok".to_owned()));
        assert_eq!(
            answer(there, true),
            (
                StatusCode::OK,
                "[+]api-server ok\nreadyz check passed\n".to_owned()
            )
        );
    }

    #[test]
    fn who_stands_by_has_nothing_to_list() {
        let readiness = Readiness::default();
        let is_ready = || readiness.checks().iter().all(|(_, check)| check.is_ok());
        assert!(!is_ready());
        readiness.stands_by(true);
        assert!(is_ready());
        readiness.stands_by(false);
        assert!(!is_ready());
    }
}
