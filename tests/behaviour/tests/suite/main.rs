//! What a Kubernetes API does, and what our controllers make of it.
//!
//! Every test runs on the embedded server in process and, where `KAOS_TEST_KUBECONFIG` names one, on a real
//! API server: `cargo xtask test` does both. What the two servers are allowed to differ in is written in the
//! test that shows it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "clippy knows tests only by their attribute, and their helper functions have none"
)]

mod admission;
mod apiserver;
mod controllers;
mod harness;
mod kube_ext;
