//! What the kinds share.

pub(crate) mod apply;
pub(crate) mod children;
pub(crate) mod context;
pub(crate) mod env;
pub(crate) mod objects;
pub(crate) mod status;
#[cfg(test)]
pub(crate) mod testing;
