//! The `kaos` binary.
fn main() {}
