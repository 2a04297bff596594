//! The custom resources of KAOS: Agent, ModelAPI and MCPServer.
//!
//! Owns their fields, defaults, admission rules and the names of everything made from them. A field is here
//! exactly when it takes effect. Talks to nothing.
//!
//! ```
//! for definition in kaos_api::crds() {
//!     assert_eq!(definition.spec.group, kaos_api::GROUP);
//! }
//! ```

mod definitions;
pub mod names;
mod schema;
pub mod v1alpha1;

pub use definitions::{crds, derived_crds};

/// The API group of all kinds.
pub const GROUP: &str = "kaos.tools";
