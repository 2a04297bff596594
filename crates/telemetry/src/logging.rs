//! Logs go to standard error, one line each, as text or JSON; standard output belongs to the command. A line that
//! is written in a trace names it and the span.

use std::{
    fmt::{self, Write as _},
    io::IsTerminal,
    str::FromStr,
};

use tracing::{Event, Subscriber};
use tracing_subscriber::{
    EnvFilter, Layer,
    filter::{Directive, LevelFilter},
    fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter, format, format::Writer},
    layer::SubscriberExt,
    registry::LookupSpan,
    util::SubscriberInitExt,
};

use crate::{context, context::Ids, install_crypto_provider, logs::Sent};

/// How log lines are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line, for collectors.
    Json,
}

/// A text that names no log format.
#[derive(Debug, thiserror::Error)]
#[error("log format {0:?} is not known; use text or json")]
pub struct UnknownFormat(String);

impl FromStr for LogFormat {
    type Err = UnknownFormat;

    fn from_str(text: &str) -> Result<Self, UnknownFormat> {
        match text.trim().to_ascii_lowercase().as_str() {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err(UnknownFormat(text.to_owned())),
        }
    }
}

/// What a role logs.
#[derive(Clone, Debug, Default)]
pub struct Logging {
    /// A level (`INFO`, `debug`) or a filter of `tracing-subscriber` (`info,kaos_node=debug`). `None`: `warn`.
    pub filter: Option<String>,
    /// The form of each line.
    pub format: LogFormat,
}

/// A log filter that cannot be parsed.
#[derive(Debug, thiserror::Error)]
#[error(
    "log filter {value:?} is not valid: {reason}; use a level such as info or debug, or target=level pairs"
)]
pub struct InvalidFilter {
    value: String,
    reason: String,
}

/// Sets up logging and the crypto provider for this process. Call once, first.
///
/// # Errors
/// When the filter cannot be parsed. The crypto provider is installed all the same.
pub fn init(logging: &Logging) -> Result<(), InvalidFilter> {
    install_crypto_provider();
    let value = logging.filter.clone().unwrap_or_else(|| "warn".to_owned());
    let filter = parse_filter(&value)?;
    let colours = std::io::stderr().is_terminal();
    // An error means that a test harness has set up logging before us.
    let _ = tracing_subscriber::registry()
        .with(filter)
        .with(lines(logging.format, std::io::stderr, colours))
        .with(Sent)
        .try_init();
    Ok(())
}

/// What writes each line in `format` to `writer`.
fn lines<S, W>(format: LogFormat, writer: W, colours: bool) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let layer = tracing_subscriber::fmt::layer()
        .with_writer(writer)
        .with_ansi(colours);
    match format {
        LogFormat::Text => layer
            .event_format(Placed {
                inner: format::Format::default().with_ansi(colours),
                place: |line, place| write!(line, " trace_id={} span_id={}", place.trace_id, place.span_id),
            })
            .boxed(),
        LogFormat::Json => layer
            .json()
            .event_format(Placed {
                inner: format::Format::default().json(),
                place: |line, place| {
                    let object = line.strip_suffix('}').map(str::len);
                    line.truncate(object.unwrap_or(line.len()));
                    let Ids { trace_id, span_id } = place;
                    write!(line, r#","trace_id":"{trace_id}","span_id":"{span_id}"}}"#)
                },
            })
            .boxed(),
    }
}

/// A format with the place in a trace in which a line is written.
struct Placed<F> {
    inner: F,
    /// Adds the place to a line.
    place: fn(&mut String, &Ids) -> fmt::Result,
}

impl<S, N, F> FormatEvent<S, N> for Placed<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let Some(place) = context::current() else {
            return self.inner.format_event(context, writer, event);
        };
        let mut line = String::new();
        self.inner.format_event(context, Writer::new(&mut line), event)?;
        let end = line.strip_suffix('\n').map_or(line.len(), str::len);
        line.truncate(end);
        (self.place)(&mut line, &place)?;
        writeln!(writer, "{line}")
    }
}

