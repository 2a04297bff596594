//! Connections to backends.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use http::Uri;
use hyper_util::{client::legacy::connect::HttpConnector, rt::TokioIo};
use tokio::{
    net::TcpStream,
    time::{Instant, sleep},
};
use tower::Service;

/// How long a backend that refuses is tried again.
///
/// That a pod is ready is heard by whoever reports it and by whoever leads its Service to it, in no order. Who
/// has just read `Ready` is not to be told that there is no pod.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long between two tries.
const PAUSE: Duration = Duration::from_millis(20);

/// Connects, and tries again for a moment where the connection is refused.
#[derive(Clone, Debug)]
pub(super) struct Patient(pub(super) HttpConnector);

type Connected = Result<TokioIo<TcpStream>, <HttpConnector as Service<Uri>>::Error>;

impl Service<Uri> for Patient {
    type Response = TokioIo<TcpStream>;
    type Error = <HttpConnector as Service<Uri>>::Error;
    type Future = Pin<Box<dyn Future<Output = Connected> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Service::<Uri>::poll_ready(&mut self.0, context)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let mut connector = self.0.clone();
        Box::pin(async move {
            let begun = Instant::now();
            loop {
                match connector.call(uri.clone()).await {
                    Err(error) if is_refused(&error) && begun.elapsed() < PATIENCE => sleep(PAUSE).await,
                    outcome => return outcome,
                }
            }
        })
    }
}

fn is_refused(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        let io = error.downcast_ref::<std::io::Error>();
        if io.is_some_and(|io| io.kind() == std::io::ErrorKind::ConnectionRefused) {
            return true;
        }
        cause = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_backend_that_listens_a_moment_later_is_reached() {
        let free = TcpListener::bind("127.0.0.1:0")
            .await
            .unwrap()
            .local_addr()
            .unwrap();
        let uri: Uri = format!("http://{free}/").parse().unwrap();
        let mut patient = Patient(HttpConnector::new());
        let refused = HttpConnector::new().call(uri.clone()).await.unwrap_err();
        assert!(is_refused(&refused), "{refused:?}");
        let (connected, _listener) = tokio::join!(patient.call(uri), async {
            sleep(PAUSE * 2).await;
            TcpListener::bind(free).await.unwrap()
        });
        connected.unwrap();
    }
}
