//! Which names a server answers to: the guard against DNS rebinding.
//!
//! A web page can have its own domain resolve to the address of a server that only its visitor reaches, and
//! then talk to it as if it were its own. Such a request carries the page's name in `Host` and `Origin`, so
//! a server is safe as long as it answers only to names that no stranger can own.
//!
//! - Listening on loopback (one machine, browsers on it): `Host` must be a loopback name, an address, or a
//!   Service name (`….svc`, `….svc.cluster.local`: top-level domains that nobody can register).
//! - Listening on any other address (a pod): the names it is reached by cannot be known here, a gateway's
//!   and an API server's proxy among them, and no browser shares its loopback: any `Host`.
//! - `KAOS_ALLOWED_HOSTS` replaces the latter by a list and adds to the former. Entries are host names
//!   without port; `.example.com` stands for every name below it; `*` for any.
//!
//! `Origin`, which browsers always send with such requests and other programs never do, must be a loopback
//! name or listed, in every case.

use std::net::{IpAddr, SocketAddr};

use axum::{
    extract::{Request, State},
    http::{HeaderMap, StatusCode, Uri, header, uri::Authority},
    middleware::Next,
    response::{IntoResponse, Response},
};

/// The variable with the names that are listed.
pub const HOSTS_VARIABLE: &str = "KAOS_ALLOWED_HOSTS";

/// The host names that requests may be addressed to and pages may come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostPolicy {
    /// Lower-case names, suffixes with a leading dot, or `*`.
    listed: Vec<String>,
}

impl HostPolicy {
    /// The policy of a comma-separated list.
    pub fn listed(list: &str) -> Self {
        let entries = list.split(',').map(|entry| entry.trim().to_ascii_lowercase());
        Self {
            listed: entries.filter(|entry| !entry.is_empty()).collect(),
        }
    }

    /// The policy where browsers may reach a server that listens on `address` as nobody else does, on loopback,
    /// or where names are listed. `None` elsewhere: a server that has always answered to everybody goes on.
    pub fn on_loopback(self, address: SocketAddr) -> Option<Guard> {
        (address.ip().is_loopback() || !self.listed.is_empty()).then(|| self.on(address))
    }

    /// The policy as it holds for a server that listens on `address`.
    pub fn on(self, address: SocketAddr) -> Guard {
        let open = self.listed.is_empty() && !address.ip().is_loopback();
        Guard {
            listed: self.listed,
            open,
        }
    }
}

/// A policy applied to a listener.
#[derive(Clone, Debug)]
pub struct Guard {
    listed: Vec<String>,
    open: bool,
}

impl Guard {
    fn in_list(&self, host: &str) -> bool {
        self.listed
            .iter()
            .any(|entry| entry == "*" || entry == host || (entry.starts_with('.') && host.ends_with(entry)))
    }

    fn host_allowed(&self, host: &str) -> bool {
        self.open
            || is_address(host)
            || is_loopback_name(host)
            || host.ends_with(".svc")
            || host.ends_with(".svc.cluster.local")
            || self.in_list(host)
    }

    fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Refusal> {
        let host = match headers.get(header::HOST) {
            Some(value) => value
                .to_str()
                .ok()
                .and_then(|text| text.parse::<Authority>().ok()),
            None => uri.authority().cloned(),
        };
        let host = host
            .filter(is_whole)
            .map(|authority| bare(authority.host()))
            .ok_or(Refusal::NoHost)?;
        if !self.host_allowed(&host) {
            return Err(Refusal::Host(host));
        }
        let Some(origin) = headers.get(header::ORIGIN) else {
            return Ok(());
        };
        // The opaque origin `null` has no authority and is refused with the rest.
        let origin = origin.to_str().unwrap_or_default();
        let from = origin
            .parse::<Uri>()
            .ok()
            .and_then(|uri| uri.host().map(bare))
            .unwrap_or_default();
        let loopback = from.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback()) || is_loopback_name(&from);
        if loopback || self.in_list(&from) {
            Ok(())
        } else {
            Err(Refusal::Origin(origin.to_owned()))
        }
    }
}

/// Why a request is refused.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("the Host header is missing or malformed")]
    NoHost,
    #[error("requests addressed to host {0:?} are not accepted; to allow them add it to KAOS_ALLOWED_HOSTS")]
    Host(String),
    #[error(
        "requests of web pages from {0:?} are not accepted; to allow them add its host to KAOS_ALLOWED_HOSTS"
    )]
    Origin(String),
}

/// Refuses requests that are not addressed to this server.
pub async fn guard(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    match guard.check(request.uri(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(refusal) => {
            tracing::warn!(%refusal, "request refused");
            let status = match refusal {
                Refusal::NoHost => StatusCode::BAD_REQUEST,
                Refusal::Host(_) | Refusal::Origin(_) => StatusCode::FORBIDDEN,
            };
            (status, format!("{refusal}\n")).into_response()
        }
    }
}

/// Whether this is a host, and perhaps a port: the parser takes more, such as `user@host` and `[::1];80`.
fn is_whole(authority: &Authority) -> bool {
    let rest = authority.as_str().strip_prefix(authority.host());
    rest.is_some_and(|rest| {
        let port = rest.strip_prefix(':');
        rest.is_empty() || port.is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit()))
    })
}

