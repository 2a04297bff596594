//! The server over HTTPS on a loopback address, for kubectl and whoever else is not in this process.
//!
//! Every request passes [`guard`] first: the right host, no foreign web page, the token. Nothing here knows
//! what a path means. It never listens beyond the machine: a server without users and rights has no business
//! on a network.

mod body;
mod guard;
mod identity;
mod kubeconfig;

use std::{
    convert::Infallible,
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use http::Request;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::Service as _;

pub use identity::{IdentityError, TlsIdentity};
pub use kubeconfig::kubeconfig;

use crate::ApiServer;

/// How long a new connection may take for its TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a connection may be idle before, or take for, the head of its next request. Clients keep idle
/// connections for up to 90 seconds and cope with those closed earlier.
const HEAD_TIMEOUT: Duration = Duration::from_secs(60);

/// The largest head of a request.
const MAX_HEAD_BYTES: usize = 64 * 1024;

/// How many connections are served at once. More wait in the listener's queue.
const MAX_CONNECTIONS: usize = 1024;

/// How long requests that run at shutdown may take to end.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);

/// The pause after a failed accept: out of file descriptors, most likely.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Who may call, and as whom the server shows itself.
#[derive(Clone)]
pub struct FrontOptions {
    /// The bearer token that callers must send.
    pub token: String,
    /// The certificate and key.
    pub tls: TlsIdentity,
}

// By hand: a derived one would print the token.
impl std::fmt::Debug for FrontOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FrontOptions")
            .field("tls", &self.tls)
            .finish_non_exhaustive()
    }
}

/// Why the front does not serve.
#[derive(Debug, thiserror::Error)]
pub enum FrontError {
    /// The listener is reachable from other machines.
    #[error("the API is served on loopback addresses only, not on {0}: listen on 127.0.0.1 or ::1")]
    NotLoopback(IpAddr),
    /// No token was given.
    #[error("the token is empty: the API is not served without one")]
    EmptyToken,
    /// The listener has no address.
    #[error("the listener's address cannot be read")]
    Listener(#[from] io::Error),
    /// The certificate or the key cannot be used.
    #[error(transparent)]
    Identity(#[from] IdentityError),
}

/// Where a request came from, in the request's extensions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(pub(crate) SocketAddr);

/// Serves until `shutdown`, then lets running requests end (watches and logs are ended), for a few seconds at
/// most. Dropping the future closes every connection.
///
/// # Errors
/// Where the listener is not on loopback, the token is empty, or the identity cannot be used.
pub async fn serve(
    server: ApiServer,
    listener: TcpListener,
    options: FrontOptions,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), FrontError> {
    let address = listener.local_addr()?;
    if !address.ip().is_loopback() {
        return Err(FrontError::NotLoopback(address.ip()));
    }
    if options.token.is_empty() {
        return Err(FrontError::EmptyToken);
    }
    let tls = TlsAcceptor::from(options.tls.server_config()?);
    let guard = Arc::new(guard::Guard::new(&options.token));
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let stopping = CancellationToken::new();
    let mut connections = JoinSet::new();
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        // The slot is taken before the connection: those beyond the limit stay in the kernel's queue.
        let accept = async {
            let slot = slots.clone().acquire_owned().await;
            (slot, listener.accept().await)
        };
        tokio::select! {
            biased;
            () = &mut shutdown => break,
            Some(_ended) = connections.join_next(), if !connections.is_empty() => {}
            (slot, accepted) = accept => match accepted {
                Ok((stream, peer)) => {
                    let (tls, guard) = (tls.clone(), guard.clone());
                    let (server, stopping) = (server.clone(), stopping.clone());
                    connections.spawn(async move {
                        let _slot = slot;
                        connection(stream, peer, tls, guard, server, stopping).await;
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
    stopping.cancel();
    let ended = async { while connections.join_next().await.is_some() {} };
    if timeout(SHUTDOWN_GRACE, ended).await.is_err() {
        tracing::debug!(
            open = connections.len(),
            "connections are closed in the middle of a request"
        );
    }
    Ok(())
}

async fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    tls: TlsAcceptor,
    guard: Arc<guard::Guard>,
    server: ApiServer,
    stopping: CancellationToken,
) {
    // Watch events and streamed tokens are small and must not wait for more.
    let _ = stream.set_nodelay(true);
    let stream = match timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            tracing::debug!(%peer, %error, "no TLS handshake");
            return;
        }
        Err(_elapsed) => {
            tracing::debug!(%peer, "the TLS handshake took too long");
            return;
        }
    };
    let until = stopping.clone();
    let service = service_fn(move |mut request: Request<Incoming>| {
        let (guard, mut server, until) = (guard.clone(), server.clone(), until.clone());
        async move {
            let response = match guard.check(request.method(), request.uri(), request.headers()) {
                Ok(()) => {
                    request.extensions_mut().insert(Peer(peer));
                    // `ApiServer` is always ready: `call` needs no `poll_ready` before it.
                    server.call(request).await.unwrap_or_else(|never| match never {})
                }
                Err(refusal) => refusal.into_response(),
            };
            Ok::<_, Infallible>(response.map(|body| body::UntilShutdown::new(body, until)))
        }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_header_size(MAX_HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    let mut served = std::pin::pin!(served);
    let result = tokio::select! {
        result = served.as_mut() => result,
        () = stopping.cancelled() => {
            served.as_mut().graceful_shutdown();
            served.await
        }
    };
    if let Err(error) = result {
        tracing::debug!(%peer, %error, "the connection broke");
    }
}

#[cfg(test)]
mod tests;
