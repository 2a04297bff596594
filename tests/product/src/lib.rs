//! tests/product
