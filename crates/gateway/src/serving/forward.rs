//! One request: from the route that fits to the backend and back.

use std::{net::SocketAddr, sync::Arc};

use http::{HeaderMap, Method, Request, Response, StatusCode, Uri, Version, header, uri::PathAndQuery};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use kaos_seams::Random;
use tokio::time::{Instant, timeout_at};

use super::{Body, Proxy, answer, body::Timed, headers};
use crate::routes::{
    matches::Asked,
    rule::{Backend, Target},
    table::{Entry, Table},
};

/// Serves a request that was let in under the name `host`.
pub(super) async fn forward(
    proxy: &Proxy,
    table: Arc<Table>,
    host: &str,
    peer: SocketAddr,
    request: Request<Incoming>,
) -> Response<Body> {
    let arrived = Instant::now();
    let path = request.uri().path();
    if *request.method() == Method::CONNECT {
        let message = "CONNECT is not served: call a route by its path";
        return answer::error(StatusCode::METHOD_NOT_ALLOWED, message);
    }
    if has_dot_segment(path) {
        // A backend that resolves them would serve what lies outside of the route.
        let message = format!("the path {path} has `.` or `..` in it: write the path that is meant");
        return answer::error(StatusCode::BAD_REQUEST, &message);
    }
    let asked = Asked {
        host,
        method: request.method(),
        path,
        query: request.uri().query().unwrap_or_default(),
        headers: request.headers(),
    };
    let Some(entry) = table.find(&asked) else {
        return answer::no_route(path, &table.paths());
    };
    let target = match choose(&entry.rule.backends, proxy.random.as_ref()) {
        Ok(target) => target,
        Err(reason) => {
            let message = format!("HTTPRoute {} has no backend for this: {reason}", entry.route);
            return answer::error(StatusCode::INTERNAL_SERVER_ERROR, &message);
        }
    };
    let rewritten = entry
        .rule
        .path
        .apply(&entry.matched.path, path, request.uri().query());
    let Some(uri) = rewritten.and_then(|path| locate(proxy, target, path)) else {
        let message = format!("HTTPRoute {} makes no valid path of {path}", entry.route);
        return answer::error(StatusCode::INTERNAL_SERVER_ERROR, &message);
    };
    let deadline = entry.rule.timeout.map(|(limit, _)| arrived + limit);
    let sent = proxy.client.request(outgoing(request, uri, entry, peer));
    let answered = match deadline {
        Some(deadline) => timeout_at(deadline, sent).await,
        None => Ok(sent.await),
    };
    match answered {
        Ok(Ok(response)) => incoming(response, deadline),
        Ok(Err(error)) => failed(entry, target, &error),
        Err(_elapsed) => {
            let (limit, field) = entry.rule.timeout.unwrap_or_default();
            let message = format!(
                "{}:{} did not answer within {limit:?}, the {field} of HTTPRoute {}",
                target.host, target.port, entry.route
            );
            tracing::debug!(route = %entry.route, backend = target.host, "{message}");
            answer::error(StatusCode::GATEWAY_TIMEOUT, &message)
        }
    }
}

/// Whether a path has `.` or `..` as an element, percent-encoded or not.
fn has_dot_segment(path: &str) -> bool {
    path.split('/').any(|element| {
        let dots = element.replace("%2e", ".").replace("%2E", ".");
        matches!(dots.as_str(), "." | "..")
    })
}

/// One of the backends, each as often as its weight says.
fn choose<'a>(backends: &'a [Backend], random: &dyn Random) -> Result<&'a Target, String> {
    let total: u64 = backends.iter().map(|backend| backend.weight).sum();
    if total == 0 {
        return Err("it names none, or gives each the weight 0".to_owned());
    }
    let mut place = if backends.len() == 1 {
        0
    } else {
        random.next_u64() % total
    };
    for backend in backends {
        match place.checked_sub(backend.weight) {
            Some(beyond) => place = beyond,
            None => return backend.target.as_ref().map_err(Clone::clone),
        }
    }
    Err("it names none".to_owned())
}

fn locate(proxy: &Proxy, target: &Target, path: PathAndQuery) -> Option<Uri> {
    let authority = proxy.dialer.address(&target.host, target.port).map_or_else(
        || format!("{}:{}", target.host, target.port),
        |address| address.to_string(),
    );
    Uri::builder()
        .scheme("http")
        .authority(authority)
        .path_and_query(path)
        .build()
        .ok()
}

