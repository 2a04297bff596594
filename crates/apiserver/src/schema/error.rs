//! One field that is wrong, in the words of kube-apiserver (`k8s.io/apimachinery/pkg/util/validation/field`).

use serde_json::Value;

use crate::error::Cause;

/// A field that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FieldError {
    /// The machine-readable reason, such as `FieldValueRequired`.
    pub(crate) reason: &'static str,
    /// The path, such as `spec.ports[0].port`. Empty for the whole object.
    pub(crate) field: String,
    /// What is wrong, without the path.
    pub(crate) message: String,
}

const INVALID: &str = "FieldValueInvalid";

impl FieldError {
    fn new(reason: &'static str, field: impl Into<String>, message: String) -> Self {
        Self {
            reason,
            field: field.into(),
            message,
        }
    }

    fn described(what: &str, detail: &str) -> String {
        if detail.is_empty() {
            what.to_owned()
        } else {
            format!("{what}: {detail}")
        }
    }

    /// A field that must be there is not.
    pub(crate) fn required(field: impl Into<String>, detail: &str) -> Self {
        Self::new(
            "FieldValueRequired",
            field,
            Self::described("Required value", detail),
        )
    }

    /// A value that is not allowed.
    pub(crate) fn invalid(field: impl Into<String>, value: &Value, detail: &str) -> Self {
        Self::new(
            INVALID,
            field,
            Self::described(&format!("Invalid value: {value}"), detail),
        )
    }

    /// A value of the wrong type; the type found is named.
    pub(crate) fn type_invalid(field: impl Into<String>, value: &Value, detail: &str) -> Self {
        Self::new(
            "FieldValueTypeInvalid",
            field,
            Self::described(&format!("Invalid value: {value}"), detail),
        )
    }

    /// A value that is not one of the allowed ones.
    pub(crate) fn not_supported(field: impl Into<String>, value: &Value, supported: &[String]) -> Self {
        let supported: Vec<String> = supported.iter().map(|value| format!("{value:?}")).collect();
        Self::new(
            "FieldValueNotSupported",
            field,
            format!(
                "Unsupported value: {value}: supported values: {}",
                supported.join(", ")
            ),
        )
    }

    /// The second of two values that must differ.
    pub(crate) fn duplicate(field: impl Into<String>, value: &Value) -> Self {
        Self::new("FieldValueDuplicate", field, format!("Duplicate value: {value}"))
    }

    /// A field that must not be set here.
    pub(crate) fn forbidden(field: impl Into<String>, detail: &str) -> Self {
        Self::new("FieldValueForbidden", field, Self::described("Forbidden", detail))
    }

    /// A reference to something that is not there.
    pub(crate) fn not_found(field: impl Into<String>, value: &Value) -> Self {
        Self::new("FieldValueNotFound", field, format!("Not found: {value}"))
    }

    /// A text with more bytes than allowed.
    pub(crate) fn too_long(field: impl Into<String>, bytes: u64) -> Self {
        let unit = if bytes == 1 { "byte" } else { "bytes" };
        Self::new(
            "FieldValueTooLong",
            field,
            format!("Too long: may not be more than {bytes} {unit}"),
        )
    }

    /// A list or map with more entries than allowed.
    pub(crate) fn too_many(field: impl Into<String>, found: usize, most: u64) -> Self {
        let unit = if most == 1 { "item" } else { "items" };
        Self::new(
            "FieldValueTooMany",
            field,
            format!("Too many: {found}: must have at most {most} {unit}"),
        )
    }

    /// A refusal with a reason of its own.
    pub(crate) fn with_reason(reason: &'static str, field: impl Into<String>, message: String) -> Self {
        Self::new(reason, field, message)
    }

    /// The same error below another field.
    pub(crate) fn under(mut self, parent: &str) -> Self {
        self.field = match (parent, self.field.as_str()) {
            (_, "") => parent.to_owned(),
            ("", _) => self.field,
            (_, field) if field.starts_with('[') => format!("{parent}{field}"),
            (_, field) => format!("{parent}.{field}"),
        };
        self
    }
}

impl From<FieldError> for Cause {
    fn from(error: FieldError) -> Self {
        Self {
            reason: error.reason.to_owned(),
            message: error.message,
            field: error.field,
        }
    }
}
