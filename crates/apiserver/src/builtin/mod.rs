//! The closed list of built-in kinds: their names, schemas, hand-written defaults and validation.

use serde_json::Value;

use crate::{resource::ResourceType, schema::FieldError};

/// Every built-in kind.
pub(crate) fn resource_types() -> Vec<ResourceType> {
    Vec::new()
}

/// What decoding an object fills in: the defaults of its fields, and folds such as a Secret's `stringData`.
/// For create and update, before [`crate::patch::track_update`]; after [`crate::patch::apply`]. Custom resources are
/// left alone: [`crate::schema::Schema::apply_defaults`] is theirs.
pub(crate) fn apply_defaults(_resource: &ResourceType, _object: &mut Value) {}

/// What the server sets on a new object after its fields were tracked: a Namespace's finalizer and phase, the first
/// status of a Pod. Not the cluster address of a Service, see [`assign_cluster_ip`].
pub(crate) fn prepare_for_create(_resource: &ResourceType, _object: &mut Value) {}

/// What an update takes over from the stored object where it is left out, such as a Service's cluster address.
/// Before tracking.
pub(crate) fn prepare_for_update(_resource: &ResourceType, _new: &mut Value, _old: &Value) {}

/// Validates metadata of any object, and the fields of built-in kinds.
/// `old` is the stored object of an update, `subresource` is empty or `status`.
pub(crate) fn validate(
    _resource: &ResourceType,
    _new: &Value,
    _old: Option<&Value>,
    _subresource: &str,
) -> Vec<FieldError> {
    Vec::new()
}

/// Gives a Service its cluster address, where it needs one: one of 10.96.0.0/16, worked out from its name, and not
/// `taken`. After tracking, before validation.
pub(crate) fn assign_cluster_ip(_service: &mut Value, _taken: &dyn Fn(&str) -> bool) {}
