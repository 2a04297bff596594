//! An embedded Kubernetes API server: a small, readable subset of kube-apiserver in one process.
//!
//! It stores objects of a closed list of built-in kinds and of any CustomResourceDefinition, and speaks the
//! Kubernetes API over them: create, read, update, delete, list, watch, the four kinds of patch, server-side
//! apply, status, garbage collection, discovery and tables for kubectl. It knows no kind of this project:
//! Agents and the others are custom resources to it like anybody's.
//!
//! It is mounted two ways. In process, [`ApiServer`] is a `tower::Service` of HTTP requests, which
//! `kube::Client::new` takes as it is: no socket, and it runs on tokio's paused time. For kubectl,
//! the `front` module serves the same service over HTTPS on a loopback address.
//!
//! Not here: admission webhooks, RBAC, conversion between versions, aggregation. A kind or a verb
//! that is not served is refused by name.

mod accept;
mod backend;
mod builtin;
mod crd;
mod discovery;
mod error;
mod fault;
pub mod front;
mod patch;
mod protobuf;
mod proxy;
mod registry;
mod resource;
mod schema;
mod server;
mod store;
mod table;

pub use backend::{Backend, LogOptions, LogStream, Refusal};
pub use fault::{Call, Fault, FaultInjector, Outcome};
pub use server::{ApiServer, Body, OpenError, Options, Storage};
pub use store::{Salvaged, salvage};

/// Any error, boxed: what bodies and services of the tower world speak.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
