//! An OTLP collector that keeps what it receives, for tests.

// A test that cannot go on should panic, in its helpers as well.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use opentelemetry_proto::tonic::{
    collector::{
        logs::v1::{
            ExportLogsServiceRequest, ExportLogsServiceResponse,
            logs_service_server::{LogsService, LogsServiceServer},
        },
        metrics::v1::{
            ExportMetricsServiceRequest, ExportMetricsServiceResponse,
            metrics_service_server::{MetricsService, MetricsServiceServer},
        },
        trace::v1::{
            ExportTraceServiceRequest, ExportTraceServiceResponse,
            trace_service_server::{TraceService, TraceServiceServer},
        },
    },
    common::v1::{AnyValue, KeyValue, any_value},
    logs::v1::LogRecord,
    metrics::v1::{Metric, metric::Data, number_data_point},
    resource::v1::Resource,
    trace::v1::{Span, span::SpanKind},
};
use tokio::{net::TcpListener, task::JoinHandle};
use tonic::{
    Request, Response, Status,
    transport::{Identity, Server, ServerTlsConfig, server::TcpIncoming},
};

/// A running collector, on loopback.
#[derive(Debug)]
pub struct Collector {
    endpoint: String,
    kept: Arc<Mutex<Kept>>,
    task: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Kept {
    spans: Vec<SeenSpan>,
    /// The last of each, as counts grow.
    points: BTreeMap<(String, String, BTreeMap<String, String>), SeenPoint>,
    lines: Vec<SeenLine>,
}

/// A log line as it was received.
#[derive(Clone, Debug)]
pub struct SeenLine {
    /// The service that sent it.
    pub service: String,
    /// The trace, in hexadecimal; empty: none.
    pub trace: String,
    /// The span, in hexadecimal; empty: none.
    pub span: String,
    /// `INFO`, `WARN` and so on.
    pub level: String,
    /// What it says.
    pub text: String,
    /// Its attributes, as text.
    pub attributes: BTreeMap<String, String>,
}

/// A span as it was received.
#[derive(Clone, Debug)]
pub struct SeenSpan {
    /// The service that sent it.
    pub service: String,
    /// What else is said of the service.
    pub resource: BTreeMap<String, String>,
    /// The trace, in hexadecimal.
    pub trace: String,
    /// The span, in hexadecimal.
    pub id: String,
    /// What it is part of, in hexadecimal; empty: nothing.
    pub parent: String,
    /// Its name.
    pub name: String,
    /// Its kind, in lower case.
    pub kind: String,
    /// Its attributes, as text.
    pub attributes: BTreeMap<String, String>,
    /// Why it failed.
    pub error: Option<String>,
    /// When it began and ended, in nanoseconds since the epoch.
    pub times: (u64, u64),
}

/// How often something was measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenPoint {
    /// The service that sent it.
    pub service: String,
    /// The metric.
    pub metric: String,
    /// Its unit.
    pub unit: String,
    /// The labels of this count.
    pub labels: BTreeMap<String, String>,
    /// How often.
    pub count: u64,
}

impl Collector {
    /// Starts one.
    pub async fn start() -> Self {
        Self::serving("http", Server::builder()).await
    }

    /// Starts one that proves to be `localhost` by `certificate` and `key`, in PEM.
    pub async fn start_tls(certificate: &str, key: &str) -> Self {
        let tls = ServerTlsConfig::new().identity(Identity::from_pem(certificate, key));
        Self::serving("https", Server::builder().tls_config(tls).unwrap()).await
    }

    async fn serving(scheme: &str, mut server: Server) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let endpoint = format!("{scheme}://localhost:{port}");
        let kept = Arc::new(Mutex::new(Kept::default()));
        let serving = server
            .add_service(TraceServiceServer::new(Keeper(kept.clone())))
            .add_service(MetricsServiceServer::new(Keeper(kept.clone())))
            .add_service(LogsServiceServer::new(Keeper(kept.clone())))
            .serve_with_incoming(TcpIncoming::from(listener));
        let task = tokio::spawn(async move { serving.await.unwrap() });
        Self { endpoint, kept, task }
    }

    /// Where it is.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// The spans that it was sent.
    pub fn spans(&self) -> Vec<SeenSpan> {
        self.kept.lock().unwrap().spans.clone()
    }

    /// The log lines that it was sent.
    pub fn lines(&self) -> Vec<SeenLine> {
        self.kept.lock().unwrap().lines.clone()
    }

    /// What was measured, each as it was sent last.
    pub fn points(&self) -> Vec<SeenPoint> {
        self.kept.lock().unwrap().points.values().cloned().collect()
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Keeper(Arc<Mutex<Kept>>);

#[tonic::async_trait]
impl TraceService for Keeper {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let mut kept = self.0.lock().unwrap();
        for of_resource in request.into_inner().resource_spans {
            let resource = resource(of_resource.resource);
            for span in of_resource.scope_spans.into_iter().flat_map(|scope| scope.spans) {
                kept.spans.push(seen(&resource, span));
            }
        }
        Ok(Response::new(Default::default()))
    }
}

