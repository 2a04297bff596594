//! How traces, metrics and logs leave the process: OTLP over gRPC, in the background.
//!
//! Spans and log lines wait in bounded queues and are dropped when these are full, so that a collector that is slow or gone
//! costs nobody any time. Whether it takes what is sent is told when that changes, not each time.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use kaos_seams::Random;
use opentelemetry::{
    InstrumentationScope, KeyValue,
    logs::LogRecord,
    trace::{SpanId, TraceId},
};
use opentelemetry_otlp::{
    ExporterBuildError, LogExporter, MetricExporter, SpanExporter, WithExportConfig, WithTonicConfig,
};
use opentelemetry_sdk::{
    Resource,
    error::{OTelSdkError, OTelSdkResult},
    logs::{BatchLogProcessor, LogBatch, LogProcessor, SdkLogRecord, SdkLoggerProvider},
    metrics::{PeriodicReader, Temporality, data::ResourceMetrics, exporter::PushMetricExporter},
    resource::TelemetryResourceDetector,
    trace::{BatchSpanProcessor, IdGenerator, SdkTracerProvider, SpanData},
};
use tonic::transport::{Certificate, ClientTlsConfig};
use url::Url;

use crate::settings::Export;

const INSTANCE: &str = "service.instance.id";

/// Who sends: what the environment says, and which of several replicas it is, so that their counts are not
/// taken for one another's.
pub(crate) fn resource(export: &Export, random: &dyn Random) -> Resource {
    let said = export.attributes.iter().cloned();
    Resource::builder_empty()
        .with_detector(Box::new(TelemetryResourceDetector))
        .with_attribute(KeyValue::new(INSTANCE, random.uuid()))
        .with_attributes(said.map(|(key, value)| KeyValue::new(key, value)))
        .with_service_name(export.service.clone())
        .build()
}

/// How collectors prove who they are, where the connection is encrypted: to the system's authorities or to
/// those of a file in PEM.
pub(crate) fn tls(authorities: Option<Vec<u8>>) -> ClientTlsConfig {
    let tls = ClientTlsConfig::new().with_enabled_roots();
    match authorities {
        Some(pem) => tls.ca_certificate(Certificate::from_pem(pem)),
        None => tls,
    }
}

/// Must be called within a runtime, which then carries the connection.
pub(crate) fn traces(
    endpoint: &Url,
    tls: ClientTlsConfig,
    resource: Resource,
    random: Arc<dyn Random>,
) -> Result<SdkTracerProvider, ExporterBuildError> {
    let exporter = SpanExporter::builder()
        .with_tonic()
        .with_endpoint(endpoint.as_str());
    let exporter = match endpoint.scheme() {
        "https" => exporter.with_tls_config(tls).build()?,
        _ => exporter.build()?,
    };
    let exporter = Watched::new(exporter, "traces", endpoint);
    Ok(SdkTracerProvider::builder()
        .with_id_generator(Ids(random))
        .with_resource(resource)
        .with_span_processor(BatchSpanProcessor::builder(exporter).build())
        .build())
}

/// As [`traces`].
pub(crate) fn logs(
    endpoint: &Url,
    tls: ClientTlsConfig,
    resource: Resource,
) -> Result<SdkLoggerProvider, ExporterBuildError> {
    let exporter = LogExporter::builder()
        .with_tonic()
        .with_endpoint(endpoint.as_str());
    let exporter = match endpoint.scheme() {
        "https" => exporter.with_tls_config(tls).build()?,
        _ => exporter.build()?,
    };
    let exporter = Watched::new(exporter, "logs", endpoint);
    Ok(SdkLoggerProvider::builder()
        .with_resource(resource)
        .with_log_processor(Named)
        .with_log_processor(BatchLogProcessor::builder(exporter).build())
        .build())
}

/// As [`traces`], but read from a provider whose resource is known to it.
pub(crate) fn metrics(
    endpoint: &Url,
    tls: ClientTlsConfig,
) -> Result<PeriodicReader<Watched<MetricExporter>>, ExporterBuildError> {
    let exporter = MetricExporter::builder()
        .with_tonic()
        .with_endpoint(endpoint.as_str());
    let exporter = match endpoint.scheme() {
        "https" => exporter.with_tls_config(tls).build()?,
        _ => exporter.build()?,
    };
    Ok(PeriodicReader::builder(Watched::new(exporter, "metrics", endpoint)).build())
}

/// Identifiers of traces and spans from the randomness that was handed in.
#[derive(Debug)]
struct Ids(Arc<dyn Random>);

