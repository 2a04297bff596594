//! One forwarder: from a Service's loopback address to its ready pods, in turn.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpSocket, TcpStream},
    sync::watch,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    allocation::ServicePort,
    endpoints::Endpoints,
    unanswered::{Counted, Unanswered, Waiting},
};

/// How many connections may wait to be accepted.
const BACKLOG: u32 = 1024;
/// How long to wait after a failure to listen or accept (file descriptors run out).
const PAUSE: Duration = Duration::from_millis(100);

/// Forwards until `stop`. While there is no ready pod nothing listens, so that connections are refused at
/// once; `_holder` keeps the port meanwhile.
pub(super) async fn run(
    service: ServicePort,
    _holder: TcpSocket,
    port: u16,
    mut endpoints: watch::Receiver<Arc<Endpoints>>,
    unanswered: Unanswered,
    stop: CancellationToken,
) {
    let connections = TaskTracker::new();
    let mut turn = 0usize;
    let mut listener: Option<TcpListener> = None;
    loop {
        if endpoints.borrow_and_update().behind(&service).is_empty() {
            listener = None;
        } else if listener.is_none() {
            match listen(port) {
                Ok(open) => listener = Some(open),
                Err(error) => {
                    tracing::warn!(%service, port, %error, "cannot listen for a Service");
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            }
        }
        let accepted = async {
            match &listener {
                Some(listener) => listener.accept().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = stop.cancelled() => break,
            changed = endpoints.changed() => if changed.is_err() { break },
            accepted = accepted => match accepted {
                Ok((client, _)) => {
                    turn = turn.wrapping_add(1);
                    let choice = Choice {
                        service: service.clone(),
                        endpoints: endpoints.clone(),
                        unanswered: unanswered.clone(),
                        turn,
                    };
                    let stop = stop.clone();
                    connections.spawn(async move {
                        tokio::select! { () = stop.cancelled() => {}, () = carry(client, &choice) => {} }
                    });
                }
                Err(error) => {
                    tracing::warn!(%service, port, %error, "cannot accept a connection for a Service");
                    tokio::time::sleep(PAUSE).await;
                }
            },
        }
    }
    connections.close();
    connections.wait().await;
}

fn listen(port: u16) -> io::Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseport(true)?;
    // Closed connections of this address must not keep the next run from taking the port again.
    socket.set_reuseaddr(true)?;
    socket.bind(SocketAddr::from(([127, 0, 0, 1], port)))?;
    socket.listen(BACKLOG)
}

/// Where one connection may go.
struct Choice {
    service: ServicePort,
    endpoints: watch::Receiver<Arc<Endpoints>>,
    unanswered: Unanswered,
    turn: usize,
}

impl Choice {
    /// A pod that is behind the Service now and was not tried yet. It is counted before anybody can hear that it
    /// is not behind the Service any more: whoever hears that and sees no count knows that no connection comes.
    fn next(&self, tried: &[SocketAddr]) -> Option<(SocketAddr, Waiting)> {
        let now = self.endpoints.borrow();
        let mut targets = now.behind(&self.service);
        targets.retain(|target| !tried.contains(target));
        let target = *targets.get(self.turn % targets.len().max(1))?;
        Some((target, self.unanswered.count(target)))
    }
}

/// Joins a client to the first pod that answers.
async fn carry(mut client: TcpStream, choice: &Choice) {
    let mut tried = Vec::new();
    while let Some((target, waiting)) = choice.next(&tried) {
        let Ok(stream) = TcpStream::connect(target).await else {
            tried.push(target);
            continue;
        };
        // Small frames of streamed answers must not wait for more.
        let _ = (client.set_nodelay(true), stream.set_nodelay(true));
        let mut pod = Counted {
            stream,
            waiting: Some(waiting),
        };
        // Either side may end the connection in any way; there is nobody to tell.
        let _ = copy_bidirectional(&mut client, &mut pod).await;
        return;
    }
    // The pods went away in this moment: a reset, as a refused connection would have been.
    let _ = client.set_zero_linger();
}
