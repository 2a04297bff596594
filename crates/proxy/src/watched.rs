//! What is told of a request: a span for it and one for each upstream that was asked, by the conventions for
//! generative AI (<https://opentelemetry.io/docs/specs/semconv/gen-ai/>), and what they add up to: in metrics, and in
//! what a deployment may be asked for.

use std::sync::Arc;

use axum::http::{HeaderMap, StatusCode};
use kaos_openai::ErrorResponse;
use kaos_telemetry::{
    KeyValue, Kind, Measure, Operation as Span, Telemetry, TraceContext,
    buckets::{SECONDS, TOKENS},
    metrics::{Counter, Histogram},
};

use crate::{allowance::Allowance, config::Deployment, error::Failure, provider::Tokens, request::Operation};

/// What the name of a deployment is told as.
const DEPLOYMENT: &str = "kaos.model.deployment";
const STATUS: &str = "http.response.status_code";

/// Where requests are measured.
#[derive(Debug)]
pub(crate) struct Meters {
    telemetry: Telemetry,
    served: Measure,
    asked: Measure,
    tokens: Histogram<u64>,
    requests: Counter<u64>,
}

impl Meters {
    pub(crate) fn new(telemetry: Telemetry) -> Self {
        let meter = telemetry.meter();
        Self {
            served: telemetry.duration("http.server.request.duration", &SECONDS),
            asked: telemetry.duration("gen_ai.client.operation.duration", &SECONDS),
            tokens: meter
                .u64_histogram("gen_ai.client.token.usage")
                .with_unit("{token}")
                .with_boundaries(TOKENS.to_vec())
                .build(),
            requests: meter.u64_counter("kaos.model.requests").build(),
            telemetry,
        }
    }

    pub(crate) fn telemetry(&self) -> &Telemetry {
        &self.telemetry
    }
}

/// A request that is being answered.
#[derive(Debug)]
pub(crate) struct Watched {
    meters: Arc<Meters>,
    operation: Operation,
    request: Option<Span>,
    asking: Option<Asking>,
}

/// An upstream that has been asked.
#[derive(Debug)]
struct Asking {
    span: Span,
    /// Those of the conventions.
    labels: Vec<KeyValue>,
    /// Those of the count of requests, but for the status.
    counted: Vec<KeyValue>,
    allowance: Arc<Allowance>,
}

impl Watched {
    /// Of a request for `operation` at `route`, with these headers.
    pub(crate) fn new(
        meters: &Arc<Meters>,
        operation: Operation,
        route: &'static str,
        headers: &HeaderMap,
    ) -> Self {
        let labels = [
            KeyValue::new("http.request.method", "POST"),
            KeyValue::new("http.route", route),
        ];
        let parent = TraceContext::of_headers(headers);
        let name = format!("POST {route}");
        let request = meters
            .telemetry
            .begin(&parent, Kind::Server, name, labels.clone());
        Self {
            meters: meters.clone(),
            operation,
            request: Some(request.measured(&meters.served, labels)),
            asking: None,
        }
    }

    /// `deployment` is asked, of `provider`, by the name `model`.
    pub(crate) fn asks(&mut self, deployment: &Deployment, provider: &'static str, model: &str) {
        let operation = self.operation.name();
        let labels = vec![
            KeyValue::new("gen_ai.operation.name", operation),
            KeyValue::new("gen_ai.provider.name", conventional(provider)),
            KeyValue::new("gen_ai.request.model", model.to_owned()),
        ];
        let counted = vec![
            KeyValue::new("gen_ai.request.model", model.to_owned()),
            KeyValue::new(DEPLOYMENT, deployment.id.clone()),
        ];
        let span = self.meters.telemetry.begin(
            &self.context(),
            Kind::Client,
            format!("{operation} {model}"),
            labels.clone(),
        );
        span.set(DEPLOYMENT, deployment.id.clone());
        self.asking = Some(Asking {
            span: span.measured(&self.meters.asked, labels.clone()),
            labels,
            counted,
            allowance: deployment.allowance.clone(),
        });
    }

    /// Where log lines of this request belong.
    pub(crate) fn context(&self) -> TraceContext {
        self.request
            .as_ref()
            .map(|request| request.context().clone())
            .unwrap_or_default()
    }

    /// Has the upstream continue the trace.
    pub(crate) fn inject(&self, headers: &mut HeaderMap) {
        if let Some(asking) = &self.asking {
            headers.extend(asking.span.context().headers());
        }
    }

