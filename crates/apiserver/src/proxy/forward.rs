//! `pods/NAME/proxy` and `services/NAME/proxy`: one request, passed on over a connection of its own.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header, request::Parts};
use http_body_util::BodyExt;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::{net::TcpStream, time::timeout};

use super::{headers, no_backend, refused};
use crate::{
    BoxError,
    backend::{Backend, Refusal},
    error::ApiError,
    front::Peer,
    server::{Body, full_body},
};

/// How long a pod may take to accept a connection. Nothing else has a deadline: a model may think for minutes.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// What a request is passed on to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Destination {
    /// A pod, by its own address.
    Pod,
    /// A ready pod behind a Service.
    Service,
}

/// Passes a request on and the answer back. `name` is that of the path: `NAME`, `NAME:PORT` or
/// `http:NAME:PORT`.
pub(crate) async fn forward<B>(
    backend: Option<Arc<dyn Backend>>,
    destination: Destination,
    namespace: &str,
    name: &str,
    parts: Parts,
    body: B,
) -> Result<Response<Body>, ApiError>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let (name, port) = split_name(name)?;
    if parts.headers.contains_key(header::UPGRADE) {
        return Err(ApiError::bad_request(
            "connections are not upgraded by the proxy: WebSockets are not served",
        ));
    }
    let (prefix, path) = split_path(parts.uri.path()).ok_or_else(ApiError::no_such_resource)?;
    let query = parts
        .uri
        .query()
        .map(|query| format!("?{query}"))
        .unwrap_or_default();
    if path.is_empty() && matches!(parts.method, Method::GET | Method::HEAD) {
        // Relative links of the page must stay below the proxy.
        return redirect(&format!("{prefix}/{query}"));
    }
    let backend = backend.ok_or_else(no_backend)?;
    let address = match destination {
        Destination::Pod => backend
            .pod_address(namespace, name, port)
            .await
            .map_err(refused)?,
        Destination::Service => backend
            .service_address(namespace, name, port)
            .await
            .map_err(|refusal| match refusal {
                Refusal::Unavailable(why) => {
                    tracing::debug!(namespace, service = name, why, "a Service cannot be reached");
                    ApiError::unavailable(format!("no endpoints available for service \"{name}\""))
                }
                other => refused(other),
            })?,
    };
    let prefix = prefix.to_owned();
    let target = format!("{}{query}", if path.is_empty() { "/" } else { path });
    let response = send(address, &target, parts, body).await.map_err(|error| {
        ApiError::unavailable(format!("error trying to reach {}: {error}", destination.word()))
    })?;
    let (mut head, body) = response.into_parts();
    headers::of_response(&mut head.headers, &prefix, address);
    Ok(Response::from_parts(
        head,
        body.map_err(BoxError::from).boxed_unsync(),
    ))
}

impl Destination {
    fn word(self) -> &'static str {
        match self {
            Self::Pod => "pod",
            Self::Service => "service",
        }
    }
}

/// Name and port of `NAME`, `NAME:PORT` or `SCHEME:NAME:PORT`.
fn split_name(text: &str) -> Result<(&str, Option<&str>), ApiError> {
    let parts: Vec<&str> = text.split(':').collect();
    let (scheme, name, port) = match parts.as_slice() {
        [name] => ("", *name, ""),
        [name, port] => ("", *name, *port),
        [scheme, name, port] => (*scheme, *name, *port),
        _ => ("", "", ""),
    };
    if name.is_empty() {
        return Err(ApiError::bad_request(format!(
            "invalid proxy request \"{text}\": use NAME or NAME:PORT"
        )));
    }
    match scheme {
        "" | "http" => Ok((name, Some(port).filter(|port| !port.is_empty()))),
        _ => Err(ApiError::bad_request(format!(
            "invalid proxy request \"{text}\": only http is passed on"
        ))),
    }
}

/// The path of the proxy itself, and what follows it. Both stay encoded as they came.
fn split_path(path: &str) -> Option<(&str, &str)> {
    // `/api/v1/namespaces/NAMESPACE/RESOURCE/NAME/proxy` has eight slashes before what follows.
    let after = path.match_indices('/').nth(7).map_or(path.len(), |(at, _)| at);
    let (prefix, rest) = path.split_at(after);
    prefix.ends_with("/proxy").then_some((prefix, rest))
}

fn redirect(to: &str) -> Result<Response<Body>, ApiError> {
    let mut response = Response::new(full_body(Bytes::new()));
    *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
    response
        .headers_mut()
        .insert(header::LOCATION, to.parse().map_err(ApiError::internal)?);
    Ok(response)
}

async fn send<B>(
    address: SocketAddr,
    target: &str,
    mut parts: Parts,
    body: B,
) -> Result<Response<hyper::body::Incoming>, BoxError>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let stream = match timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await {
        Ok(stream) => stream.map_err(|error| format!("dial tcp {address}: connect: {error}"))?,
        Err(_elapsed) => return Err(format!("dial tcp {address}: connect: timed out").into()),
    };
    let _ = stream.set_nodelay(true);
    let peer = parts.extensions.get::<Peer>().map(|Peer(peer)| peer.ip());
    headers::of_request(&mut parts.headers, &parts.uri, address, peer);
    let mut request = Request::new(Box::pin(body));
    *request.method_mut() = parts.method;
    *request.uri_mut() = target.parse()?;
    *request.headers_mut() = parts.headers;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // Ends when the caller drops the answer, or with the last byte of it.
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%address, %error, "a proxied connection broke");
        }
    });
    Ok(sender.send_request(request).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_may_carry_a_port_and_a_scheme() {
        assert_eq!(split_name("a"), Ok(("a", None)));
        assert_eq!(split_name("a:"), Ok(("a", None)));
        assert_eq!(split_name("a:http"), Ok(("a", Some("http"))));
        assert_eq!(split_name("http:a:80"), Ok(("a", Some("80"))));
        assert!(split_name("https:a:443").is_err());
        assert!(split_name("x:y:z:w").is_err());
        assert!(split_name(":80").is_err());
    }

    #[test]
    fn what_follows_the_proxy_is_passed_on_as_it_came() {
        let prefix = "/api/v1/namespaces/a/services/b:80/proxy";
        assert_eq!(split_path(prefix), Some((prefix, "")));
        assert_eq!(split_path(&format!("{prefix}/")), Some((prefix, "/")));
        assert_eq!(
            split_path(&format!("{prefix}/v1//x%2Fy/")),
            Some((prefix, "/v1//x%2Fy/"))
        );
        assert_eq!(split_path("/api/v1/namespaces/a/services/b/status"), None);
    }
}
