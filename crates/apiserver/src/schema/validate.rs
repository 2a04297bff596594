//! Whether values are allowed: types, required fields, bounds. The texts are those of kube-apiserver.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{
    Schema,
    node::{Kind, Limits, ListType, Node},
    prune::joined,
};

/// Something wrong with a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FieldError {
    /// The path, such as `spec.ports[0].name`.
    pub(crate) field: String,
    /// One of Kubernetes' cause types, such as `FieldValueRequired`.
    pub(crate) reason: &'static str,
    /// What is wrong, without the path: `Required value`.
    pub(crate) message: String,
}

impl FieldError {
    pub(crate) fn required(field: impl Into<String>, detail: &str) -> Self {
        let message = if detail.is_empty() { "Required value".to_owned() } else { format!("Required value: {detail}") };
        Self { field: field.into(), reason: "FieldValueRequired", message }
    }

    /// `value` as JSON.
    pub(crate) fn invalid(field: impl Into<String>, value: &Value, detail: impl std::fmt::Display) -> Self {
        Self { field: field.into(), reason: "FieldValueInvalid", message: format!("Invalid value: {value}: {detail}") }
    }

    pub(crate) fn duplicate(field: impl Into<String>, value: &Value) -> Self {
        Self { field: field.into(), reason: "FieldValueDuplicate", message: format!("Duplicate value: {value}") }
    }

    pub(crate) fn not_supported(field: impl Into<String>, value: &Value, supported: &[Value]) -> Self {
        let supported: Vec<String> = supported.iter().map(ToString::to_string).collect();
        Self {
            field: field.into(),
            reason: "FieldValueNotSupported",
            message: format!("Unsupported value: {value}: supported values: {}", supported.join(", ")),
        }
    }

    fn wrong_type(field: &str, expected: &str, found: &str) -> Self {
        Self {
            field: field.to_owned(),
            reason: "FieldValueTypeInvalid",
            message: format!("Invalid value: \"{found}\": {field} in body must be of type {expected}: \"{found}\""),
        }
    }

    fn too_long(field: &str, most: u64) -> Self {
        Self { field: field.to_owned(), reason: "FieldValueTooLong", message: format!("Too long: may not be more than {most} bytes") }
    }

    fn too_many(field: &str, found: usize, most: u64) -> Self {
        let noun = if most == 1 { "item" } else { "items" };
        Self {
            field: field.to_owned(),
            reason: "FieldValueTooMany",
            message: format!("Too many: {found}: must have at most {most} {noun}"),
        }
    }

    /// Whether rules cannot be evaluated on an object with this error.
    fn blocks_rules(&self) -> bool {
        matches!(
            self.reason,
            "FieldValueRequired"
                | "FieldValueTypeInvalid"
                | "FieldValueNotSupported"
                | "FieldValueTooLong"
                | "FieldValueTooMany"
        )
    }
}

/// The errors of `value`, and whether CEL rules cannot be evaluated on it.
pub(super) fn validate(schema: &Schema, node: &Node, value: &Value) -> (Vec<FieldError>, bool) {
    let mut errors = Vec::new();
    Checker { schema, errors: &mut errors }.check(node, value, "");
    let blocking = errors.iter().any(FieldError::blocks_rules);
    (errors, blocking)
}

struct Checker<'a> {
    schema: &'a Schema,
    errors: &'a mut Vec<FieldError>,
}

