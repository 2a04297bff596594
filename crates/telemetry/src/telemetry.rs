//! What a role measures itself by.

use std::{
    borrow::Cow,
    fmt, fs, io,
    path::PathBuf,
    sync::Arc,
    thread,
    time::{Duration, SystemTime},
};

use http::Response;
use kaos_seams::{Clock, Seams};
use opentelemetry::{
    KeyValue,
    metrics::{Meter, MeterProvider as _, NoopMeterProvider},
    trace::{SpanBuilder, SpanKind, TraceContextExt, Tracer as _, TracerProvider as _},
};
use opentelemetry_sdk::{
    error::OTelSdkError,
    logs::SdkLoggerProvider,
    metrics::SdkMeterProvider,
    trace::{SdkTracer, SdkTracerProvider},
};
use tokio::{sync::oneshot, time::timeout};

use crate::{
    context::TraceContext,
    export, logs,
    operation::{Measure, Operation},
    scrape::Scraped,
    settings::Export,
};

/// What spans and metrics name as their origin.
const SCOPE: &str = "kaos";
/// How long a shutdown waits for what has not been sent yet.
const FLUSH: Duration = Duration::from_secs(2);

/// Takes traces and metrics: sends them where [`Export`] says, and tells metrics to whoever asks
/// ([`scrape`](Self::scrape)). Cheap to clone.
#[derive(Clone, Default)]
pub struct Telemetry(Option<Arc<Taking>>);

struct Taking {
    /// `None`: none are sent.
    traces: Option<(SdkTracer, SdkTracerProvider)>,
    meter: Meter,
    metrics: SdkMeterProvider,
    scraped: Scraped,
    /// `None`: none are sent.
    logs: Option<SdkLoggerProvider>,
    clock: Arc<dyn Clock>,
}

