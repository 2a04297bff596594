//! Connections: accepted until the shutdown begins, and then let go as soon as nothing is being answered on them.

use std::{net::SocketAddr, time::Duration};

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

/// The longest time without the whole head of a request: on a new connection, and between two requests. Longer
/// than clients keep a connection that they do not use, so that it is they who close it.
const HEAD_TIMEOUT: Duration = Duration::from_secs(95);
/// How long answers that are being given may go on after the shutdown has begun; within the 30 s of a pod.
const DRAIN: Duration = Duration::from_secs(20);
/// The pause after a connection that could not be accepted: mostly as too many are open.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves `app` until `shutdown`; then closes the connections that are idle at once, and others with the answer
/// that is being given, which says `connection: close` where it has not begun.
pub(crate) async fn serve(listener: TcpListener, app: Router, shutdown: CancellationToken) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            Some(_ended) = connections.join_next(), if !connections.is_empty() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => {
                    connections.spawn(connection(stream, peer, app.clone(), shutdown.clone()));
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
    if timeout(DRAIN, ended).await.is_err() {
        tracing::warn!(
            open = connections.len(),
            "answers were still being given at the end of the shutdown and are cut off"
        );
    }
}

async fn connection(stream: TcpStream, peer: SocketAddr, app: Router, shutdown: CancellationToken) {
    // Streamed tokens are small and must not wait for more.
    let _ = stream.set_nodelay(true);
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(app));
    let mut served = std::pin::pin!(served);
    let result = tokio::select! {
        result = served.as_mut() => result,
        () = shutdown.cancelled() => {
            served.as_mut().graceful_shutdown();
            served.await
        }
    };
    if let Err(error) = result {
        tracing::debug!(%peer, %error, "the connection broke");
    }
}
