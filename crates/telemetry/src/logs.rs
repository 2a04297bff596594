//! The way of log lines to a collector: from the subscriber that `init` sets up, which comes first and is for the
//! whole process, to the provider that a telemetry has, which comes later.

use std::sync::OnceLock;

use opentelemetry_appender_tracing::layer::OpenTelemetryTracingBridge;
use opentelemetry_sdk::logs::{SdkLogger, SdkLoggerProvider};
use tracing::{Event, Subscriber};
use tracing_subscriber::{Layer, layer::Context, registry::LookupSpan};

type Bridge = OpenTelemetryTracingBridge<SdkLoggerProvider, SdkLogger>;

/// Where lines go, once there is somewhere: like the subscriber itself, one for the process.
static BRIDGE: OnceLock<Bridge> = OnceLock::new();

/// What sends says of its own work: sent on, each line would lead to another.
const OF_SENDING: [&str; 5] = ["h2", "hyper", "opentelemetry", "tonic", "tower"];

/// Has the lines of this process sent by `provider`, unless they are already by another.
pub(crate) fn send_by(provider: &SdkLoggerProvider) {
    // An error means that it is another's.
    let _ = BRIDGE.set(Bridge::new(provider));
}

/// Hands lines on to where they are sent, if they are.
pub(crate) struct Sent;

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Sent {
    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let target = event.metadata().target();
        if OF_SENDING.iter().any(|sending| target.starts_with(sending)) {
            return;
        }
        if let Some(bridge) = BRIDGE.get() {
            bridge.on_event(event, context);
        }
    }
}
