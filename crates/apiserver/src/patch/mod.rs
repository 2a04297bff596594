//! The four kinds of patch, and who owns which field.
//!
//! Everything here is a function from objects to objects. Nothing is stored, defaulted or validated.

use jiff::Timestamp;
use serde_json::Value;

use crate::{error::ApiError, resource::ResourceType};

/// Who makes a change, as `metadata.managedFields` records it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manager<'a> {
    /// The field manager.
    pub(crate) name: &'a str,
    /// `status` or `scale`; empty for the object itself.
    pub(crate) subresource: &'a str,
    /// The time of the change.
    pub(crate) now: Timestamp,
}

/// A JSON patch (RFC 6902).
pub(crate) fn json_patch(object: &Value, _patch: &Value) -> Result<Value, ApiError> {
    Ok(object.clone())
}

/// A JSON merge patch (RFC 7386).
pub(crate) fn merge_patch(object: &Value, _patch: &Value) -> Result<Value, ApiError> {
    Ok(object.clone())
}

/// A strategic merge patch; built-in kinds only, others are refused.
pub(crate) fn strategic_patch(_resource: &ResourceType, object: &Value, _patch: &Value) -> Result<Value, ApiError> {
    Ok(object.clone())
}

/// Server-side apply. `live` is the stored object, or nothing where it is created. Returns the merged object with
/// its managed fields; the same object where nothing changes. Defaults are applied by the caller afterwards.
pub(crate) fn apply(
    _resource: &ResourceType,
    live: Option<&Value>,
    applied: &Value,
    _manager: Manager<'_>,
    _force: bool,
) -> Result<Value, ApiError> {
    Ok(live.unwrap_or(applied).clone())
}

/// Records in `new` which fields a create, update or patch changed. Call it after defaulting and after what a
/// caller may not change was put back. Where nothing changed, `new` gets the managed fields of `live` back as they were.
pub(crate) fn track_update(_resource: &ResourceType, _live: Option<&Value>, _new: &mut Value, _manager: Manager<'_>) {}
