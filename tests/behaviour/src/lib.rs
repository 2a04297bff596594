//! Behaviour tests of the embedded API server and of the controllers, each of which also runs on a real
//! API server: see `tests/suite`.
