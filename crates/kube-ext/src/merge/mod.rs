//! Strategic merge patch of a pod spec: what a user writes beside a generated pod spec, merged into it as
//! `kubectl patch` would.
//!
//! The rules are those of `k8s.io/apimachinery/pkg/util/strategicpatch` for `corev1.PodSpec`, and the answers of
//! the Go code are the table that the tests hold this module to. It differs where the Go answer is a pod that
//! the API server refuses, or says nothing where a user would want to know:
//!
//! - A patch that sets one member of a one-of (`value` or `valueFrom` of an env variable, the source of a volume,
//!   the handler of a probe) removes the others of the base.
//! - Lists keep the order of the base; what is new comes last. Env variables may refer to earlier ones.
//! - Two ports of one number and two protocols are two ports.
//! - `$patch: delete` removes a field, where Go leaves it there, empty. `$patch: merge` is allowed.
//! - No directive and no `null` of the patch is in the result, at any depth.
//! - What has another type than it must have, items named twice, and directives that would have no effect, are
//!   refused.

mod directives;
mod error;
mod list;
mod object;
mod order;
mod schema;

use serde_json::Value;

pub use error::MergeError;

/// Merges `patch` into `base`, which both are pod specs. The result has no directive and no `null` of the patch.
///
/// # Errors
/// Where the patch does not fit: see [`MergeError`].
pub fn merge_pod_spec(base: &Value, patch: &Value) -> Result<Value, MergeError> {
    object::merge_root(&schema::POD_SPEC, base, patch)
}

#[cfg(test)]
mod tests;
