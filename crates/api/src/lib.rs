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

pub mod names;
mod schema;
pub mod v1alpha1;

use std::sync::LazyLock;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

/// The API group of all kinds.
pub const GROUP: &str = "kaos.tools";

/// The definitions of all kinds, as they are installed: the ones referred to come first.
///
/// They are worked out once: the schema of a pod is large.
pub fn crds() -> Vec<CustomResourceDefinition> {
    static DEFINITIONS: LazyLock<Vec<CustomResourceDefinition>> = LazyLock::new(|| {
        let mut definitions = vec![
            v1alpha1::ModelAPI::crd(),
            v1alpha1::MCPServer::crd(),
            v1alpha1::Agent::crd(),
        ];
        definitions
            .iter_mut()
            .flat_map(|definition| &mut definition.spec.versions)
            .filter_map(|version| version.schema.as_mut()?.open_api_v3_schema.as_mut())
            .for_each(schema::unwrap_descriptions);
        definitions
    });
    DEFINITIONS.clone()
}
