//! Who is let in: checks of a request's head, before anything else looks at it.

use http::{HeaderMap, Method, StatusCode, Uri, header, uri::Authority};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::error::ApiError;

/// Paths that need no token, as on a real server: liveness probes, and clients that look at the version first.
const ANONYMOUS: [&str; 4] = ["/healthz", "/livez", "/readyz", "/version"];

/// Checks the head of each request.
pub(super) struct Guard {
    /// The token's hash: of the same length for every token, so that comparing it tells nothing, not even that.
    token: [u8; 32],
}

impl Guard {
    pub(super) fn new(token: &str) -> Self {
        Self {
            token: Sha256::digest(token).into(),
        }
    }

    /// # Errors
    /// The answer to a request that is not let in.
    pub(super) fn check(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<(), ApiError> {
        let host = host(uri, headers)?;
        check_origin(&host, headers)?;
        if is_anonymous(method, uri.path()) || self.knows(headers) {
            return Ok(());
        }
        Err(ApiError::new(
            StatusCode::UNAUTHORIZED,
            "Unauthorized",
            "Unauthorized",
        ))
    }

    fn knows(&self, headers: &HeaderMap) -> bool {
        let mut values = headers.get_all(header::AUTHORIZATION).iter();
        let (Some(value), None) = (values.next(), values.next()) else {
            return false;
        };
        let Some((scheme, token)) = value.to_str().ok().and_then(|value| value.split_once(' ')) else {
            return false;
        };
        let given: [u8; 32] = Sha256::digest(token.trim()).into();
        scheme.eq_ignore_ascii_case("bearer") && bool::from(given.ct_eq(&self.token))
    }
}

fn is_anonymous(method: &Method, path: &str) -> bool {
    let path = path.strip_suffix('/').unwrap_or(path);
    matches!(*method, Method::GET | Method::HEAD) && ANONYMOUS.contains(&path)
}

/// The host that the caller meant. A name that merely resolves to loopback is refused: it is how a web page
/// gets a browser to call a server on its user's machine (DNS rebinding).
fn host(uri: &Uri, headers: &HeaderMap) -> Result<Authority, ApiError> {
    let refuse = |found: &str| {
        forbidden(format!(
            "the Host header names \"{found}\": call the server by 127.0.0.1, [::1] or localhost"
        ))
    };
    let mut hosts = headers.get_all(header::HOST).iter();
    let (Some(value), None) = (hosts.next(), hosts.next()) else {
        return Err(refuse(""));
    };
    let text = value.to_str().unwrap_or_default();
    let host: Authority = text.parse().map_err(|_| refuse(text))?;
    for authority in [Some(&host), uri.authority()].into_iter().flatten() {
        if !is_loopback(authority) {
            return Err(refuse(authority.as_str()));
        }
    }
    Ok(host)
}

fn is_loopback(authority: &Authority) -> bool {
    let host = authority.host();
    // `user@localhost` is a host to the parser and nothing that a client sends.
    if authority.as_str().contains('@') {
        return false;
    }
    let address = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost")
        || address
            .parse::<std::net::IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

/// Browsers say where a request comes from; only the server's own pages may call it.
fn check_origin(host: &Authority, headers: &HeaderMap) -> Result<(), ApiError> {
    for origin in headers.get_all(header::ORIGIN) {
        let origin = origin.to_str().unwrap_or_default();
        let same = origin
            .strip_prefix("https://")
            .is_some_and(|origin| origin.eq_ignore_ascii_case(host.as_str()));
        if !same {
            return Err(forbidden(format!(
                "requests from pages of \"{origin}\" are not served"
            )));
        }
    }
    Ok(())
}

fn forbidden(message: String) -> ApiError {
    ApiError::new(StatusCode::FORBIDDEN, "Forbidden", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, headers: &[(&'static str, &str)]) -> u16 {
        let map = headers
            .iter()
            .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
            .collect::<Vec<_>>();
        let mut all = HeaderMap::new();
        for (name, value) in map {
            HeaderMap::<http::HeaderValue>::append::<http::HeaderName>(&mut all, name, value);
        }
        match Guard::new("secret").check(&Method::GET, &path.parse().unwrap(), &all) {
            Ok(()) => 200,
            Err(refusal) => refusal.code.as_u16(),
        }
    }

    const TOKEN: (&str, &str) = ("authorization", "Bearer secret");

    #[test]
    fn the_token_is_asked_for_but_at_the_probes() {
        let host = ("host", "127.0.0.1:6443");
        assert_eq!(check("/api/v1/pods", &[host, TOKEN]), 200);
        assert_eq!(
            check("/api/v1/pods", &[host, ("authorization", "bearer secret")]),
            200
        );
        assert_eq!(check("/api/v1/pods", &[host]), 401);
        assert_eq!(
            check("/api/v1/pods", &[host, ("authorization", "Bearer secre")]),
            401
        );
        assert_eq!(
            check("/api/v1/pods", &[host, ("authorization", "Basic secret")]),
            401
        );
        assert_eq!(
            check("/api/v1/pods", &[host, TOKEN, ("authorization", "Bearer x")]),
            401
        );
        assert_eq!(check("/readyz", &[host]), 200);
        assert_eq!(check("/version", &[host]), 200);
        assert_eq!(check("/healthz/../api", &[host]), 401);
    }

    #[test]
    fn only_loopback_hosts_are_served() {
        for host in [
            "localhost",
            "LOCALHOST:1",
            "127.0.0.1:6443",
            "127.8.9.1",
            "[::1]:6443",
        ] {
            assert_eq!(check("/api", &[("host", host), TOKEN]), 200, "{host}");
        }
        for host in [
            "evil.example",
            "127.0.0.1.evil.example:80",
            "10.0.0.1",
            "x@localhost",
            "localhost.",
            "[::2]",
            "",
        ] {
            assert_eq!(check("/api", &[("host", host), TOKEN]), 403, "{host}");
            assert_eq!(check("/healthz", &[("host", host)]), 403, "{host}");
        }
        assert_eq!(check("/api", &[TOKEN]), 403);
        assert_eq!(
            check("/api", &[("host", "localhost"), ("host", "evil.example"), TOKEN]),
            403
        );
    }

    #[test]
    fn foreign_web_pages_are_refused() {
        let host = ("host", "localhost:6443");
        assert_eq!(
            check("/api", &[host, TOKEN, ("origin", "https://localhost:6443")]),
            200
        );
        for origin in [
            "https://localhost",
            "http://localhost:6443",
            "https://evil.example",
            "null",
        ] {
            assert_eq!(check("/api", &[host, TOKEN, ("origin", origin)]), 403, "{origin}");
        }
    }
}
