//! The controllers, disturbed at every write, every watch and every object they make: see `tests` and
//! `scenarios`.
