//! Ollama's models: their names, whether they are there, and pulling them. The role `kaos serve model-pull`.
//!
//! Owns the grammar of model names ([`ModelName`]), the part of Ollama's API that lists and pulls ([`Ollama`]),
//! and the step beside a running Ollama that has it pull one model and tells how far that is ([`serve`]; asked
//! with [`progress`]).
//!
//! Never runs a program: a model's name only ever travels as a JSON string.

mod client;
mod keeper;
mod name;
mod progress;
mod server;
#[cfg(test)]
mod tests;

use std::{sync::OnceLock, time::Duration};

pub use client::{Error, Ollama};
pub use name::{ModelName, NameError};
pub use progress::{Progress, State, progress};
pub use server::serve;

/// How long a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The client for addresses of the pod or the cluster, which no proxy server knows. Built when it is first asked for:
/// building reads all certificates of the system, which takes longer than a question.
fn http_client() -> Result<reqwest::Client, reqwest::Error> {
    static MADE: OnceLock<reqwest::Client> = OnceLock::new();
    if let Some(client) = MADE.get() {
        return Ok(client.clone());
    }
    let client = reqwest::Client::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        // Questions are too rare for a connection to wait for the next one.
        .pool_max_idle_per_host(0)
        .build()?;
    Ok(MADE.get_or_init(|| client).clone())
}