#[tonic::async_trait]
impl MetricsService for Keeper {
    async fn export(
        &self,
        request: Request<ExportMetricsServiceRequest>,
    ) -> Result<Response<ExportMetricsServiceResponse>, Status> {
        let mut kept = self.0.lock().unwrap();
        for of_resource in request.into_inner().resource_metrics {
            let resource = resource(of_resource.resource);
            let metrics = of_resource.scope_metrics.into_iter();
            let metrics = metrics.flat_map(|scope| scope.metrics);
            for point in metrics.flat_map(|metric| points(&resource, metric)) {
                let key = (point.metric.clone(), point.service.clone(), point.labels.clone());
                kept.points.insert(key, point);
            }
        }
        Ok(Response::new(Default::default()))
    }
}

#[tonic::async_trait]
impl LogsService for Keeper {
    async fn export(
        &self,
        request: Request<ExportLogsServiceRequest>,
    ) -> Result<Response<ExportLogsServiceResponse>, Status> {
        let mut kept = self.0.lock().unwrap();
        for of_resource in request.into_inner().resource_logs {
            let resource = resource(of_resource.resource);
            for line in of_resource
                .scope_logs
                .into_iter()
                .flat_map(|scope| scope.log_records)
            {
                kept.lines.push(line_of(&resource, line));
            }
        }
        Ok(Response::new(Default::default()))
    }
}

fn line_of(resource: &BTreeMap<String, String>, line: LogRecord) -> SeenLine {
    SeenLine {
        service: resource.get("service.name").cloned().unwrap_or_default(),
        trace: hex(&line.trace_id),
        span: hex(&line.span_id),
        level: line.severity_text,
        text: text(line.body),
        attributes: texts(line.attributes),
    }
}

fn seen(resource: &BTreeMap<String, String>, span: Span) -> SeenSpan {
    let kind = span.kind().as_str_name();
    let prefix = SpanKind::Unspecified.as_str_name().replace("UNSPECIFIED", "");
    let failed = span
        .status
        .as_ref()
        .filter(|status| status.code() == opentelemetry_proto::tonic::trace::v1::status::StatusCode::Error);
    SeenSpan {
        service: resource.get("service.name").cloned().unwrap_or_default(),
        resource: resource.clone(),
        trace: hex(&span.trace_id),
        id: hex(&span.span_id),
        parent: hex(&span.parent_span_id),
        kind: kind.replace(&prefix, "").to_lowercase(),
        error: failed.map(|status| status.message.clone()),
        name: span.name,
        attributes: texts(span.attributes),
        times: (span.start_time_unix_nano, span.end_time_unix_nano),
    }
}

fn points(resource: &BTreeMap<String, String>, metric: Metric) -> Vec<SeenPoint> {
    let counts: Vec<(Vec<KeyValue>, u64)> = match metric.data {
        Some(Data::Sum(sum)) => sum
            .data_points
            .into_iter()
            .map(|point| match point.value {
                Some(number_data_point::Value::AsInt(count)) => {
                    (point.attributes, u64::try_from(count).unwrap())
                }
                other => panic!("{} is {other:?}, which is no count", metric.name),
            })
            .collect(),
        Some(Data::Histogram(histogram)) => histogram
            .data_points
            .into_iter()
            .map(|point| (point.attributes, point.count))
            .collect(),
        other => panic!("{} is {other:?}, which nobody sends", metric.name),
    };
    let seen = counts.into_iter().map(|(labels, count)| SeenPoint {
        service: resource.get("service.name").cloned().unwrap_or_default(),
        metric: metric.name.clone(),
        unit: metric.unit.clone(),
        labels: texts(labels),
        count,
    });
    seen.collect()
}

fn resource(resource: Option<Resource>) -> BTreeMap<String, String> {
    texts(resource.unwrap_or_default().attributes)
}

fn texts(attributes: Vec<KeyValue>) -> BTreeMap<String, String> {
    let pairs = attributes.into_iter().map(|pair| (pair.key, text(pair.value)));
    pairs.collect()
}

fn text(value: Option<AnyValue>) -> String {
    match value.and_then(|value| value.value) {
        Some(any_value::Value::StringValue(text)) => text,
        Some(any_value::Value::BoolValue(value)) => value.to_string(),
        Some(any_value::Value::IntValue(value)) => value.to_string(),
        Some(any_value::Value::DoubleValue(value)) => value.to_string(),
        Some(any_value::Value::ArrayValue(list)) => {
            let texts: Vec<String> = list.values.into_iter().map(|value| text(Some(value))).collect();
            texts.join(",")
        }
        other => panic!("{other:?} is no value that anything sends"),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
