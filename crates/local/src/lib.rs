//! crates/local
