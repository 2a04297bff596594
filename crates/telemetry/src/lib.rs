//! Logging, traces, metrics and the crypto provider, set up once for every role of the binary.
//!
//! Traces and metrics are handed in as a [`Telemetry`], never global. Metrics can always be read, by
//! [`Telemetry::scrape`]; anything is sent only where [`Export`] says. A role that sends nothing runs the same
//! code: it passes trace contexts on.
//!
//! Log lines belong to the process. They name the trace and the span that they were written in (see
//! [`TraceContext::attach`]), and are sent as well where `Export` says so.

pub mod buckets;
#[cfg(feature = "collector")]
pub mod collector;
mod context;
mod export;
mod logging;
mod logs;
mod operation;
mod scrape;
mod settings;
mod telemetry;
#[cfg(test)]
mod testing;

pub use opentelemetry::{Array, KeyValue, StringValue, Value, metrics};

pub use context::{Ids, TraceContext};
pub use logging::{InvalidFilter, LogFormat, Logging, UnknownFormat, init};
pub use operation::{Kind, Measure, Operation};
pub use settings::{Export, InvalidExport};
pub use telemetry::{StartError, Telemetry};

/// Makes `ring` the process's TLS provider. Harmless when called again; call it before the first HTTP
/// client is built, in `main` and in tests, because reqwest and kube panic without one.
pub fn install_crypto_provider() {
    // An error means that a provider is installed already, which is all that is asked for.
    let _ = rustls::crypto::ring::default_provider().install_default();
}
