//! tests/behaviour
