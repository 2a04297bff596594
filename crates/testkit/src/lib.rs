//! What behaviour tests stand on: a Kubernetes API to test against, embedded or real, and ways to see and
//! to disturb what happens on it.
//!
//! A test starts with [`TestApi::start`] and gets a namespace of its own. It runs in process against the
//! embedded server; where `KAOS_TEST_KUBECONFIG` names a kubeconfig, the very same test runs against that
//! server, so that the two are held to one description of what Kubernetes does. Only tests that inject
//! faults use [`TestApi::embedded`], which takes no notice of the variable.
//!
//! It holds no test, and nothing in it is used outside tests.
#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "only tests use this crate, and what goes wrong in it fails the test with a message"
)]

mod api;
mod calls;
mod crds;
mod eventually;
mod faults;
mod gateway_api;
mod pods;
mod raw;

pub use api::{Builder, TestApi};
pub use calls::{Calls, Sent};
pub use crds::{SharedKind, install_crd, install_crds};
pub use eventually::{PATIENCE, eventually};
pub use faults::{Faults, Injection};
pub use gateway_api::{brief_gateway_api, install_gateway_api};
pub use pods::{KeptReady, keep_pods_ready, mark_pods_ready};
pub use raw::{RawBody, Watch};
