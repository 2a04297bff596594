//! CEL rules of custom resources (`x-kubernetes-validations`, KEP-2876), by the kube-cel crate.

use kube_cel::validation::{
    Validator,
    compilation::{CompilationError, CompiledSchema, compile_schema},
};
use serde_json::Value;

use super::FieldError;

/// The compiled rules of a schema.
pub(super) struct Rules(CompiledSchema);

impl std::fmt::Debug for Rules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Rules")
    }
}

impl Rules {
    /// Compiles the rules of a schema; `None` where it has none.
    ///
    /// # Errors
    /// For each rule that does not compile.
    pub(super) fn compile(schema: &Value) -> Result<Option<Self>, Vec<FieldError>> {
        if !has_rules(schema) {
            return Ok(None);
        }
        let compiled = compile_schema(schema);
        let mut errors = Vec::new();
        collect(&compiled, "", &mut errors);
        if errors.is_empty() { Ok(Some(Self(compiled))) } else { Err(errors) }
    }

    /// The rules that `new` breaks; those about a change compare it with `old`.
    pub(super) fn check(&self, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
        let Err(errors) = Validator::new().validate_compiled(&self.0, new, old) else {
            return Vec::new();
        };
        let reason = |reason: Option<&str>| match reason {
            Some("FieldValueForbidden") => "FieldValueForbidden",
            Some("FieldValueRequired") => "FieldValueRequired",
            Some("FieldValueDuplicate") => "FieldValueDuplicate",
            _ => "FieldValueInvalid",
        };
        errors
            .into_vec()
            .into_iter()
            .map(|error| {
                let reason = reason(error.reason.as_deref());
                let message = match reason {
                    "FieldValueForbidden" => format!("Forbidden: {}", error.message),
                    "FieldValueRequired" => format!("Required value: {}", error.message),
                    "FieldValueDuplicate" => format!("Duplicate value: {}", error.message),
                    _ => format!("Invalid value: {}", error.message),
                };
                FieldError { field: error.field_path, reason, message }
            })
            .collect()
    }
}

/// What is said where rules could not be evaluated.
pub(super) fn not_checked() -> FieldError {
    FieldError {
        field: "<nil>".to_owned(),
        reason: "FieldValueInvalid",
        message: "Invalid value: null: some validation rules were not checked because the object was invalid; \
                  correct the existing errors to complete validation"
            .to_owned(),
    }
}

fn has_rules(schema: &Value) -> bool {
    match schema {
        Value::Object(map) => map.contains_key("x-kubernetes-validations") || map.values().any(has_rules),
        Value::Array(items) => items.iter().any(has_rules),
        _ => false,
    }
}

fn collect(schema: &CompiledSchema, path: &str, errors: &mut Vec<FieldError>) {
    for (index, rule) in schema.validations.iter().enumerate() {
        if let Err(error) = rule {
            errors.push(failed(&format!("{path}.x-kubernetes-validations[{index}].rule"), error));
        }
    }
    for (name, child) in &schema.properties {
        collect(child, &format!("{path}.properties[{name}]"), errors);
    }
    for (name, child) in [("items", &schema.items), ("additionalProperties", &schema.additional_properties)] {
        if let Some(child) = child {
            collect(child, &format!("{path}.{name}"), errors);
        }
    }
}

fn failed(field: &str, error: &CompilationError) -> FieldError {
    FieldError {
        field: field.trim_start_matches('.').to_owned(),
        reason: "FieldValueInvalid",
        message: format!("Invalid value: compilation failed: {error}"),
    }
}
