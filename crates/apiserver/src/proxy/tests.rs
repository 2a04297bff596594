//! The proxy in front of a real server on loopback.

use std::{convert::Infallible, net::SocketAddr, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpListener, sync::mpsc, time::timeout};

use super::*;
use crate::{
    BoxError,
    backend::{Backend, LogOptions, LogStream},
    server::Body,
};

/// One pod at an address, behind a Service of any name.
struct OnePod(Option<SocketAddr>);

#[async_trait]
impl Backend for OnePod {
    async fn pod_log(&self, _: &str, pod: &str, options: LogOptions) -> Result<LogStream, Refusal> {
        let text = format!("{pod} {:?}\n", options.tail_lines);
        Ok(Box::pin(futures::stream::iter([
            Ok(Bytes::from(text)),
            Ok(Bytes::from_static(b"more")),
        ])))
    }

    async fn service_address(&self, _: &str, service: &str, _: Option<&str>) -> Result<SocketAddr, Refusal> {
        self.0
            .ok_or_else(|| Refusal::Unavailable(format!("{service} has no pod")))
    }

    async fn pod_address(&self, _: &str, pod: &str, _: Option<&str>) -> Result<SocketAddr, Refusal> {
        self.0
            .ok_or_else(|| Refusal::NotFound(format!("pods \"{pod}\" not found")))
    }
}

/// A pod that answers each request with what `answer` makes of it.
async fn pod<F, A>(answer: F) -> SocketAddr
where
    F: Fn(Request<Incoming>) -> A + Clone + Send + 'static,
    A: Future<Output = Response<Body>> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let answer = answer.clone();
            let service = service_fn(move |request| {
                let answer = answer(request);
                async move { Ok::<_, Infallible>(answer.await) }
            });
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    });
    address
}

async fn call(address: Option<SocketAddr>, request: Request<Body>) -> Result<Response<Body>, ApiError> {
    let (parts, body) = request.into_parts();
    forward(
        Some(Arc::new(OnePod(address))),
        Destination::Service,
        "a",
        "b:80",
        parts,
        body,
    )
    .await
}

const PROXY: &str = "/api/v1/namespaces/a/services/b:80/proxy";

fn request(method: &str, rest: &str, body: &'static str) -> Request<Body> {
    let body = Full::new(Bytes::from_static(body.as_bytes()))
        .map_err(|never| match never {})
        .boxed_unsync();
    let request = Request::builder()
        .method(method)
        .uri(format!("{PROXY}{rest}"))
        .header("host", "localhost");
    request
        .header("authorization", "Bearer secret")
        .body(body)
        .unwrap()
}

async fn text(response: Response<Body>) -> String {
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

#[tokio::test]
async fn requests_are_passed_on_whole() {
    let address = pod(|request| async move {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let secret = parts.headers.contains_key("authorization");
        let text = format!(
            "{} {} {} {secret}",
            parts.method,
            parts.uri,
            String::from_utf8_lossy(&body)
        );
        crate::server::full_body(text).into_response()
    })
    .await;
    let response = call(Some(address), request("PATCH", "/x%2Fy/?q=1", "body"))
        .await
        .unwrap();
    assert_eq!(text(response).await, "PATCH /x%2Fy/?q=1 body false");
    let response = call(Some(address), request("GET", "", "")).await.unwrap();
    assert_eq!(
        (response.status().as_u16(), &response.headers()["location"]),
        (301, &format!("{PROXY}/")[..].parse().unwrap())
    );
}

trait IntoResponse {
    fn into_response(self) -> Response<Body>;
}

impl IntoResponse for Body {
    fn into_response(self) -> Response<Body> {
        Response::new(self)
    }
}

/// The second chunk is only made when the first has arrived.
#[tokio::test]
async fn chunks_arrive_as_they_are_sent() {
    let (go_on, wait) = mpsc::channel::<Bytes>(1);
    let wait = Arc::new(tokio::sync::Mutex::new(Some(wait)));
    let address = pod(move |_| {
        let wait = wait.clone();
        async move {
            let chunks = wait.lock().await.take().expect("one request");
            let frames = tokio_stream::wrappers::ReceiverStream::new(chunks);
            let frames = futures::StreamExt::map(frames, |chunk| Ok::<_, BoxError>(Frame::data(chunk)));
            StreamBody::new(frames).boxed_unsync().into_response()
        }
    })
    .await;
    go_on.send(Bytes::from_static(b"data: 1\n\n")).await.unwrap();
    let mut body = call(Some(address), request("POST", "/v1/chat/completions", "{}"))
        .await
        .unwrap()
        .into_body();
    for expected in ["data: 1\n\n", "data: 2\n\n"] {
        let frame = timeout(Duration::from_secs(5), body.frame())
            .await
            .expect("not held back")
            .unwrap()
            .unwrap();
        assert_eq!(frame.into_data().unwrap(), expected);
        go_on.try_send(Bytes::from_static(b"data: 2\n\n")).unwrap();
    }
    // The caller goes away: the pod's sender notices.
    drop(body);
    timeout(Duration::from_secs(5), go_on.closed())
        .await
        .expect("the pod's connection is closed");
}

#[tokio::test]
async fn what_cannot_be_reached_is_said_in_kubernetes_words() {
    let error = call(None, request("GET", "/", "")).await.unwrap_err();
    assert_eq!((error.code.as_u16(), error.reason), (503, "ServiceUnavailable"));
    assert_eq!(error.message, "no endpoints available for service \"b\"");

    let closed = TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap();
    let error = call(Some(closed), request("GET", "/", "")).await.unwrap_err();
    assert_eq!(error.code.as_u16(), 503);
    assert!(
        error
            .message
            .starts_with("error trying to reach service: dial tcp 127.0.0.1:"),
        "{error:?}"
    );

    let (parts, body) = request("GET", "/", "").into_parts();
    let error = forward(None, Destination::Pod, "a", "b", parts, body)
        .await
        .unwrap_err();
    assert_eq!(error.code.as_u16(), 503);

    let (mut parts, body) = request("GET", "/", "").into_parts();
    parts.headers.insert("upgrade", "websocket".parse().unwrap());
    let error = forward(
        Some(Arc::new(OnePod(None))),
        Destination::Pod,
        "a",
        "b",
        parts,
        body,
    )
    .await
    .unwrap_err();
    assert_eq!(error.code.as_u16(), 400);
}

#[tokio::test]
async fn logs_are_plain_text() {
    let now = "2026-01-01T00:00:00Z".parse().unwrap();
    let response = pod_log(Some(Arc::new(OnePod(None))), "a", "p", Some("tailLines=2"), now)
        .await
        .unwrap();
    assert_eq!(response.headers()["content-type"], "text/plain");
    assert_eq!(text(response).await, "p Some(2)\nmore");
    let error = pod_log(None, "a", "p", None, now).await.unwrap_err();
    assert_eq!(error.code.as_u16(), 503);
}
