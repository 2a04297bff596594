//! A client that lets somebody else act at a chosen moment.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{Method, Request};
use kube::Client;
use kube::client::Body;
use tower::service_fn;

/// A client before whose requests of a method somebody else acts.
pub(super) struct Interposed {
    pub(super) client: Client,
    acted: Arc<AtomicUsize>,
}

impl Interposed {
    /// Before each of the first `times` requests of this method, `act` is called with `client` and waited for.
    pub(super) fn before<F>(
        method: Method,
        times: usize,
        client: &Client,
        act: impl Fn(Client) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let acted = Arc::new(AtomicUsize::new(0));
        let (inner, count, act) = (client.clone(), acted.clone(), Arc::new(act));
        let service = service_fn(move |request: Request<Body>| {
            let (inner, act) = (inner.clone(), act.clone());
            let acts = request.method() == method
                && count
                    .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |acted| {
                        (acted < times).then_some(acted + 1)
                    })
                    .is_ok();
            async move {
                if acts {
                    act(inner.clone()).await;
                }
                inner.send(request).await
            }
        });
        Self {
            client: Client::new(service, "default"),
            acted,
        }
    }

    /// How often somebody else has acted.
    pub(super) fn acted(&self) -> usize {
        self.acted.load(Ordering::SeqCst)
    }
}
