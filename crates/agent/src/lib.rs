//! crates/agent
