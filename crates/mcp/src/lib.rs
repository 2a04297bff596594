//! crates/mcp
