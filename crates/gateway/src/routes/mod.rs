//! From an HTTPRoute to rules that cannot be wrong: parsing, matching and rewriting, without I/O.

pub(crate) mod duration;
pub(crate) mod filters;
pub(crate) mod matches;
pub(crate) mod rule;
pub(crate) mod table;