impl Checker<'_> {
    fn check(&mut self, node: &Node, value: &Value, path: &str) {
        let node = self.schema.resolve(node);
        if value.is_null() && (node.nullable || node.kind == Kind::Any) {
            return;
        }
        if let Some(error) = type_error(node, value, path) {
            self.errors.push(error);
            return;
        }
        match value {
            Value::Object(map) => {
                for name in node.required.iter().filter(|name| !map.contains_key(*name)) {
                    self.errors.push(FieldError::required(joined(path, name), ""));
                }
                for (name, child) in map {
                    if let Some(field) = node.field(name) {
                        self.check(field, child, &joined(path, name));
                    }
                }
            }
            Value::Array(items) => {
                if let Some(item) = &node.items {
                    for (index, child) in items.iter().enumerate() {
                        self.check(item, child, &format!("{path}[{index}]"));
                    }
                }
                self.duplicates(node, items, path);
            }
            _ => {}
        }
        self.limits(&node.limits, value, path);
    }

    fn duplicates(&mut self, node: &Node, items: &[Value], path: &str) {
        let mut seen = BTreeSet::new();
        for (index, item) in items.iter().enumerate() {
            let identity = match &node.list {
                ListType::Atomic => return,
                ListType::Set => item.clone(),
                ListType::Map(keys) => {
                    let map = item.as_object();
                    keys.iter().filter_map(|key| Some((key.clone(), map?.get(key)?.clone()))).collect()
                }
            };
            if !seen.insert(identity.to_string()) {
                self.errors.push(FieldError::duplicate(format!("{path}[{index}]"), &identity));
            }
        }
    }

    fn limits(&mut self, limits: &Limits, value: &Value, path: &str) {
        let mut body = |detail: String, shown: &Value| {
            self.errors.push(FieldError::invalid(path, shown, format!("{path} in body {detail}")));
        };
        match value {
            Value::Number(number) => {
                let found = number.as_f64().unwrap_or_default();
                if let Some(least) = limits.minimum {
                    let (wrong, words) = match limits.exclusive_minimum {
                        true => (found <= least, "greater than"),
                        false => (found < least, "greater than or equal to"),
                    };
                    if wrong {
                        body(format!("should be {words} {least}"), value);
                    }
                }
                if let Some(most) = limits.maximum {
                    let (wrong, words) = match limits.exclusive_maximum {
                        true => (found >= most, "less than"),
                        false => (found > most, "less than or equal to"),
                    };
                    if wrong {
                        body(format!("should be {words} {most}"), value);
                    }
                }
                if let Some(factor) = limits.multiple_of.filter(|factor| *factor != 0.0)
                    && (found / factor).fract().abs() > f64::EPSILON
                {
                    body(format!("should be a multiple of {factor}"), value);
                }
            }
            Value::String(text) => {
                let length = text.chars().count() as u64;
                if let Some(least) = limits.min_length.filter(|least| length < *least) {
                    body(format!("should be at least {least} chars long"), value);
                }
                if let Some(pattern) = limits.pattern.as_ref().filter(|pattern| !pattern.is_match(text)) {
                    body(format!("should match '{pattern}'"), value);
                }
                if let Some(most) = limits.max_length.filter(|most| length > *most) {
                    self.errors.push(FieldError::too_long(path, most));
                }
            }
            Value::Array(items) => {
                let count = items.len() as u64;
                if let Some(least) = limits.min_items.filter(|least| count < *least) {
                    body(format!("should have at least {least} items"), &Value::from(count));
                }
                if let Some(most) = limits.max_items.filter(|most| count > *most) {
                    self.errors.push(FieldError::too_many(path, items.len(), most));
                }
            }
            Value::Object(map) => {
                let count = map.len() as u64;
                if let Some(least) = limits.min_properties.filter(|least| count < *least) {
                    body(format!("should have at least {least} properties"), &Value::from(count));
                }
                if let Some(most) = limits.max_properties.filter(|most| count > *most) {
                    self.errors.push(FieldError::too_many(path, map.len(), most));
                }
            }
            Value::Null | Value::Bool(_) => {}
        }
        if !limits.one_of_values.is_empty() && !limits.one_of_values.contains(value) {
            self.errors.push(FieldError::not_supported(path, value, &limits.one_of_values));
        }
        self.combined(limits, value, path);
    }

    /// `allOf`, `anyOf`, `oneOf` and `not`.
    fn combined(&mut self, limits: &Limits, value: &Value, path: &str) {
        let schema = self.schema;
        let holds = |node: &Node| {
            let mut errors = Vec::new();
            Checker { schema, errors: &mut errors }.check(node, value, path);
            errors.is_empty()
        };
        for node in &limits.all_of {
            self.check(node, value, path);
        }
        let shown = Value::from(type_name(value));
        let mut fail = |words: &str| {
            self.errors.push(FieldError::invalid(path, &shown, format!("{path} in body must validate {words}")));
        };
        if !limits.any_of.is_empty() && !limits.any_of.iter().any(holds) {
            fail("at least one schema (anyOf)");
        }
        if !limits.one_of.is_empty() && limits.one_of.iter().filter(|node| holds(node)).count() != 1 {
            fail("one and only one schema (oneOf)");
        }
        if limits.not.as_ref().is_some_and(|node| holds(node)) {
            fail("against no schema (not)");
        }
    }
}

fn type_error(node: &Node, value: &Value, path: &str) -> Option<FieldError> {
    let (fits, expected) = match node.kind {
        Kind::Any => (true, ""),
        Kind::Object => (value.is_object(), "object"),
        Kind::Array => (value.is_array(), "array"),
        Kind::String => (value.is_string(), "string"),
        Kind::Integer => (is_integer(value), "integer"),
        Kind::Number => (value.is_number(), "number"),
        Kind::Boolean => (value.is_boolean(), "boolean"),
        Kind::IntOrString => (is_integer(value) || value.is_string(), "integer,string"),
    };
    (!fits).then(|| FieldError::wrong_type(path, expected, type_name(value)))
}

fn is_integer(value: &Value) -> bool {
    value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|number| number.fract() == 0.0)
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) if is_integer(value) => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
