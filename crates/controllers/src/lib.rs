//! crates/controllers
