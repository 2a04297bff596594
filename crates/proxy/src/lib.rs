//! crates/proxy