impl IdGenerator for Ids {
    fn new_trace_id(&self) -> TraceId {
        let mut bytes = [0; 16];
        self.0.fill(&mut bytes);
        TraceId::from_bytes(bytes)
    }

    fn new_span_id(&self) -> SpanId {
        let mut bytes = [0; 8];
        self.0.fill(&mut bytes);
        SpanId::from_bytes(bytes)
    }
}

/// Says by the attribute that readers of KAOS' logs know which part of the program wrote a line.
#[derive(Debug)]
struct Named;

impl LogProcessor for Named {
    fn emit(&self, line: &mut SdkLogRecord, _scope: &InstrumentationScope) {
        if let Some(target) = line.target().cloned() {
            line.add_attribute("logger_name", target.into_owned());
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _timeout: Duration) -> OTelSdkResult {
        Ok(())
    }
}

/// An exporter that tells when the collector stops taking what it sends, and when it takes it again.
pub(crate) struct Watched<E> {
    inner: E,
    what: &'static str,
    /// The collector's address, without a password.
    collector: String,
    failing: AtomicBool,
}

impl<E> Watched<E> {
    fn new(inner: E, what: &'static str, endpoint: &Url) -> Self {
        Self {
            inner,
            what,
            collector: endpoint.origin().ascii_serialization(),
            failing: AtomicBool::new(false),
        }
    }

    fn noting(&self, result: OTelSdkResult) -> OTelSdkResult {
        let (what, collector) = (self.what, &self.collector);
        match &result {
            Ok(()) => {
                if self.failing.swap(false, Ordering::Relaxed) {
                    tracing::info!(collector, "the collector takes {what} again");
                }
            }
            Err(OTelSdkError::AlreadyShutdown) => {}
            Err(error) => {
                if !self.failing.swap(true, Ordering::Relaxed) {
                    let reason = reason(error);
                    tracing::warn!(
                        collector,
                        reason,
                        "the collector does not take {what}; nothing waits for it"
                    );
                }
            }
        }
        result
    }
}

/// What an error says, short of the names by which OpenTelemetry calls its parts.
fn reason(error: &OTelSdkError) -> String {
    match error {
        OTelSdkError::InternalFailure(text) => {
            let said = text
                .split_once("gRPC code: ")
                .map_or(text.as_str(), |(_, said)| said);
            said.to_owned()
        }
        other => other.to_string(),
    }
}

impl<E> fmt::Debug for Watched<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watched")
            .field("what", &self.what)
            .field("collector", &self.collector)
            .finish_non_exhaustive()
    }
}

impl opentelemetry_sdk::trace::SpanExporter for Watched<SpanExporter> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        self.noting(self.inner.export(batch).await)
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.inner.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.inner.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.inner.set_resource(resource);
    }
}

impl opentelemetry_sdk::logs::LogExporter for Watched<LogExporter> {
    async fn export(&self, batch: LogBatch<'_>) -> OTelSdkResult {
        self.noting(self.inner.export(batch).await)
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.inner.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.inner.set_resource(resource);
    }
}

impl PushMetricExporter for Watched<MetricExporter> {
    async fn export(&self, metrics: &ResourceMetrics) -> OTelSdkResult {
        self.noting(self.inner.export(metrics).await)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.inner.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.inner.shutdown_with_timeout(timeout)
    }

    fn temporality(&self) -> Temporality {
        self.inner.temporality()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Log;

    #[test]
    fn a_collector_is_told_of_when_its_state_changes() {
        let log = Log::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .without_time()
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        let endpoint: Url = "http://user:secret@otel:4317".parse().unwrap();
        let watched = Watched::new((), "traces", &endpoint);
        let down = || {
            Err(OTelSdkError::InternalFailure(
                "Client failed with gRPC code: Unavailable: gone".to_owned(),
            ))
        };
        tracing::subscriber::with_default(subscriber, || {
            for result in [Ok(()), down(), down(), down(), Ok(()), Ok(()), down()] {
                let failed = result.is_err();
                assert_eq!(watched.noting(result).is_err(), failed);
            }
            let _ = watched.noting(Err(OTelSdkError::AlreadyShutdown));
        });
        let log = log.text();
        let levels: Vec<&str> = log
            .split_whitespace()
            .filter(|word| matches!(*word, "WARN" | "INFO"))
            .collect();
        assert_eq!(levels, ["WARN", "INFO", "WARN"], "{log}");
        assert!(
            log.contains("http://otel:4317") && log.contains("reason=\"Unavailable: gone\""),
            "{log}"
        );
        assert!(!log.contains("secret"), "{log}");
    }
}
