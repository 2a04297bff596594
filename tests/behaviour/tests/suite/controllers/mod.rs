//! The controllers of this project against a Kubernetes API.
