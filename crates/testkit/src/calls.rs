//! Every request a client sends, seen on its way: for tests that nothing is written without need, and to
//! keep a controller under test to its own namespace.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use http::uri::PathAndQuery;
use http::{Method, Request, Uri};
use tower::{Layer, Service};

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// The HTTP method.
    pub method: Method,
    /// The path with its query, as the server got it.
    pub path: String,
}

impl Sent {
    /// Whether it asks the server to change something.
    pub fn writes(&self) -> bool {
        self.method != Method::GET && self.method != Method::HEAD
    }
}

/// The requests of one client so far. Cheap to clone; all clones see the same.
#[derive(Clone, Debug, Default)]
pub struct Calls(Arc<Mutex<Vec<Sent>>>);

impl Calls {
    /// All requests, oldest first.
    pub fn all(&self) -> Vec<Sent> {
        self.lock().clone()
    }

    /// The requests that ask for a change, oldest first.
    pub fn writes(&self) -> Vec<Sent> {
        self.lock().iter().filter(|call| call.writes()).cloned().collect()
    }

    /// Forgets what was sent so far.
    pub fn clear(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Sent>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Puts [`Calls`] and the limit to a namespace into a client.
#[derive(Clone, Debug)]
pub(crate) struct Watched {
    pub(crate) calls: Calls,
    /// Lists and watches of all namespaces become those of this one.
    pub(crate) only: Option<Arc<str>>,
}

impl<S> Layer<S> for Watched {
    type Service = WatchedService<S>;
    fn layer(&self, inner: S) -> WatchedService<S> {
        WatchedService {
            inner,
            watched: self.clone(),
        }
    }
}

/// See [`Watched`].
#[derive(Clone, Debug)]
pub(crate) struct WatchedService<S> {
    inner: S,
    watched: Watched,
}

impl<S, B> Service<Request<B>> for WatchedService<S>
where
    S: Service<Request<B>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<B>) -> S::Future {
        if let Some(namespace) = &self.watched.only
            && let Some(uri) = limited(request.method(), request.uri(), namespace)
        {
            *request.uri_mut() = uri;
        }
        let path = request
            .uri()
            .path_and_query()
            .map_or_else(String::new, ToString::to_string);
        self.watched.calls.lock().push(Sent {
            method: request.method().clone(),
            path,
        });
        self.inner.call(request)
    }
}

/// Kinds that live in no namespace and that controllers may list.
const CLUSTER_SCOPED: [&str; 4] = [
    "namespaces",
    "nodes",
    "customresourcedefinitions",
    "gatewayclasses",
];

/// The address of the same list in one namespace, where `uri` lists a kind in all of them.
fn limited(method: &Method, uri: &Uri, namespace: &str) -> Option<Uri> {
    if method != Method::GET {
        return None;
    }
    let segments: Vec<&str> = uri.path().trim_start_matches('/').split('/').collect();
    let (prefix, plural) = match segments[..] {
        ["api", version, plural] => (format!("/api/{version}"), plural),
        ["apis", group, version, plural] => (format!("/apis/{group}/{version}"), plural),
        _ => return None,
    };
    if CLUSTER_SCOPED.contains(&plural) {
        return None;
    }
    let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    let path = format!("{prefix}/namespaces/{namespace}/{plural}{query}");
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(PathAndQuery::try_from(path).ok()?);
    Uri::from_parts(parts).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(method: Method, uri: &str) -> Option<String> {
        limited(&method, &Uri::try_from(uri).expect("a uri"), "mine").map(|uri| uri.to_string())
    }

    #[test]
    fn a_list_of_all_namespaces_becomes_one_of_the_own() {
        assert_eq!(
            limit(Method::GET, "https://h:1/apis/apps/v1/deployments?watch=true").as_deref(),
            Some("https://h:1/apis/apps/v1/namespaces/mine/deployments?watch=true")
        );
        assert_eq!(
            limit(Method::GET, "/api/v1/pods").as_deref(),
            Some("/api/v1/namespaces/mine/pods")
        );
    }

    #[test]
    fn other_requests_stay_as_they_are() {
        assert_eq!(limit(Method::GET, "/api/v1/namespaces/other/pods"), None);
        assert_eq!(limit(Method::GET, "/api/v1/namespaces"), None);
        assert_eq!(limit(Method::GET, "/apis/apps/v1"), None);
        assert_eq!(limit(Method::POST, "/api/v1/pods"), None);
    }
}