    /// It took so many.
    pub(crate) fn tokens(&self, tokens: Tokens) {
        if let Some(asking) = &self.asking {
            asking.tokens(&self.meters, tokens);
        }
    }

    /// What was asked last gave no answer.
    pub(crate) fn failed(&mut self, failure: &Failure) {
        if let Some(asking) = self.asking.take() {
            asking.count(&self.meters, failure.status());
            asking.span.fail(kind(failure.status()), failure.message());
        }
    }

    /// What was asked last answers with a stream, which ends later.
    pub(crate) fn streamed(&mut self) -> Streamed {
        Streamed {
            ends: Some((self.meters.clone(), self.request.take(), self.asking.take())),
        }
    }

    /// The request is answered, unless by a stream that goes on.
    pub(crate) fn answered(mut self, failure: Option<&Failure>) {
        let status = failure.map_or(StatusCode::OK, Failure::status);
        if let Some(asking) = self.asking.take() {
            asking.count(&self.meters, status);
            match failure {
                None => asking.span.succeed(),
                Some(failure) => asking.span.fail(kind(status), failure.message()),
            }
        }
        if let Some(request) = self.request.take() {
            request.set(STATUS, i64::from(status.as_u16()));
            match failure {
                // Of what the caller did wrong the server is not to blame.
                Some(failure) if status.is_server_error() => request.fail(kind(status), failure.message()),
                _ => request.succeed(),
            }
        }
    }
}

impl Asking {
    fn tokens(&self, meters: &Meters, tokens: Tokens) {
        self.allowance
            .spend(tokens.prompt_tokens.saturating_add(tokens.completion_tokens));
        for (kind, attribute, count) in [
            ("input", "gen_ai.usage.input_tokens", tokens.prompt_tokens),
            ("output", "gen_ai.usage.output_tokens", tokens.completion_tokens),
        ] {
            self.span.set(attribute, i64::try_from(count).unwrap_or(i64::MAX));
            let mut labels = self.labels.clone();
            labels.push(KeyValue::new("gen_ai.token.type", kind));
            meters.tokens.record(count, &labels);
        }
    }

    fn count(&self, meters: &Meters, status: StatusCode) {
        self.span.set(STATUS, i64::from(status.as_u16()));
        let mut labels = self.counted.clone();
        labels.push(KeyValue::new(STATUS, i64::from(status.as_u16())));
        meters.requests.add(1, &labels);
    }
}

/// A stream that is being passed on. One that is dropped before its end was cancelled by the caller.
#[derive(Debug, Default)]
pub(crate) struct Streamed {
    ends: Option<(Arc<Meters>, Option<Span>, Option<Asking>)>,
}

impl Streamed {
    /// Nothing comes any more.
    pub(crate) fn ended(&mut self, tokens: Option<Tokens>, failed: Option<&ErrorResponse>) {
        let Some((meters, request, asking)) = self.ends.take() else {
            return;
        };
        // The status was sent when the stream began.
        let status = StatusCode::OK;
        if let Some(asking) = asking {
            asking.count(&meters, status);
            if let Some(tokens) = tokens {
                asking.tokens(&meters, tokens);
            }
            match failed {
                None => asking.span.succeed(),
                Some(failed) => asking.span.fail("stream", &failed.error.message),
            }
        }
        if let Some(request) = request {
            request.set(STATUS, i64::from(status.as_u16()));
            match failed {
                None => request.succeed(),
                Some(failed) => request.fail("stream", &failed.error.message),
            }
        }
    }
}

/// The kind of error that a status tells of.
fn kind(status: StatusCode) -> &'static str {
    match status.as_u16() {
        400 => "400",
        401 => "401",
        403 => "403",
        404 => "404",
        408 => "408",
        413 => "413",
        422 => "422",
        429 => "429",
        500 => "500",
        502 => "502",
        503 => "503",
        504 => "504",
        _ if status.is_client_error() => "4xx",
        _ => "5xx",
    }
}

/// The name of a provider in the conventions, where they have one.
fn conventional(provider: &'static str) -> &'static str {
    match provider {
        "azure" => "azure.ai.openai",
        "gemini" => "gcp.gemini",
        "mistral" => "mistral_ai",
        "xai" => "x_ai",
        other => other,
    }
}
