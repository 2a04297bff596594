//! The model proxy: one front that speaks the OpenAI API for the models of a configuration file. The role
//! `kaos serve proxy`.
//!
//! Owns the configuration ([`Config`], in the form of LiteLLM's), the choice of the upstream by the model's
//! name, and the passage of requests and answers, streams included. What it does not need to understand it
//! passes on as it is. A model of the provider `mock` answers by itself, by rules, and says so.
//!
//! The file is read again while it is served, as the file of a mounted Secret changes with the Secret.
//!
//! Never lets a request choose where it goes or with which key, never logs a key or what was said, and never
//! repeats a request: whoever asked decides that.

mod config;
mod error;
mod forward;
mod live;
mod mock;
mod router;
mod secret;
mod stream;

pub use config::{Config, ConfigError};
pub use router::{Error, serve};
