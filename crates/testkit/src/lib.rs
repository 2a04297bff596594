//! crates/testkit
