//! The four kinds of patch, and who owns which field.
//!
//! - [`json_patch`] and [`merge_patch`]: RFC 6902 and RFC 7386, for any JSON.
//! - [`strategic_patch`]: strategic merge patch, which merges lists of built-in kinds by their merge keys.
//! - [`apply`]: server-side apply, which works from `metadata.managedFields`.
//!
//! [`track_update`] keeps the managed fields of every other way to write. Everything here goes from JSON to JSON:
//! nothing is stored, defaulted or validated.

mod apply;
mod fieldpath;
mod managed;
mod strategic;
#[cfg(test)]
mod tests;
mod typed;

use http::StatusCode;
use serde_json::{Map, Value};

pub(crate) use self::{
    apply::apply,
    managed::{Manager, track_update},
    strategic::strategic_patch,
};
use crate::error::ApiError;

/// The most operations that one JSON patch may have, as in kube-apiserver.
const MOST_OPERATIONS: usize = 10_000;

/// A JSON patch (RFC 6902): all of its operations or none. As in kube-apiserver, `replace` of a field that is not
/// there adds it.
///
/// # Errors
/// Where it is no list of operations, or one of them fails.
pub(crate) fn json_patch(object: &Value, patch: &Value) -> Result<Value, ApiError> {
    use ::json_patch::{AddOperation, PatchOperation};

    let Some(list) = patch.as_array() else {
        return Err(ApiError::bad_request(format!(
            "error decoding patch: json: cannot unmarshal {} into Go value of type []handlers.jsonPatchOp",
            go_kind(patch)
        )));
    };
    if list.len() > MOST_OPERATIONS {
        return Err(ApiError::bad_request(format!(
            "The allowed maximum operations in a JSON patch is {MOST_OPERATIONS}, got {}",
            list.len()
        )));
    }
    // One sentence for all of them: the API server says no more either.
    let refused = || misfit("the server rejected our request due to an error in our request");
    let operations: ::json_patch::Patch = serde_json::from_value(patch.clone()).map_err(|_| refused())?;
    let mut patched = object.clone();
    for operation in operations.0 {
        let operation = match operation {
            PatchOperation::Replace(replace) if is_missing_field(&patched, replace.path.as_str()) => {
                PatchOperation::Add(AddOperation {
                    path: replace.path,
                    value: replace.value,
                })
            }
            operation => operation,
        };
        ::json_patch::patch(&mut patched, &[operation]).map_err(|_| refused())?;
    }
    Ok(patched)
}

/// Whether a pointer names a field that an object there does not have.
fn is_missing_field(value: &Value, pointer: &str) -> bool {
    let Some((parent, _)) = pointer.rsplit_once('/') else {
        return false;
    };
    value.pointer(pointer).is_none() && value.pointer(parent).is_some_and(Value::is_object)
}

/// A JSON merge patch (RFC 7386): objects merge, `null` removes, everything else replaces.
///
/// # Errors
/// Where the patch is no object.
pub(crate) fn merge_patch(object: &Value, patch: &Value) -> Result<Value, ApiError> {
    object_of(patch)?;
    let mut patched = object.clone();
    ::json_patch::merge(&mut patched, patch);
    Ok(patched)
}

/// A patch that must be an object.
fn object_of(patch: &Value) -> Result<&Map<String, Value>, ApiError> {
    patch.as_object().ok_or_else(|| {
        ApiError::bad_request(format!(
            "error decoding patch: json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            go_kind(patch)
        ))
    })
}

/// A patch that is one of its kind but does not fit the object.
fn misfit(why: impl Into<String>) -> ApiError {
    ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", why)
}

fn go_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
