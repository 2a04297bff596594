//! The Kubernetes API as its clients see it.

mod apply;
mod bodies;
mod cases;
mod crd;
mod crud;
mod defaults;
mod deletion;
mod discovery;
mod events;
mod faults;
mod fixtures;
mod jobs;
mod lists;
mod names;
mod patch;
mod schema;
mod watch;
