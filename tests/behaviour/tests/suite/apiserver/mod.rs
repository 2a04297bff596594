//! The Kubernetes API as its clients see it.

mod crd;
mod crud;
mod deletion;
mod discovery;
mod faults;
mod fixtures;
mod watch;