/// Nothing can be sent.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// OpenTelemetry cannot set up what its variables say.
    #[error("traces, metrics and logs cannot be sent: {0}")]
    Exporter(#[from] opentelemetry_otlp::ExporterBuildError),
    /// Metrics cannot be set up to be read.
    #[error("metrics cannot be set up: {0}")]
    Metrics(#[from] OTelSdkError),
    /// The file of certificates cannot be read.
    #[error("certificates of the collector cannot be read from {}: {reason}", path.display())]
    Certificate {
        /// The file that `OTEL_EXPORTER_OTLP_CERTIFICATE` names.
        path: PathBuf,
        /// Why.
        #[source]
        reason: io::Error,
    },
}

impl Telemetry {
    /// One that measures and sends nothing.
    pub fn off() -> Self {
        Self(None)
    }

    /// One that measures, and sends as `export` says, in the background; without one, nothing is sent. Does not
    /// wait for a connection. Call it within the runtime that is to carry the connection, and
    /// [`shutdown`](Self::shutdown) before that ends.
    ///
    /// The log lines of the process are sent by the first that sends any.
    ///
    /// # Errors
    /// If OpenTelemetry finds its variables malformed, or the collector's certificates cannot be read.
    pub fn start(export: Option<&Export>, seams: &Seams) -> Result<Self, StartError> {
        let (scraped, reader) = Scraped::new()?;
        let mut metrics = SdkMeterProvider::builder().with_reader(reader);
        let (mut traces, mut logs) = (None, None);
        if let Some(export) = export {
            let resource = export::resource(export, &*seams.random);
            let read = |path: &PathBuf| {
                fs::read(path).map_err(|reason| StartError::Certificate {
                    path: path.clone(),
                    reason,
                })
            };
            let tls = export::tls(export.certificate.as_ref().map(read).transpose()?);
            if let Some(endpoint) = &export.traces {
                let provider = export::traces(endpoint, tls.clone(), resource.clone(), seams.random.clone())?;
                traces = Some((provider.tracer(SCOPE), provider));
            }
            if let Some(endpoint) = &export.logs {
                let provider = export::logs(endpoint, tls.clone(), resource.clone())?;
                logs::send_by(&provider);
                logs = Some(provider);
            }
            if let Some(endpoint) = &export.metrics {
                metrics = metrics.with_reader(export::metrics(endpoint, tls)?);
            }
            metrics = metrics.with_resource(resource);
        }
        let metrics = metrics.build();
        Ok(Self(Some(Arc::new(Taking {
            traces,
            meter: metrics.meter(SCOPE),
            metrics,
            scraped,
            logs,
            clock: seams.clock.clone(),
        }))))
    }

    /// The answer to `GET /metrics`: what was measured so far, for Prometheus.
    pub fn scrape(&self) -> Response<String> {
        let scraped = self.0.as_ref().map(|taking| taking.scraped.clone());
        scraped.unwrap_or_default().answer()
    }

    /// Begins an operation named `name` as part of what `parent` is part of.
    pub fn begin(
        &self,
        parent: &TraceContext,
        kind: SpanKind,
        name: impl Into<Cow<'static, str>>,
        attributes: impl IntoIterator<Item = KeyValue>,
    ) -> Operation {
        let tracer = self.0.as_ref().and_then(|taking| taking.traces.as_ref());
        let (Some((tracer, _)), Some(now)) = (tracer, self.now()) else {
            return Operation::new(self.clone(), parent.clone(), false);
        };
        let builder = SpanBuilder::from_name(name)
            .with_kind(kind)
            .with_start_time(now)
            .with_attributes(attributes);
        let span = tracer.build_with_context(builder, &parent.0);
        Operation::new(self.clone(), TraceContext(parent.0.with_span(span)), true)
    }

    /// A count of operations as `counter` and how long they took, in milliseconds, as `duration`, both with
    /// the label `success`: the form that dashboards for KAOS know.
    pub fn measure(&self, counter: &'static str, duration: &'static str) -> Measure {
        Measure::kaos(&self.meter(), counter, duration)
    }

    /// How long operations took, in seconds, as `name`, with the label `error.type` where they failed: the form
    /// of OpenTelemetry's conventions, which also say the upper bounds of the buckets.
    pub fn duration(&self, name: &'static str, bounds: &[f64]) -> Measure {
        Measure::conventional(&self.meter(), name, bounds)
    }

    /// What makes any other instrument.
    pub fn meter(&self) -> Meter {
        match &self.0 {
            Some(taking) => taking.meter.clone(),
            None => NoopMeterProvider::new().meter(SCOPE),
        }
    }

    /// The time of spans; `None` where there are none.
    pub(crate) fn now(&self) -> Option<SystemTime> {
        self.0.as_ref().map(|taking| taking.clock.now().into())
    }

    /// Sends what has not been sent yet, for at most 2 s, and nothing after that.
    pub async fn shutdown(&self) {
        let Some(taking) = &self.0 else { return };
        let traces = taking.traces.as_ref().map(|(_, provider)| provider.clone());
        let (metrics, logs) = (taking.metrics.clone(), taking.logs.clone());
        // Threads of their own: all block, the runtime would wait for its own at its end, and a collector
        // that does not take the one must not keep the others from being sent.
        let ends = async {
            tokio::join!(
                ended(move || traces.map(|provider| provider.shutdown_with_timeout(FLUSH))),
                ended(move || metrics.shutdown_with_timeout(FLUSH)),
                ended(move || logs.map(|provider| provider.shutdown_with_timeout(FLUSH))),
            )
        };
        if timeout(FLUSH, ends).await.is_err() {
            tracing::warn!(
                "the last traces, metrics and logs could not be sent within {} s",
                FLUSH.as_secs()
            );
        }
    }
}

impl fmt::Debug for Telemetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() {
            "Telemetry(on)"
        } else {
            "Telemetry(off)"
        })
    }
}

/// Runs `work` on a thread, and ends when it does. That it failed was told by the exporter.
async fn ended<T>(work: impl FnOnce() -> T + Send + 'static) {
    let (done, ends) = oneshot::channel::<()>();
    let run = move || {
        work();
        drop(done);
    };
    if thread::Builder::new()
        .name("telemetry-flush".to_owned())
        .spawn(run)
        .is_ok()
    {
        // The error is the signal.
        let _ = ends.await;
    }
}
