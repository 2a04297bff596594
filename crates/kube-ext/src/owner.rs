//! Who controls an object.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

/// The owner that controls the object, if it has one. The API server allows at most one.
pub fn controller_of(metadata: &ObjectMeta) -> Option<&OwnerReference> {
    metadata
        .owner_references
        .iter()
        .flatten()
        .find(|owner| owner.controller == Some(true))
}

/// Whether the object's controller is the one with this uid. A namesake that was deleted and made again has
/// another.
pub fn is_controlled_by(metadata: &ObjectMeta, uid: &str) -> bool {
    controller_of(metadata).is_some_and(|owner| owner.uid == uid)
}
