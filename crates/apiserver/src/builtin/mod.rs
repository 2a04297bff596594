//! The closed list of built-in kinds: their names, schemas, hand-written defaults and validation.
//!
//! Shapes come from `schemas.json`, which `cargo xtask generate` makes from the OpenAPI files of Kubernetes.
//! What kube-apiserver decides in Go (defaults, what must be there) is written by hand, as far as this project's
//! objects and kubectl go.

mod defaults;
mod jobs;
mod kinds;
mod names;
mod pods;
mod prepare;
mod service;
mod validation;

pub(crate) use self::{
    defaults::apply_defaults,
    kinds::resource_types,
    prepare::{prepare_for_create, prepare_for_update},
    service::assign_cluster_ip,
    validation::validate,
};
