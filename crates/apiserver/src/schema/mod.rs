//! Structural schemas: what the fields of a kind are, for built-in kinds and custom resources alike.
//!
//! A schema prunes what it does not know, fills in defaults, validates, and tells patches how lists and maps
//! are merged. It never looks at the store and knows no kind by name.

mod error;

pub(crate) use error::FieldError;
use serde_json::Value;

/// A structural schema.
#[derive(Debug)]
pub struct Schema;

impl Schema {
    /// The schema of a custom resource, from `spec.versions[].schema.openAPIV3Schema`. Metadata, `apiVersion` and
    /// `kind` are added.
    ///
    /// # Errors
    /// Where the schema is not structural. Fields are relative to the schema.
    pub(crate) fn from_crd(_schema: &Value) -> Result<Self, Vec<FieldError>> {
        Ok(Self)
    }

    /// Removes fields that the schema does not know. Returns their paths, sorted, such as `spec.foo`.
    pub(crate) fn prune(&self, _object: &mut Value) -> Vec<String> {
        Vec::new()
    }

    /// Fills in the defaults of absent fields.
    pub(crate) fn apply_defaults(&self, _object: &mut Value) {}

    /// Validates against the schema's values and rules; `old` is the object before the change.
    pub(crate) fn validate(&self, _new: &Value, _old: Option<&Value>) -> Vec<FieldError> {
        Vec::new()
    }

    /// The first value whose type a decoder of a built-in kind would refuse, worded as it is:
    /// `json: cannot unmarshal string into Go struct field ...`. Nulls are dropped on the way.
    pub(crate) fn decode(&self, _object: &mut Value) -> Result<(), String> {
        Ok(())
    }

    /// The schema as an OpenAPI v3 schema object, references below `#/components/schemas/`.
    pub(crate) fn to_openapi(&self) -> Value {
        Value::Null
    }
}
