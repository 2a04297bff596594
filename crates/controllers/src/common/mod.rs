//! What the kinds share.

pub(crate) mod apply;
pub(crate) mod asked;
pub(crate) mod children;
pub(crate) mod context;
pub(crate) mod driver;
pub(crate) mod env;
pub(crate) mod failing;
pub(crate) mod failure;
pub(crate) mod leftovers;
pub(crate) mod objects;
pub(crate) mod passes;
pub(crate) mod plan;
pub(crate) mod route;
pub(crate) mod status;
pub(crate) mod telemetry;
#[cfg(test)]
pub(crate) mod testing;
