//! Something that takes time and succeeds or fails: a span, and where it is measured, a count and a duration.

use std::{fmt::Display, time::Duration};

use opentelemetry::{
    KeyValue, Value,
    metrics::{Counter, Histogram, Meter},
    trace::{Status, TraceContextExt},
};
use tokio::time::Instant;

pub use opentelemetry::trace::SpanKind as Kind;

use crate::{
    context::{Ids, TraceContext},
    telemetry::Telemetry,
};

/// The upper bounds of the buckets of durations, in milliseconds: those that OpenTelemetry has by default, and
/// some beyond, because models take longer than web pages.
const BOUNDS: [f64; 18] = [
    0.0, 5.0, 10.0, 25.0, 50.0, 75.0, 100.0, 250.0, 500.0, 750.0, 1000.0, 2500.0, 5000.0, 7500.0, 10_000.0,
    30_000.0, 60_000.0, 120_000.0,
];

/// What is said of an operation that nobody waited for until its end.
const CANCELLED: &str = "cancelled";
/// By what attribute it is said which of few kinds of error there was.
const ERROR: &str = "error.type";
/// How much of a reason is sent, in characters: it may quote what a server or a tool said.
const REASON: usize = 500;

/// Where operations of one kind are measured. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Measure {
    duration: Histogram<f64>,
    form: Form,
}

#[derive(Clone, Debug)]
enum Form {
    /// As dashboards for KAOS know it: a count beside the duration, milliseconds, and whether it succeeded.
    Kaos(Counter<u64>),
    /// As OpenTelemetry's conventions have it: seconds, and of those that failed the kind of error. The
    /// duration's own count is all the counting there is.
    Conventional,
}

impl Measure {
    pub(crate) fn kaos(meter: &Meter, counter: &'static str, duration: &'static str) -> Self {
        Self {
            // Without a unit: where Prometheus is asked, the unit 1 would be taken for that of a ratio.
            form: Form::Kaos(meter.u64_counter(counter).build()),
            duration: meter
                .f64_histogram(duration)
                .with_unit("ms")
                .with_boundaries(BOUNDS.to_vec())
                .build(),
        }
    }

    pub(crate) fn conventional(meter: &Meter, duration: &'static str, bounds: &[f64]) -> Self {
        Self {
            form: Form::Conventional,
            duration: meter
                .f64_histogram(duration)
                .with_unit("s")
                .with_boundaries(bounds.to_vec())
                .build(),
        }
    }

    fn record(&self, mut labels: Vec<KeyValue>, took: Duration, error: Option<&'static str>) {
        match &self.form {
            Form::Kaos(counter) => {
                let success = if error.is_none() { "true" } else { "false" };
                labels.push(KeyValue::new("success", success));
                counter.add(1, &labels);
                self.duration.record(took.as_secs_f64() * 1000.0, &labels);
            }
            Form::Conventional => {
                labels.extend(error.map(|kind| KeyValue::new(ERROR, kind)));
                self.duration.record(took.as_secs_f64(), &labels);
            }
        }
    }
}

/// An operation that has begun. It ends when it is dropped, as cancelled unless it said before how it ended.
#[derive(Debug)]
#[must_use = "an operation ends when it is dropped"]
pub struct Operation {
    telemetry: Telemetry,
    context: TraceContext,
    /// Whether the context is that of a span of this operation, and not of what it is part of.
    traced: bool,
    began: Instant,
    measures: Vec<(Measure, Vec<KeyValue>)>,
    /// How it ended: the kind of error, if it did not succeed.
    end: Option<Result<(), &'static str>>,
}

impl Operation {
    pub(crate) fn new(telemetry: Telemetry, context: TraceContext, traced: bool) -> Self {
        Self {
            telemetry,
            context,
            traced,
            began: Instant::now(),
            measures: Vec::new(),
            end: None,
        }
    }

    /// Has it measured by `measure`, once it has ended, with `labels` and how it ended. Measures add up.
    pub fn measured(mut self, measure: &Measure, labels: impl IntoIterator<Item = KeyValue>) -> Self {
        self.measures
            .push((measure.clone(), labels.into_iter().collect()));
        self
    }

    /// The context of what it is made of, in this process and in others.
    pub fn context(&self) -> &TraceContext {
        &self.context
    }

    /// Where its span is found; `None` where it has none.
    pub fn ids(&self) -> Option<Ids> {
        self.context.ids().filter(|_| self.traced)
    }

    /// Says more of it.
    pub fn set(&self, key: &'static str, value: impl Into<Value>) {
        if self.traced {
            self.context.0.span().set_attribute(KeyValue::new(key, value));
        }
    }

    /// Says more of it, where there is more to say.
    pub fn set_some(&self, key: &'static str, value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            self.set(key, value);
        }
    }

    /// Ends it: it succeeded.
    pub fn succeed(mut self) {
        self.end = Some(Ok(()));
    }

    /// Ends it: it failed for `reason`, an error of the `kind`, which is one of few.
    pub fn fail(mut self, kind: &'static str, reason: impl Display) {
        self.failed(kind, &reason);
    }

    fn failed(&mut self, kind: &'static str, reason: &dyn Display) {
        self.end = Some(Err(kind));
        if self.traced {
            let span = self.context.0.span();
            span.set_attribute(KeyValue::new(ERROR, kind));
            span.set_status(Status::error(
                reason.to_string().chars().take(REASON).collect::<String>(),
            ));
        }
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        if self.end.is_none() {
            self.failed(CANCELLED, &"nobody waited for the end");
        }
        if self.traced
            && let Some(now) = self.telemetry.now()
        {
            self.context.0.span().end_with_timestamp(now);
        }
        let error = self.end.and_then(Result::err);
        for (measure, labels) in std::mem::take(&mut self.measures) {
            measure.record(labels, self.began.elapsed(), error);
        }
    }
}
