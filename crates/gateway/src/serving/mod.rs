//! The HTTP server: admits requests, passes them on, and stops without cutting off what has begun.

mod answer;
mod body;
mod connect;
mod forward;
pub(crate) mod headers;

use std::{convert::Infallible, net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::future;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioIo, TokioTimer},
};
use kaos_seams::{Dialer, Random, Seams};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Semaphore, watch},
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::{guard::Access, routes::table::Table};

/// What goes wrong in the middle of a body.
type BodyError = Box<dyn std::error::Error + Send + Sync>;
/// A body in either direction.
type Body = UnsyncBoxBody<Bytes, BodyError>;

/// How long a connection may be idle before, or take for, the head of its next request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(60);
/// The largest head of a request.
const MAX_HEAD_BYTES: usize = 64 * 1024;
/// How many connections are served at once. More wait in the listener's queue.
const MAX_CONNECTIONS: usize = 1024;
/// How long a backend may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause after a failed accept: out of file descriptors, most likely.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What every request needs.
struct Proxy {
    access: Access,
    table: watch::Receiver<Arc<Table>>,
    client: Client<connect::Patient, Body>,
    dialer: Arc<dyn Dialer>,
    random: Arc<dyn Random>,
}

impl Proxy {
    async fn serve(&self, peer: SocketAddr, request: Request<Incoming>) -> Response<Body> {
        let table = self.table.borrow().clone();
        let admitted = self
            .access
            .check(request.uri(), request.headers(), |host| table.names_host(host));
        let admitted = match admitted {
            Ok(admitted) => admitted,
            Err(refusal) => return answer::error(refusal.status, &refusal.message),
        };
        let origin = admitted.cross_origin.as_ref();
        let mut response = if origin.is_some() && headers::is_preflight(request.method(), request.headers()) {
            forward::preflight(request.headers())
        } else {
            forward::forward(self, table, &admitted.host, peer, request).await
        };
        headers::set_cross_origin(response.headers_mut(), origin);
        response
    }
}

/// Serves until `stop`, then for as long as requests that run may take to end.
pub(crate) async fn serve(
    listeners: Vec<TcpListener>,
    access: Access,
    grace: Duration,
    seams: Seams,
    table: watch::Receiver<Arc<Table>>,
    stop: CancellationToken,
) {
    let mut connector = HttpConnector::new();
    connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
    connector.set_nodelay(true);
    let proxy = Arc::new(Proxy {
        access,
        table,
        // A connection of its own for each request: one that is kept would go on to reach a pod that its
        // Service has left, and a new one costs next to nothing on loopback.
        client: Client::builder(TokioExecutor::new())
            .pool_max_idle_per_host(0)
            .build(connect::Patient(connector)),
        dialer: seams.dialer,
        random: seams.random,
    });
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let accepting = listeners
        .into_iter()
        .map(|listener| accept(listener, proxy.clone(), slots.clone(), grace, stop.clone()));
    future::join_all(accepting).await;
}

async fn accept(
    listener: TcpListener,
    proxy: Arc<Proxy>,
    slots: Arc<Semaphore>,
    grace: Duration,
    stop: CancellationToken,
) {
    let mut connections = JoinSet::new();
    loop {
        // The slot is taken before the connection: those beyond the limit stay in the kernel's queue.
        let accepted = async {
            let slot = slots.clone().acquire_owned().await;
            (slot, listener.accept().await)
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            Some(_ended) = connections.join_next(), if !connections.is_empty() => {}
            (slot, accepted) = accepted => match accepted {
                Ok((stream, peer)) => {
                    let (proxy, stop) = (proxy.clone(), stop.clone());
                    connections.spawn(async move {
                        let _slot = slot;
                        connection(stream, peer, proxy, stop).await;
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection was not accepted");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
    drop(listener);
    let ended = async { while connections.join_next().await.is_some() {} };
    if timeout(grace, ended).await.is_err() {
        tracing::debug!(
            open = connections.len(),
            "connections are closed in the middle of a request"
        );
    }
}

async fn connection(stream: TcpStream, peer: SocketAddr, proxy: Arc<Proxy>, stop: CancellationToken) {
    // Streamed tokens are small and must not wait for more.
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request: Request<Incoming>| {
        let proxy = proxy.clone();
        async move { Ok::<_, Infallible>(proxy.serve(peer, request).await) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_header_size(MAX_HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    let mut served = std::pin::pin!(served);
    let result = tokio::select! {
        result = served.as_mut() => result,
        () = stop.cancelled() => {
            served.as_mut().graceful_shutdown();
            served.await
        }
    };
    if let Err(error) = result {
        tracing::debug!(%peer, %error, "the connection broke");
    }
}
