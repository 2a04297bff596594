//! What a role measures itself by.

use std::{
    borrow::Cow,
    fmt, fs, io,
    path::PathBuf,
    sync::Arc,
    thread,
    time::{Duration, SystemTime},
};

use kaos_seams::{Clock, Seams};
use opentelemetry::{
    KeyValue,
    metrics::{Meter, MeterProvider as _},
    trace::{SpanBuilder, SpanKind, TraceContextExt, Tracer as _, TracerProvider as _},
};
use opentelemetry_sdk::{
    metrics::SdkMeterProvider,
    trace::{SdkTracer, SdkTracerProvider},
};
use tokio::{sync::oneshot, time::timeout};

use crate::{
    context::TraceContext,
    export,
    operation::{Measure, Operation},
    settings::Export,
};

/// What spans and metrics name as their origin.
const SCOPE: &str = "kaos";
/// How long a shutdown waits for what has not been sent yet.
const FLUSH: Duration = Duration::from_secs(2);

/// Takes traces and metrics, and sends them where [`Export`] says. Cheap to clone.
#[derive(Clone, Default)]
pub struct Telemetry(Option<Arc<Sending>>);

struct Sending {
    traces: Option<(SdkTracer, SdkTracerProvider)>,
    metrics: Option<(Meter, SdkMeterProvider)>,
    clock: Arc<dyn Clock>,
}

/// Nothing can be sent.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// OpenTelemetry cannot set up what its variables say.
    #[error("traces and metrics cannot be sent: {0}")]
    Exporter(#[from] opentelemetry_otlp::ExporterBuildError),
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
    /// One that sends nothing.
    pub fn off() -> Self {
        Self(None)
    }

    /// One that sends as `export` says, in the background. Does not wait for a connection. Call it within the
    /// runtime that is to carry the connection, and [`shutdown`](Self::shutdown) before that ends.
    ///
    /// # Errors
    /// If OpenTelemetry finds its variables malformed, or the collector's certificates cannot be read.
    pub fn start(export: Option<&Export>, seams: &Seams) -> Result<Self, StartError> {
        let Some(export) = export else {
            return Ok(Self::off());
        };
        let resource = export::resource(export, &*seams.random);
        let read = |path: &PathBuf| {
            fs::read(path).map_err(|reason| StartError::Certificate {
                path: path.clone(),
                reason,
            })
        };
        let tls = export::tls(export.certificate.as_ref().map(read).transpose()?);
        let traces = match &export.traces {
            Some(endpoint) => {
                let provider = export::traces(endpoint, tls.clone(), resource.clone(), seams.random.clone())?;
                Some((provider.tracer(SCOPE), provider))
            }
            None => None,
        };
        let metrics = match &export.metrics {
            Some(endpoint) => {
                let provider = export::metrics(endpoint, tls, resource)?;
                Some((provider.meter(SCOPE), provider))
            }
            None => None,
        };
        Ok(Self(Some(Arc::new(Sending {
            traces,
            metrics,
            clock: seams.clock.clone(),
        }))))
    }

    /// Begins an operation named `name` as part of what `parent` is part of.
    pub fn begin(
        &self,
        parent: &TraceContext,
        kind: SpanKind,
        name: impl Into<Cow<'static, str>>,
        attributes: impl IntoIterator<Item = KeyValue>,
    ) -> Operation {
        let tracer = self.0.as_ref().and_then(|sending| sending.traces.as_ref());
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

    /// A count of operations as `counter` and how long they took, in milliseconds, as `duration`.
    pub fn measure(&self, counter: &'static str, duration: &'static str) -> Measure {
        let metrics = self.0.as_ref().and_then(|sending| sending.metrics.as_ref());
        Measure::new(metrics.map(|(meter, _)| meter), counter, duration)
    }

    /// The time of spans; `None` where there are none.
    pub(crate) fn now(&self) -> Option<SystemTime> {
        self.0.as_ref().map(|sending| sending.clock.now().into())
    }

    /// Sends what has not been sent yet, for at most 2 s, and nothing after that.
    pub async fn shutdown(&self) {
        let Some(sending) = &self.0 else { return };
        let (traces, metrics) = (
            sending.traces.as_ref().map(|(_, provider)| provider.clone()),
            sending.metrics.as_ref().map(|(_, provider)| provider.clone()),
        );
        // Threads of their own: both block, the runtime would wait for its own at its end, and a collector
        // that does not take the one must not keep the other from being sent.
        let ends = async {
            tokio::join!(
                ended(move || traces.map(|provider| provider.shutdown_with_timeout(FLUSH))),
                ended(move || metrics.map(|provider| provider.shutdown_with_timeout(FLUSH))),
            )
        };
        if timeout(FLUSH, ends).await.is_err() {
            tracing::warn!(
                "the last traces and metrics could not be sent within {} s",
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
