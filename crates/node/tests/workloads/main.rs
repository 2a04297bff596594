//! Controllers with nobody to run their pods: the test says what becomes of these itself, and time moves only when
//! nothing else is left to do.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "what goes wrong here fails the test"
)]

mod deployments;
mod jobs;
mod support;
