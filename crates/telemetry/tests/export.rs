//! What is sent to a collector, and what becomes of a role whose collector is not there.
//!
//! OpenTelemetry sends on threads of its own, which no test can pause: these tests use real time, within bounds.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use futures::FutureExt;
use http::HeaderMap;
use kaos_seams::Seams;
use kaos_telemetry::{Export, KeyValue, Kind, Telemetry, TraceContext, collector::Collector};
use tokio::net::TcpListener;

/// Long enough for a loaded machine.
const LONG: Duration = Duration::from_secs(60);

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

fn export(endpoint: &str, more: &[(&str, &str)]) -> Option<Export> {
    let variables = [
        ("OTEL_SDK_DISABLED", "false"),
        ("OTEL_SERVICE_NAME", "ada"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint),
        (
            "OTEL_RESOURCE_ATTRIBUTES",
            "service.namespace=default,kaos.resource.name=ada",
        ),
    ];
    let variables: BTreeMap<&str, &str> = variables.iter().chain(more).copied().collect();
    let variables = variables
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
    Export::from_env(variables).unwrap()
}

fn started(export: Option<Export>) -> Telemetry {
    Telemetry::start(export.as_ref(), &Seams::system()).unwrap()
}

fn incoming() -> TraceContext {
    TraceContext::of_headers(&HeaderMap::from_iter([(
        "traceparent".parse().unwrap(),
        PARENT.parse().unwrap(),
    )]))
}

/// An operation with a part that fails, and another that nobody waits for.
fn work(telemetry: &Telemetry) {
    let measure = telemetry.measure("test.calls", "test.duration");
    let label = || [KeyValue::new("tool", "add")];
    let whole = telemetry.begin(&incoming(), Kind::Server, "whole", [KeyValue::new("size", 3)]);
    let part = telemetry
        .begin(whole.context(), Kind::Client, "part", [])
        .measured(&measure, label());
    part.fail("refused", "no");
    let left = telemetry
        .begin(whole.context(), Kind::Internal, "left", [])
        .measured(&measure, label());
    drop(left);
    telemetry
        .begin(whole.context(), Kind::Internal, "done", [])
        .measured(&measure, label())
        .succeed();
    whole.set("more", true);
    whole.succeed();
}

#[tokio::test]
async fn operations_are_sent_with_who_did_them_and_what_they_are_part_of() {
    let collector = Collector::start().await;
    let telemetry = started(export(collector.endpoint(), &[]));
    work(&telemetry);
    telemetry.shutdown().await;

    let spans = collector.spans();
    let span = |name: &str| spans.iter().find(|span| span.name == name).unwrap();
    let whole = span("whole");
    assert_eq!(whole.trace, "0af7651916cd43dd8448eb211c80319c");
    assert_eq!(whole.parent, "b7ad6b7169203331");
    assert_eq!((whole.kind.as_str(), whole.error.as_deref()), ("server", None));
    assert_eq!(
        (
            whole.attributes["size"].as_str(),
            whole.attributes["more"].as_str()
        ),
        ("3", "true")
    );
    for (key, value) in [
        ("service.name", "ada"),
        ("service.namespace", "default"),
        ("kaos.resource.name", "ada"),
        ("telemetry.sdk.language", "rust"),
    ] {
        assert_eq!(whole.resource[key], value);
    }
    assert_eq!(whole.resource["service.instance.id"].len(), 36);
    for (name, kind, error, why) in [
        ("part", "client", Some("refused"), Some("no")),
        (
            "left",
            "internal",
            Some("cancelled"),
            Some("nobody waited for the end"),
        ),
        ("done", "internal", None, None),
    ] {
        let span = span(name);
        assert_eq!((span.kind.as_str(), &span.parent), (kind, &whole.id), "{name}");
        assert_eq!(span.error.as_deref(), why, "{name}");
        assert_eq!(
            span.attributes.get("error.type").map(String::as_str),
            error,
            "{name}"
        );
        assert!(
            whole.times.0 <= span.times.0 && span.times.0 <= span.times.1 && span.times.1 <= whole.times.1
        );
    }
    assert_eq!(spans.len(), 4);

    let mut counts: Vec<_> = collector
        .points()
        .into_iter()
        .map(|point| {
            let labels: Vec<String> = point
                .labels
                .iter()
                .map(|(key, value)| format!("{key}={value}"))
                .collect();
            format!(
                "{} {} {} {}",
                point.metric,
                point.unit,
                labels.join(","),
                point.count
            )
        })
        .collect();
    counts.sort();
    let expected = [
        "test.calls  success=false,tool=add 2",
        "test.calls  success=true,tool=add 1",
        "test.duration ms success=false,tool=add 2",
        "test.duration ms success=true,tool=add 1",
    ];
    assert_eq!(counts, expected);
}

