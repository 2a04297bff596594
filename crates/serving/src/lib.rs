//! Connections of an HTTP server: accepted until the shutdown begins, and then let go as soon as nothing is being
//! answered on them.
//!
//! `axum::serve` waits for the head of a request for ever, so that whoever sends it a byte at a time, or none, holds
//! as many connections as the process may have open. Here such a connection is closed after [`HEAD_TIMEOUT`].
//!
//! HTTP/1.1 only, without upgrades. How long an answer may take, and how long answers may go on after the shutdown
//! has begun, is the caller's to say: see [`serve`].

#[cfg(test)]
mod tests;

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
    time::sleep,
};
use tokio_util::sync::CancellationToken;

/// The longest time without the whole head of a request: on a new connection, and between two requests. Longer
/// than clients keep a connection that they do not use, so that it is they who close it.
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(95);
/// How long answers that are being given usually may go on after the shutdown has begun; within the 30 s of a pod.
pub const DRAIN: Duration = Duration::from_secs(20);
/// The pause after a connection that could not be accepted: mostly as too many are open.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves `app` until `shutdown`; then closes the connections that are idle at once, and others with the answer
/// that is being given, which says `connection: close` where it has not begun. Ends when all are closed.
///
/// Dropping it cuts off the answers that are still being given: wait for it no longer than
/// [`end_of_grace`] allows.
pub async fn serve(listener: TcpListener, app: Router, shutdown: CancellationToken) {
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
    while connections.join_next().await.is_some() {}
}

/// Waits until answers have had `grace` to end since `shutdown`.
pub async fn end_of_grace(shutdown: &CancellationToken, grace: Duration) {
    shutdown.cancelled().await;
    sleep(grace).await;
}

async fn connection(stream: TcpStream, peer: SocketAddr, app: Router, shutdown: CancellationToken) {
    // Streamed tokens and events are small and must not wait for more.
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
