//! Connections that were passed on to a pod and not answered yet. While there is one, the pod may not even
//! have taken it, and must not be asked to end.

use std::{
    collections::BTreeMap,
    io,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    sync::watch,
};

/// How many there are, by the pod's address.
#[derive(Clone, Debug, Default)]
pub(super) struct Unanswered(Arc<watch::Sender<BTreeMap<SocketAddr, usize>>>);

impl Unanswered {
    /// Counts a connection to `target` until the result is dropped.
    pub(super) fn count(&self, target: SocketAddr) -> Waiting {
        self.0
            .send_modify(|counts| *counts.entry(target).or_default() += 1);
        Waiting {
            counts: self.clone(),
            target,
        }
    }

    /// Waits until there is none to any of `targets`.
    pub(super) async fn none(&self, targets: &[SocketAddr]) {
        let mut counts = self.0.subscribe();
        // The sender is here, so it cannot be gone.
        let _ = counts
            .wait_for(|counts| !targets.iter().any(|target| counts.contains_key(target)))
            .await;
    }
}

/// One connection that waits for its first answer.
#[derive(Debug)]
pub(super) struct Waiting {
    counts: Unanswered,
    target: SocketAddr,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.counts.0.send_modify(|counts| {
            if let Some(count) = counts.get_mut(&self.target) {
                *count -= 1;
                if *count == 0 {
                    counts.remove(&self.target);
                }
            }
        });
    }
}

/// A connection to a pod, counted until its first bytes, or its end, come.
#[derive(Debug)]
pub(super) struct Counted {
    pub(super) stream: TcpStream,
    pub(super) waiting: Option<Waiting>,
}

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if read.is_ready() {
            self.waiting = None;
        }
        read
    }
}

impl AsyncWrite for Counted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
