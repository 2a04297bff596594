//! Bodies that end when the server does.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use futures::future::BoxFuture;
use http_body::{Frame, SizeHint};
use tokio_util::sync::CancellationToken;

use crate::{Body, BoxError};

/// A body that ends at shutdown where it would wait for more: a watch, a followed log. What is there already
/// is still sent.
pub(super) struct UntilShutdown {
    body: Body,
    stopping: BoxFuture<'static, ()>,
}

impl UntilShutdown {
    pub(super) fn new(body: Body, stopping: CancellationToken) -> Self {
        Self {
            body,
            stopping: Box::pin(stopping.cancelled_owned()),
        }
    }
}

impl http_body::Body for UntilShutdown {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            return Poll::Ready(frame);
        }
        ready!(self.stopping.as_mut().poll(cx));
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
