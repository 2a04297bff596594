//! What was measured as `/metrics` shows it, in the text format of Prometheus:
//! <https://prometheus.io/docs/instrumenting/exposition_formats/>.
//!
//! It is there whether or not anything is sent elsewhere, from the same instruments, and costs little until
//! somebody asks. Names follow OpenTelemetry's rules for Prometheus: `_` for `.`, the unit at the end, `_total`
//! for what only grows.

use http::{HeaderValue, Response, StatusCode, header};
use opentelemetry_prometheus::PrometheusExporter;
use opentelemetry_sdk::error::OTelSdkError;
use prometheus::{Registry, TextEncoder};

/// What is answered in. Every Prometheus takes it, whatever else it would like.
const FORMAT: HeaderValue = HeaderValue::from_static(prometheus::TEXT_FORMAT);

/// What a scrape looks through.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scraped(Registry);

impl Scraped {
    /// With the reader by which OpenTelemetry's instruments get here.
    ///
    /// # Errors
    /// If the reader cannot be registered, which a new registry gives no reason for.
    pub(crate) fn new() -> Result<(Self, PrometheusExporter), OTelSdkError> {
        let registry = Registry::new();
        // One process has one set of instruments: labels that say whose they are would be the same on each line.
        let reader = opentelemetry_prometheus::exporter()
            .with_registry(registry.clone())
            .scope_info_enabled(false)
            .without_target_info()
            .build()?;
        Ok((Self(registry), reader))
    }

    /// The answer to `GET /metrics`.
    pub(crate) fn answer(&self) -> Response<String> {
        let (status, text) = match TextEncoder::new().encode_to_string(&self.0.gather()) {
            Ok(text) => (StatusCode::OK, text),
            Err(error) => (
                StatusCode::INTERNAL_SERVER_ERROR,
                format!("metrics cannot be written: {error}\n"),
            ),
        };
        let mut response = Response::new(text);
        *response.status_mut() = status;
        response.headers_mut().insert(header::CONTENT_TYPE, FORMAT);
        response
    }
}
