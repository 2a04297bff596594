//! Logging, traces, metrics and the crypto provider, set up once for every role of the binary.
//!
//! Traces and metrics are handed in as a [`Telemetry`], never global. A role that sends none has one that is
//! off, and the same code runs: it passes trace contexts on, and that is all.

#[cfg(feature = "collector")]
pub mod collector;
mod context;
mod export;
mod logging;
mod operation;
mod settings;
mod telemetry;

pub use opentelemetry::{Array, KeyValue, StringValue, Value};

pub use context::{Ids, TraceContext};
pub use logging::{InvalidFilter, LogFormat, Logging, init};
pub use operation::{Kind, Measure, Operation};
pub use settings::{Export, InvalidExport};
pub use telemetry::{StartError, Telemetry};

/// Makes `ring` the process's TLS provider. Harmless when called again; call it before the first HTTP
/// client is built, in `main` and in tests, because reqwest and kube panic without one.
pub fn install_crypto_provider() {
    // An error means that a provider is installed already, which is all that is asked for.
    let _ = rustls::crypto::ring::default_provider().install_default();
}
