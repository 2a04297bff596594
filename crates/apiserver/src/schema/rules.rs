//! Rules of custom resources in the Common Expression Language (`x-kubernetes-validations`).
//!
//! The `kube-cel` crate compiles and runs them. The walk over the object is ours: items of a list are compared with
//! the old item of the same key, as Kubernetes does, where that crate goes by position.

use std::fmt;

use kube_cel::{CompilationError, CompiledSchema, ErrorKind, Validator};
use serde_json::Value;

use super::error::FieldError;

const RULES: &str = "x-kubernetes-validations";

thread_local! {
    // A validator holds every function of the language; building it costs more than most rules.
    static VALIDATOR: Validator = Validator::new();
}

/// The rules of one node, compiled.
pub(crate) struct Rules {
    compiled: CompiledSchema,
    source: Value,
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.fmt(f)
    }
}

impl Rules {
    /// The rules that stand at this node itself, if any.
    pub(super) fn new(schema: &Value) -> Option<Self> {
        let source = schema.get(RULES)?.clone();
        source.as_array().filter(|rules| !rules.is_empty())?;
        let mut alone = schema.clone();
        strip(&mut alone);
        if let Some(fields) = alone.as_object_mut() {
            fields.insert(RULES.to_owned(), source.clone());
        }
        Some(Self {
            compiled: kube_cel::compile_schema(&alone),
            source,
        })
    }

    /// The rules as they were written.
    pub(super) fn source(&self) -> &Value {
        &self.source
    }

    /// What is wrong with the rules themselves, by index.
    pub(super) fn errors(&self) -> Vec<(usize, String)> {
        let message = |error: &CompilationError| match error {
            CompilationError::Parse { source, .. } => format!("compilation failed: {source}"),
            error => error.to_string(),
        };
        let results = self.compiled.validations.iter().enumerate();
        results
            .filter_map(|(index, result)| Some((index, message(result.as_ref().err()?))))
            .collect()
    }

    /// Runs the rules on the value at `path`.
    pub(super) fn check(&self, new: &Value, old: Option<&Value>, path: &str, errors: &mut Vec<FieldError>) {
        let (told, told_old) = (without_nulls(new), old.map(without_nulls));
        let outcome =
            VALIDATOR.with(|validator| validator.validate_compiled(&self.compiled, &told, told_old.as_ref()));
        for error in outcome.err().map(|errors| errors.into_vec()).unwrap_or_default() {
            let field = error.field_path.trim_start_matches('.').to_owned();
            let message = match error.kind {
                ErrorKind::ValidationFailure => error.message,
                _ => format!("{} evaluating rule: {}", error.message, error.rule),
            };
            errors.push(failure(error.reason.as_deref(), field, new, &message).under(path));
        }
    }
}

fn failure(reason: Option<&str>, field: String, value: &Value, message: &str) -> FieldError {
    match reason {
        Some("FieldValueRequired") => FieldError::required(field, message),
        Some("FieldValueForbidden") => FieldError::forbidden(field, message),
        Some("FieldValueDuplicate") => FieldError::duplicate(field, value),
        // Scalars are shown; of objects and lists only the message.
        _ if value.is_object() || value.is_array() => {
            FieldError::with_reason("FieldValueInvalid", field, format!("Invalid value: {message}"))
        }
        _ => FieldError::invalid(field, value, message),
    }
}

/// The value as Kubernetes shows it to rules: of a field that is null, `has` says that it is absent.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(key, value)| (key.clone(), without_nulls(value)))
            .collect(),
        Value::Array(items) => items.iter().map(without_nulls).collect(),
        other => other.clone(),
    }
}

/// Takes the rules and the defaults out of a schema: below the node, every node has its own run, and defaults are
/// in the object already.
fn strip(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            fields.shift_remove(RULES);
            for (key, value) in fields {
                match (key.as_str(), value) {
                    ("properties", Value::Object(properties)) => {
                        properties.values_mut().for_each(|property| {
                            if let Some(fields) = property.as_object_mut() {
                                fields.shift_remove("default");
                            }
                            strip(property);
                        })
                    }
                    ("items" | "additionalProperties" | "not", value) => strip(value),
                    ("allOf" | "anyOf" | "oneOf", Value::Array(branches)) => {
                        branches.iter_mut().for_each(strip)
                    }
                    _ => {}
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(strip),
        _ => {}
    }
}
