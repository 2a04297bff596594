//! crates/node
