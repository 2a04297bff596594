//! Structural schemas: what the fields of a kind are.

/// A structural schema.
#[derive(Debug)]
pub struct Schema;
