//! The model proxy: one front that speaks the OpenAI API for the models of a configuration file. The role
//! `kaos serve proxy`.
//!
//! Owns the configuration ([`Config`], in the form of LiteLLM's), the choice of the upstream by the model's
//! name, and the passage of requests and answers, streams included. What it does not need to understand it
//! passes on as it is. A model of the provider `mock` answers by itself, by rules, and says so.
//!
//! The file is read again while it is served, as the file of a mounted Secret changes with the Secret.
//!
//! Data goes one way: a body becomes a [`request::Request`], [`balance`] picks a deployment for it, [`provider`]
//! makes a call of it, [`forward`] sends that, and its answer comes back through the same provider.
//!
//! Never lets a request choose where it goes or with which key, and never logs a key or what was said. What failed
//! is asked again only as long as nothing of an answer was passed on.

mod allowance;
mod balance;
mod client;
mod completions;
mod config;
mod embeddings;
mod error;
mod forward;
#[cfg(test)]
mod fuzz;
mod health;
mod live;
mod mock;
mod provider;
mod request;
mod router;
mod secret;
mod stream;
mod watched;

pub use config::{Config, ConfigError};
pub use provider::known::providers;
pub use router::{Error, serve};
