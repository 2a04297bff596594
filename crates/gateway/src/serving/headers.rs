//! Headers that do not simply pass through.

use std::net::SocketAddr;

use http::{HeaderMap, HeaderName, HeaderValue, Method, header};

/// Headers of one connection and not of the message (RFC 9110, 7.6.1), and their older kin.
const HOP_BY_HOP: [HeaderName; 9] = [
    header::CONNECTION,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];

pub(crate) fn is_hop_by_hop(name: &HeaderName) -> bool {
    HOP_BY_HOP.contains(name)
}

/// Removes the headers of the connection, those that `Connection` names among them.
pub(super) fn drop_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in HOP_BY_HOP.iter().chain(&named) {
        headers.remove(name);
    }
}

/// Says who called, by which name and how. What the caller says of it himself is not believed.
pub(super) fn set_forwarded(headers: &mut HeaderMap, peer: SocketAddr, host: Option<&HeaderValue>) {
    headers.remove(header::FORWARDED);
    let set = |headers: &mut HeaderMap, name: &'static str, value: Option<HeaderValue>| match value {
        Some(value) => {
            headers.insert(HeaderName::from_static(name), value);
        }
        None => {
            headers.remove(name);
        }
    };
    set(
        headers,
        "x-forwarded-for",
        HeaderValue::from_str(&peer.ip().to_string()).ok(),
    );
    set(headers, "x-forwarded-host", host.cloned());
    set(
        headers,
        "x-forwarded-proto",
        Some(HeaderValue::from_static("http")),
    );
}

/// How long a browser may remember that it may call, in seconds.
const PREFLIGHT_AGE: HeaderValue = HeaderValue::from_static("600");

/// Whether a request asks, before another one, if that may be sent.
pub(super) fn is_preflight(method: &Method, headers: &HeaderMap) -> bool {
    *method == Method::OPTIONS
        && headers.contains_key(header::ORIGIN)
        && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
}

/// The answer to a preflight of an allowed page: whatever it asks for.
pub(super) fn preflight(asked: &HeaderMap) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (question, answer) in [
        (
            header::ACCESS_CONTROL_REQUEST_METHOD,
            header::ACCESS_CONTROL_ALLOW_METHODS,
        ),
        (
            header::ACCESS_CONTROL_REQUEST_HEADERS,
            header::ACCESS_CONTROL_ALLOW_HEADERS,
        ),
        // Of pages that are not of this machine.
        (
            HeaderName::from_static("access-control-request-private-network"),
            HeaderName::from_static("access-control-allow-private-network"),
        ),
    ] {
        if let Some(value) = asked.get(&question) {
            headers.insert(answer, value.clone());
        }
    }
    headers.insert(header::ACCESS_CONTROL_MAX_AGE, PREFLIGHT_AGE);
    headers
}

/// Lets an allowed page read an answer, and no other: what a backend says of it does not count, since it does
/// not know who may call here.
pub(super) fn set_cross_origin(headers: &mut HeaderMap, origin: Option<&HeaderValue>) {
    for name in [
        header::ACCESS_CONTROL_ALLOW_ORIGIN,
        header::ACCESS_CONTROL_ALLOW_CREDENTIALS,
        header::ACCESS_CONTROL_EXPOSE_HEADERS,
    ] {
        headers.remove(name);
    }
    if let Some(origin) = origin {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
        headers.insert(
            header::ACCESS_CONTROL_EXPOSE_HEADERS,
            HeaderValue::from_static("*"),
        );
        headers.append(header::VARY, HeaderValue::from_static("Origin"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_the_connection_do_not_pass() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "close, X-Mine"),
            ("x-mine", "1"),
            ("te", "trailers"),
            ("upgrade", "websocket"),
            ("keep-alive", "5"),
            ("accept", "*/*"),
        ] {
            headers.append(name, HeaderValue::from_static(value));
        }
        drop_hop_by_hop(&mut headers);
        assert_eq!(headers.keys().collect::<Vec<_>>(), ["accept"]);
    }

    #[test]
    fn the_caller_is_who_calls_and_not_who_it_says() {
        let mut headers = HeaderMap::new();
        headers.insert("x-forwarded-for", HeaderValue::from_static("8.8.8.8"));
        headers.insert("forwarded", HeaderValue::from_static("for=8.8.8.8"));
        let host = HeaderValue::from_static("localhost:8888");
        set_forwarded(&mut headers, ([127, 0, 0, 1], 5).into(), Some(&host));
        let shown = |name: &str| headers.get(name).map(|value| value.to_str().unwrap());
        assert_eq!(shown("x-forwarded-for"), Some("127.0.0.1"));
        assert_eq!(shown("x-forwarded-host"), Some("localhost:8888"));
        assert_eq!(shown("x-forwarded-proto"), Some("http"));
        assert_eq!(shown("forwarded"), None);
    }
}