#[tokio::test]
async fn an_encrypted_collector_is_trusted_by_its_certificate_only() {
    kaos_telemetry::install_crypto_provider();
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
    let certificate = certificate.self_signed(&key).unwrap().pem();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &certificate).unwrap();
    let file = file.path().to_str().unwrap();
    for (trusted, spans, points) in [(true, 4, 4), (false, 0, 0)] {
        let collector = Collector::start_tls(&certificate, &key.serialize_pem()).await;
        let trust = [("OTEL_EXPORTER_OTLP_CERTIFICATE", if trusted { file } else { "" })];
        let telemetry = started(export(collector.endpoint(), &trust));
        work(&telemetry);
        telemetry.shutdown().await;
        assert_eq!(
            (collector.spans().len(), collector.points().len()),
            (spans, points)
        );
    }
    let missing = export(
        "https://otel:4317",
        &[("OTEL_EXPORTER_OTLP_CERTIFICATE", "/no/such.pem")],
    );
    let error = Telemetry::start(missing.as_ref(), &Seams::system()).unwrap_err();
    assert!(error.to_string().contains("/no/such.pem"), "{error}");
}

#[tokio::test]
async fn what_is_measured_can_be_read_whether_or_not_it_is_sent() {
    let collector = Collector::start().await;
    for export in [None, export(collector.endpoint(), &[])] {
        let telemetry = started(export);
        work(&telemetry);
        let duration = telemetry.duration("test.work.duration", &[0.5, 60.0]);
        let begun = |name: &'static str| telemetry.begin(&TraceContext::default(), Kind::Internal, name, []);
        begun("well").measured(&duration, []).succeed();
        begun("badly").measured(&duration, []).fail("refused", "no");
        telemetry
            .meter()
            .i64_up_down_counter("test.open")
            .build()
            .add(2, &[KeyValue::new("odd label", "a \"b\"\n")]);
        let answer = telemetry.scrape();
        assert_eq!(answer.status(), 200);
        assert_eq!(answer.headers()["content-type"], "text/plain; version=0.0.4");
        let lines: Vec<&str> = answer.body().lines().collect();
        for line in [
            "# TYPE test_calls_total counter",
            r#"test_calls_total{success="false",tool="add"} 2"#,
            r#"test_calls_total{success="true",tool="add"} 1"#,
            r#"test_duration_milliseconds_count{success="false",tool="add"} 2"#,
            "# TYPE test_work_duration_seconds histogram",
            r#"test_work_duration_seconds_bucket{le="60"} 1"#,
            r#"test_work_duration_seconds_count{error_type="refused"} 1"#,
            "# TYPE test_open gauge",
            r#"test_open{odd_label="a \"b\"\n"} 2"#,
        ] {
            assert!(lines.contains(&line), "{line}\nis not in\n{}", answer.body());
        }
        telemetry.shutdown().await;
    }
    let nothing = Telemetry::off().scrape();
    assert_eq!((nothing.status().as_u16(), nothing.body().as_str()), (200, ""));
}

#[tokio::test]
async fn each_signal_can_be_left_out() {
    let collector = Collector::start().await;
    let telemetry = started(export(collector.endpoint(), &[("OTEL_TRACES_EXPORTER", "none")]));
    work(&telemetry);
    telemetry.shutdown().await;
    assert_eq!((collector.spans().len(), collector.points().len()), (0, 4));

    let collector = Collector::start().await;
    let telemetry = started(export(collector.endpoint(), &[("OTEL_METRICS_EXPORTER", "none")]));
    work(&telemetry);
    telemetry.shutdown().await;
    assert_eq!((collector.spans().len(), collector.points().len()), (4, 0));
}

#[tokio::test]
async fn what_is_off_connects_nowhere_and_passes_contexts_on() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let telemetry = started(export(&endpoint, &[("OTEL_SDK_DISABLED", "true")]));
    work(&telemetry);
    let operation = telemetry.begin(&incoming(), Kind::Client, "x", []);
    assert_eq!(operation.context().headers()["traceparent"], PARENT);
    assert_eq!(operation.ids(), None);
    drop(operation);
    telemetry.shutdown().await;
    assert!(listener.accept().now_or_never().is_none());
}

#[tokio::test]
async fn a_collector_that_is_down_or_stuck_costs_nobody_any_time() {
    let down = TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap();
    // Takes connections, and says nothing.
    let stuck = TcpListener::bind("127.0.0.1:0").await.unwrap();
    for address in [down, stuck.local_addr().unwrap()] {
        let telemetry = started(export(&format!("http://{address}"), &[]));
        let begin = Instant::now();
        // More than wait in the queue.
        for _ in 0..2000 {
            work(&telemetry);
        }
        // Had each waited for the collector, it would have been hours.
        assert!(begin.elapsed() < LONG, "{:?}", begin.elapsed());
        let begin = Instant::now();
        telemetry.shutdown().await;
        assert!(begin.elapsed() < LONG, "{:?}", begin.elapsed());
    }
}
