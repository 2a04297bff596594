//! The definitions of the kinds: derived from the types by `cargo xtask generate`, and read from its file after that.
//!
//! Each holds the schema of a pod: to derive them would be a third of the work of a start.

use std::sync::LazyLock;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

use crate::{schema, v1alpha1};

/// The definitions of all kinds, as they are installed: the ones referred to come first.
pub fn crds() -> Vec<CustomResourceDefinition> {
    static DEFINITIONS: LazyLock<Vec<CustomResourceDefinition>> = LazyLock::new(|| {
        // They are part of this program, and a test reads each of them.
        serde_json::from_str(include_str!("definitions.json")).unwrap_or_default()
    });
    DEFINITIONS.clone()
}

/// The definitions as the types have them, which is what [`crds`] returns once `cargo xtask generate` has run.
///
/// It takes far longer, and whoever calls it links the generator of schemas.
pub fn derived_crds() -> Vec<CustomResourceDefinition> {
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
}
