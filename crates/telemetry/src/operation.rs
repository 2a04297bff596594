//! Something that takes time and succeeds or fails: a span, and where it is measured, a count and a duration.

use std::fmt::Display;

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
/// How much of a reason is sent, in characters: it may quote what a server or a tool said.
const REASON: usize = 500;

/// A count of operations and how long they took. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Measure(Option<(Counter<u64>, Histogram<f64>)>);

impl Measure {
    pub(crate) fn new(meter: Option<&Meter>, counter: &'static str, duration: &'static str) -> Self {
        Self(meter.map(|meter| {
            let counter = meter.u64_counter(counter).with_unit("1").build();
            let duration = meter
                .f64_histogram(duration)
                .with_unit("ms")
                .with_boundaries(BOUNDS.to_vec())
                .build();
            (counter, duration)
        }))
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
    measures: Option<(Measure, Vec<KeyValue>)>,
    succeeded: Option<bool>,
}

impl Operation {
    pub(crate) fn new(telemetry: Telemetry, context: TraceContext, traced: bool) -> Self {
        Self {
            telemetry,
            context,
            traced,
            began: Instant::now(),
            measures: None,
            succeeded: None,
        }
    }

    /// Has it counted by `measure`, once, with `labels` and whether it succeeded.
    pub fn measured(mut self, measure: &Measure, labels: impl IntoIterator<Item = KeyValue>) -> Self {
        self.measures = measure
            .0
            .is_some()
            .then(|| (measure.clone(), labels.into_iter().collect()));
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
        self.succeeded = Some(true);
    }

    /// Ends it: it failed for `reason`, an error of the `kind`, which is one of few.
    pub fn fail(mut self, kind: &'static str, reason: impl Display) {
        self.failed(kind, &reason);
    }

    fn failed(&mut self, kind: &'static str, reason: &dyn Display) {
        self.succeeded = Some(false);
        if self.traced {
            let span = self.context.0.span();
            span.set_attribute(KeyValue::new("error.type", kind));
            span.set_status(Status::error(
                reason.to_string().chars().take(REASON).collect::<String>(),
            ));
        }
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        if self.succeeded.is_none() {
            self.failed(CANCELLED, &"nobody waited for the end");
        }
        if self.traced
            && let Some(now) = self.telemetry.now()
        {
            self.context.0.span().end_with_timestamp(now);
        }
        if let Some((Measure(Some((counter, duration))), mut labels)) = self.measures.take() {
            let success = if self.succeeded == Some(true) {
                "true"
            } else {
                "false"
            };
            labels.push(KeyValue::new("success", success));
            counter.add(1, &labels);
            duration.record(self.began.elapsed().as_secs_f64() * 1000.0, &labels);
        }
    }
}
