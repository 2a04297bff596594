//! Headers on their way through the proxy.

use std::net::{IpAddr, SocketAddr};

use http::{HeaderMap, HeaderName, HeaderValue, Uri, header};

/// Headers that speak of one connection only (RFC 9110, 7.6.1).
const HOP_BY_HOP: [&str; 9] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Headers by which a pod would open this server's address to web pages; they are not its to give.
const CORS: [&str; 6] = [
    "access-control-allow-credentials",
    "access-control-allow-headers",
    "access-control-allow-methods",
    "access-control-allow-origin",
    "access-control-expose-headers",
    "access-control-max-age",
];

/// A request's headers as the pod gets them.
pub(super) fn of_request(headers: &mut HeaderMap, uri: &Uri, address: SocketAddr, peer: Option<IpAddr>) {
    remove_hop_by_hop(headers);
    // The token is for this server.
    headers.remove(header::AUTHORIZATION);
    let host = headers.remove(header::HOST);
    set(headers, header::HOST, Some(address.to_string()));
    if let Some(host) = host {
        headers.insert(HeaderName::from_static("x-forwarded-host"), host);
    }
    set(
        headers,
        HeaderName::from_static("x-forwarded-proto"),
        Some("https".to_owned()),
    );
    set(
        headers,
        HeaderName::from_static("x-forwarded-uri"),
        Some(uri.path().to_owned()),
    );
    let name = HeaderName::from_static("x-forwarded-for");
    let before = headers.get(&name).and_then(|value| value.to_str().ok());
    let chain = match (before, peer) {
        (Some(before), Some(peer)) => Some(format!("{before}, {peer}")),
        (None, Some(peer)) => Some(peer.to_string()),
        (_, None) => None,
    };
    set(headers, name, chain);
}

/// A response's headers as the caller gets them. `prefix` is the path of the proxy: a redirect to the pod's own
/// paths leads through it again.
pub(super) fn of_response(headers: &mut HeaderMap, prefix: &str, address: SocketAddr) {
    remove_hop_by_hop(headers);
    for name in CORS {
        headers.remove(name);
    }
    let location = headers
        .get(header::LOCATION)
        .and_then(|value| value.to_str().ok());
    let own = location.and_then(|location| {
        let path = location
            .strip_prefix(&format!("http://{address}"))
            .unwrap_or(location);
        // `//host` is another host.
        (path.starts_with('/') && !path.starts_with("//")).then(|| format!("{prefix}{path}"))
    });
    set(headers, header::LOCATION, own);
}

fn set(headers: &mut HeaderMap, name: HeaderName, value: Option<String>) {
    if let Some(value) = value.and_then(|value| HeaderValue::from_str(&value).ok()) {
        headers.insert(name, value);
    }
}

fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<String> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|name| name.trim().to_ascii_lowercase())
        .collect();
    for name in named.iter().map(String::as_str).chain(HOP_BY_HOP) {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pairs = pairs
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        pairs.collect()
    }

    fn address() -> SocketAddr {
        "127.0.0.1:8000".parse().unwrap()
    }

    #[test]
    fn the_pod_sees_who_asked_and_no_secret() {
        let mut headers = map(&[
            ("host", "localhost:6443"),
            ("authorization", "Bearer secret"),
            ("connection", "close, X-Mine"),
            ("x-mine", "1"),
            ("te", "trailers"),
            ("accept", "text/event-stream"),
        ]);
        let uri = "/api/v1/namespaces/a/services/b/proxy/x?y=1".parse().unwrap();
        of_request(&mut headers, &uri, address(), Some([127, 0, 0, 1].into()));
        let expected = map(&[
            ("host", "127.0.0.1:8000"),
            ("x-forwarded-host", "localhost:6443"),
            ("x-forwarded-proto", "https"),
            ("x-forwarded-uri", "/api/v1/namespaces/a/services/b/proxy/x"),
            ("x-forwarded-for", "127.0.0.1"),
            ("accept", "text/event-stream"),
        ]);
        assert_eq!(headers, expected);
    }

    #[test]
    fn redirects_stay_in_the_proxy_and_pages_get_no_rights() {
        let redirect = |to: &'static str| {
            let mut headers = map(&[
                ("location", to),
                ("access-control-allow-origin", "*"),
                ("keep-alive", "1"),
            ]);
            of_response(&mut headers, "/p", address());
            assert_eq!(headers.len(), 1, "{headers:?}");
            headers["location"].to_str().unwrap().to_owned()
        };
        assert_eq!(redirect("/x"), "/p/x");
        assert_eq!(redirect("http://127.0.0.1:8000/x?y"), "/p/x?y");
        assert_eq!(redirect("http://other/x"), "http://other/x");
        assert_eq!(redirect("//other/x"), "//other/x");
        assert_eq!(redirect("x"), "x");
    }
}