/// The request as the backend gets it.
fn outgoing(request: Request<Incoming>, uri: Uri, entry: &Entry, peer: SocketAddr) -> Request<Body> {
    let (mut head, body) = request.into_parts();
    head.uri = uri;
    head.version = Version::HTTP_11;
    head.extensions.clear();
    headers::drop_hop_by_hop(&mut head.headers);
    // Answered here already: the body follows anyway.
    head.headers.remove(header::EXPECT);
    // Judged here already, and backends judge by what they know: the pages that may call are told to the gateway.
    head.headers.remove(header::ORIGIN);
    let host = head.headers.get(header::HOST).cloned();
    headers::set_forwarded(&mut head.headers, peer, host.as_ref());
    entry.rule.headers.apply(&mut head.headers);
    if let Some(host) = &entry.rule.host {
        head.headers.insert(header::HOST, host.clone());
    }
    Request::from_parts(head, body.map_err(Into::into).boxed_unsync())
}

/// The answer as the caller gets it, piece by piece.
fn incoming(response: Response<Incoming>, deadline: Option<Instant>) -> Response<Body> {
    let (mut head, body) = response.into_parts();
    headers::drop_hop_by_hop(&mut head.headers);
    head.extensions.clear();
    head.version = Version::HTTP_11;
    Response::from_parts(head, Timed::new(body, deadline).boxed_unsync())
}

fn failed(entry: &Entry, target: &Target, error: &hyper_util::client::legacy::Error) -> Response<Body> {
    let backend = format!("{}:{}", target.host, target.port);
    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    tracing::debug!(route = %entry.route, backend, error = %cause, "the backend failed");
    if error.is_connect() {
        let message = format!("{backend} cannot be reached, it has no ready pod: {cause}");
        answer::error(StatusCode::SERVICE_UNAVAILABLE, &message)
    } else {
        let message = format!("{backend} broke off before it answered: {cause}");
        answer::error(StatusCode::BAD_GATEWAY, &message)
    }
}

/// The answer to a preflight of an allowed page. It comes from the gateway: backends do not know who may call.
pub(super) fn preflight(asked: &HeaderMap) -> Response<Body> {
    let mut response = Response::new(
        http_body_util::Empty::new()
            .map_err(|never| match never {})
            .boxed_unsync(),
    );
    *response.status_mut() = StatusCode::NO_CONTENT;
    *response.headers_mut() = headers::preflight(asked);
    response
}

#[cfg(test)]
mod tests {
    use kaos_seams::SeededRandom;

    use super::*;

    fn backend(name: &str, weight: u64) -> Backend {
        Backend {
            weight,
            target: match name {
                "" => Err("gone".to_owned()),
                name => Ok(Target {
                    host: name.to_owned(),
                    port: 80,
                }),
            },
        }
    }

    #[test]
    fn backends_are_chosen_by_weight_and_a_broken_one_keeps_its_share() {
        let random = SeededRandom::new(1);
        let backends = [backend("a", 1), backend("b", 3), backend("c", 0), backend("", 4)];
        let mut counts = std::collections::BTreeMap::new();
        for _ in 0..8_000 {
            let name = choose(&backends, &random).map_or_else(|reason| reason, |target| target.host.clone());
            *counts.entry(name).or_insert(0) += 1;
        }
        let near = |name: &str, share: i32| (share - 200..share + 200).contains(&counts[name]);
        assert!(
            near("a", 1_000) && near("b", 3_000) && near("gone", 4_000),
            "{counts:?}"
        );
        assert!(!counts.contains_key("c"));
        assert!(choose(&[], &random).is_err() && choose(&[backend("a", 0)], &random).is_err());
    }

    #[test]
    fn dots_are_found_in_every_spelling() {
        for path in ["/..", "/a/../b", "/a/%2e%2E/b", "/./a", "/a/%2e"] {
            assert!(has_dot_segment(path), "{path}");
        }
        for path in ["/a..b", "/...", "/.well-known/agent", "/a/b.c"] {
            assert!(!has_dot_segment(path), "{path}");
        }
    }
}
