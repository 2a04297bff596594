//! Log lines are those of the process, so that this is the one test in it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use kaos_seams::Seams;
use kaos_telemetry::{Export, Kind, LogFormat, Logging, Telemetry, TraceContext, collector::Collector};

#[tokio::test]
async fn log_lines_are_sent_with_the_trace_that_they_are_written_in() {
    kaos_telemetry::init(&Logging {
        filter: Some("info".to_owned()),
        format: LogFormat::Text,
    })
    .unwrap();
    tracing::info!("before anything is sent");
    let collector = Collector::start().await;
    let variables = [
        ("OTEL_SERVICE_NAME", "ada"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint()),
    ];
    let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let export = Export::from_env(variables).unwrap();
    let telemetry = Telemetry::start(export.as_ref(), &Seams::system()).unwrap();

    let work = telemetry.begin(&TraceContext::default(), Kind::Internal, "work", []);
    let place = work.ids().unwrap();
    let within = async {
        tokio::task::yield_now().await;
        tracing::warn!(tool = "add", calls = 2, "slow");
        tracing::debug!("not asked for");
        tracing::info!(target: "h2::client", "of sending");
    };
    work.context().attach(within).await;
    work.succeed();
    tracing::info!("outside");
    telemetry.shutdown().await;

    let lines = collector.lines();
    let texts: Vec<&str> = lines.iter().map(|line| line.text.as_str()).collect();
    assert_eq!(texts, ["slow", "outside"]);
    let [slow, outside] = &lines[..] else {
        panic!("{lines:?}")
    };
    assert_eq!((&slow.trace, &slow.span), (&place.trace_id, &place.span_id));
    assert_eq!((slow.service.as_str(), slow.level.as_str()), ("ada", "WARN"));
    assert_eq!(slow.attributes["tool"], "add");
    assert_eq!(slow.attributes["calls"], "2");
    assert_eq!(slow.attributes["logger_name"], "logs");
    assert_eq!((outside.trace.as_str(), outside.span.as_str()), ("", ""));
    assert_eq!(collector.spans()[0].id, place.span_id);
}