fn parse_filter(value: &str) -> Result<EnvFilter, InvalidFilter> {
    let invalid = |reason: String| InvalidFilter {
        value: value.to_owned(),
        reason,
    };
    let mut filter = EnvFilter::new("");
    // A plain level is meant for this project's own words. These libraries write about errors that we handle
    // and report ourselves, rmcp several lines for each request, and OpenTelemetry about each of its parts.
    if value
        .trim()
        .parse()
        .is_ok_and(|level: LevelFilter| level <= LevelFilter::INFO)
    {
        for quiet in ["rmcp=off", "kube_client=off", "opentelemetry=off"] {
            filter = filter.add_directive(quiet.parse().map_err(|e| invalid(format!("{e}")))?);
        }
    }
    for part in value.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        // A lone word that is no level would be taken for a target, and silence everything else.
        if !part.contains(['=', '[']) && part.parse::<LevelFilter>().is_err() {
            return Err(invalid(format!("{part:?} is not a level")));
        }
        let directive: Directive = part.parse().map_err(|e| invalid(format!("{e}")))?;
        filter = filter.add_directive(directive);
    }
    Ok(filter)
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;
    use crate::{TraceContext, testing::Log};

    /// A line in no trace, one in a trace, and one in none again.
    fn written(format: LogFormat) -> Vec<String> {
        let log = Log::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::registry().with(lines(format, move || writer.clone(), false));
        let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let trace = TraceContext::read(|field| (field == "traceparent").then(|| parent.to_owned()));
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!("before");
            let within = trace.attach(async { tracing::warn!(tool = "add", "within {{}}") });
            within.now_or_never().unwrap();
            tracing::info!("after");
        });
        log.text().lines().map(str::to_owned).collect()
    }

    #[test]
    fn a_line_of_text_names_the_trace_that_it_is_written_in() {
        let lines = written(LogFormat::Text);
        assert_eq!(lines.len(), 3, "{lines:?}");
        assert!(
            !lines[0].contains("trace_id") && !lines[2].contains("trace_id"),
            "{lines:?}"
        );
        let end = "within {} tool=\"add\" trace_id=0af7651916cd43dd8448eb211c80319c span_id=b7ad6b7169203331";
        assert!(lines[1].ends_with(end), "{lines:?}");
    }

    #[test]
    fn a_line_of_json_names_the_trace_that_it_is_written_in() {
        let lines = written(LogFormat::Json);
        let read = |line: &String| serde_json::from_str::<serde_json::Value>(line).unwrap();
        let lines: Vec<_> = lines.iter().map(read).collect();
        assert_eq!(lines.len(), 3, "{lines:?}");
        assert!(lines[0].get("trace_id").is_none() && lines[2].get("trace_id").is_none());
        assert_eq!(lines[1]["trace_id"], "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(lines[1]["span_id"], "b7ad6b7169203331");
        assert_eq!(lines[1]["fields"]["message"], "within {}");
        assert_eq!(lines[1]["fields"]["tool"], "add");
    }

    #[test]
    fn formats_are_known_by_name() {
        assert_eq!("JSON".parse::<LogFormat>().unwrap(), LogFormat::Json);
        assert_eq!("text".parse::<LogFormat>().unwrap(), LogFormat::Text);
        let error = "xml".parse::<LogFormat>().unwrap_err().to_string();
        assert_eq!(error, "log format \"xml\" is not known; use text or json");
    }

    #[test]
    fn levels_in_any_case_and_targets_are_filters() {
        for good in ["INFO", "debug", "info,kaos_node=trace", "off"] {
            assert!(parse_filter(good).is_ok(), "{good}");
        }
        let error = parse_filter("loud").unwrap_err().to_string();
        assert!(error.contains("\"loud\""), "{error}");
    }
}
