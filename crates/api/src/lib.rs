//! crates/api
