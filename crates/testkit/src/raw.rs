//! Requests as they go over the wire, for tests of what typed clients hide.

use std::time::Duration;

use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use http::{Method, Request};
use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::Value;
use tokio::time::timeout;

use crate::api::TestApi;
use crate::eventually::PATIENCE;

/// The body of a raw request.
#[derive(Clone, Debug, Default)]
pub struct RawBody {
    bytes: Vec<u8>,
    content_type: Option<&'static str>,
}

impl From<()> for RawBody {
    fn from((): ()) -> Self {
        Self::default()
    }
}

impl From<Value> for RawBody {
    /// JSON, which the request says unless its headers name another type.
    fn from(value: Value) -> Self {
        Self {
            bytes: value.to_string().into_bytes(),
            content_type: Some("application/json"),
        }
    }
}

impl From<&Value> for RawBody {
    fn from(value: &Value) -> Self {
        Self::from(value.clone())
    }
}

impl From<&str> for RawBody {
    /// The text as it is, of no type.
    fn from(text: &str) -> Self {
        Self {
            bytes: text.as_bytes().to_vec(),
            content_type: None,
        }
    }
}

impl TestApi {
    /// Sends a request and returns the status code and the body: parsed where it is JSON, else as a string.
    ///
    /// # Panics
    /// When no answer comes, or something is not a request.
    pub async fn raw(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<RawBody>,
    ) -> (u16, Value) {
        let response = self
            .client
            .send(request(method, path, headers, body.into()))
            .await
            .expect("the server answers");
        let status = response.status().as_u16();
        let bytes = response
            .into_body()
            .collect()
            .await
            .expect("the answer arrives whole")
            .to_bytes();
        let value = serde_json::from_slice(&bytes)
            .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into_owned()));
        (status, value)
    }

    /// Watches a path such as `/api/v1/namespaces/x/pods?resourceVersion=7` (`watch=true` is added).
    ///
    /// # Panics
    /// When the server refuses the watch; see [`TestApi::raw`] for looking at a refusal.
    pub async fn watch(&self, path: &str) -> Watch {
        let separator = if path.contains('?') { '&' } else { '?' };
        let path = format!("{path}{separator}watch=true");
        let response = self
            .client
            .send(request("GET", &path, &[], RawBody::default()))
            .await
            .expect("the server answers");
        let status = response.status();
        assert!(status.is_success(), "the watch of {path} was refused: {status}");
        let frames = response
            .into_body()
            .into_data_stream()
            .map_ok(|frame| frame.to_vec());
        Watch {
            frames: frames.boxed(),
            buffer: Vec::new(),
        }
    }
}

fn request(method: &str, path: &str, headers: &[(&str, &str)], body: RawBody) -> Request<Body> {
    let method = Method::from_bytes(method.as_bytes()).expect("a method");
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let named = headers
        .iter()
        .any(|(name, _)| name.eq_ignore_ascii_case("content-type"));
    if let Some(content_type) = body.content_type.filter(|_| !named) {
        request = request.header("content-type", content_type);
    }
    request.body(Body::from(body.bytes)).expect("a request")
}

/// The events of one watch, in the order the server sent them.
pub struct Watch {
    frames: BoxStream<'static, Result<Vec<u8>, kube::Error>>,
    buffer: Vec<u8>,
}

impl Watch {
    /// The next event (`type` and `object`), or `None` when the server has ended the watch.
    ///
    /// # Panics
    /// When none comes in time, or it is not JSON.
    pub async fn next(&mut self) -> Option<Value> {
        timeout(PATIENCE, self.read())
            .await
            .expect("an event, or the end of the watch, comes in time")
    }

    /// Whether nothing comes within `period`.
    pub async fn is_silent_for(&mut self, period: Duration) -> bool {
        timeout(period, self.read()).await.is_err()
    }

    async fn read(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).expect("an event is JSON"));
            }
            match self.frames.next().await? {
                Ok(frame) => self.buffer.extend_from_slice(&frame),
                Err(_) => return None,
            }
        }
    }
}