/// Lower case, without the brackets of an IPv6 address and the dot of a fully qualified name.
fn bare(host: &str) -> String {
    host.trim_start_matches('[')
        .trim_end_matches(']')
        .trim_end_matches('.')
        .to_ascii_lowercase()
}

fn is_address(host: &str) -> bool {
    host.parse::<IpAddr>().is_ok()
}

fn is_loopback_name(host: &str) -> bool {
    host == "localhost" || host.ends_with(".localhost")
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests {
    use super::*;

    fn check(policy: &str, listening: &str, host: &str, origin: Option<&str>) -> Result<(), String> {
        let guard = HostPolicy::listed(policy).on(listening.parse().unwrap());
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, host.parse().unwrap());
        if let Some(origin) = origin {
            headers.insert(header::ORIGIN, origin.parse().unwrap());
        }
        guard
            .check(&Uri::from_static("/mcp"), &headers)
            .map_err(|refusal| refusal.to_string())
    }

    const LAPTOP: &str = "127.0.0.1:41000";
    const POD: &str = "0.0.0.0:8000";

    #[test]
    fn on_loopback_only_names_that_no_stranger_can_own() {
        for good in [
            "localhost:41000",
            "127.0.0.1:41000",
            "[::1]:41000",
            "LOCALHOST",
            "mcpserver-calculator.default.svc:8000",
            "mcpserver-calculator.default.svc.cluster.local.:8000",
        ] {
            assert_eq!(check("", LAPTOP, good, None), Ok(()), "{good}");
        }
        for bad in [
            "evil.example:41000",
            "svc",
            "calculator",
            "x.svc.evil.example",
            "localhost.evil.example",
        ] {
            assert!(check("", LAPTOP, bad, None).is_err(), "{bad}");
        }
        assert_eq!(
            check("", LAPTOP, "evil.example:41000", None).unwrap_err(),
            "requests addressed to host \"evil.example\" are not accepted; to allow them add it to \
             KAOS_ALLOWED_HOSTS"
        );
    }

    #[test]
    fn in_a_pod_any_name_until_a_list_is_given() {
        assert_eq!(check("", POD, "gateway.example.com", None), Ok(()));
        assert_eq!(
            check("tools.example.com", POD, "tools.example.com:443", None),
            Ok(())
        );
        assert!(check("tools.example.com", POD, "gateway.example.com", None).is_err());
        assert_eq!(
            check("tools.example.com", POD, "mcpserver-a.default.svc:8000", None),
            Ok(())
        );
        assert_eq!(check("tools.example.com", POD, "10.0.0.7:8000", None), Ok(()));
    }

    #[test]
    fn a_server_for_everybody_goes_on_without_a_list() {
        let guarded = |policy: &str, listening: &str| {
            let guard = HostPolicy::listed(policy).on_loopback(listening.parse().unwrap());
            guard.is_some()
        };
        assert!(guarded("", LAPTOP) && guarded("example.com", POD));
        assert!(!guarded("", POD));
    }

    proptest::proptest! {
        #[test]
        fn no_header_makes_it_panic(host in "([a-z:@/.\\[\\]]|.){0,30}", origin in "(http://)?([a-z:@/.\\[\\]]|.){0,30}") {
            let guard = HostPolicy::listed(".example.com").on(LAPTOP.parse().unwrap());
            let value = |text: &str| header::HeaderValue::from_str(text).ok();
            let mut headers = HeaderMap::new();
            for (name, value) in [(header::HOST, value(&host)), (header::ORIGIN, value(&origin))] {
                headers.extend(value.map(|value| (name, value)));
            }
            let _ = guard.check(&Uri::from_static("/"), &headers);
        }
    }

    #[test]
    fn a_list_takes_suffixes_and_everything() {
        assert_eq!(
            check(" .Example.com, other", LAPTOP, "a.b.example.com", None),
            Ok(())
        );
        assert!(check(".example.com", LAPTOP, "notexample.com", None).is_err());
        assert_eq!(check("*", LAPTOP, "anything.at.all", None), Ok(()));
    }

    #[test]
    fn pages_may_come_from_this_machine_or_the_list_only() {
        for listening in [LAPTOP, POD] {
            assert_eq!(
                check("", listening, "localhost", Some("http://localhost:5173")),
                Ok(())
            );
            assert_eq!(
                check("", listening, "localhost", Some("http://[::1]:5173")),
                Ok(())
            );
            assert!(check("", listening, "127.0.0.1", Some("https://evil.example")).is_err());
            assert!(check("", listening, "127.0.0.1", Some("http://203.0.113.5")).is_err());
            assert!(check("", listening, "127.0.0.1", Some("null")).is_err());
            assert_eq!(
                check(
                    ".example.com",
                    listening,
                    "127.0.0.1",
                    Some("https://ui.example.com")
                ),
                Ok(())
            );
        }
    }
}
