//! Values against a schema, in the words and the order of kube-apiserver.
//!
//! First types and bounds, then keys of lists, then the rules. Rules are not run on a value whose type or size is
//! wrong already: kube-apiserver says so with one more error, and so does this module.

use serde_json::Value;

use super::{
    error::FieldError,
    format,
    node::{Checks, Cursor, ListType, Type},
    prune::within,
    same,
};

/// The field of errors that are about several fields at once. kube-apiserver prints Go's nil here.
const NO_FIELD: &str = "<nil>";

/// Validates one object; `old` is what it was before.
pub(super) fn validate(
    schema: Cursor<'_>,
    has_rules: bool,
    new: &Value,
    old: Option<&Value>,
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut path = String::new();
    values(schema, new, &mut path, &mut errors);
    list_keys(schema, new, &mut path, &mut errors);
    if !has_rules {
        return errors;
    }
    if errors.iter().any(blocks_rules) {
        errors.push(FieldError::invalid(
            NO_FIELD,
            &Value::Null,
            "some validation rules were not checked because the object was invalid; correct the existing errors to \
             complete validation",
        ));
    } else {
        rules(schema, new, old, &mut path, &mut errors);
    }
    errors
}

fn blocks_rules(error: &FieldError) -> bool {
    matches!(
        error.reason,
        "FieldValueRequired"
            | "FieldValueTooLong"
            | "FieldValueTooMany"
            | "FieldValueTypeInvalid"
            | "FieldValueNotSupported"
    )
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

/// Whether a number has no fraction; `1.0` has none.
fn is_integer(value: &Value) -> bool {
    value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|number| number.fract() == 0.0)
}

fn has_type(schema: Cursor<'_>, value: &Value) -> bool {
    let node = schema.node();
    if value.is_null() {
        return node.nullable || (node.kind.is_none() && !node.int_or_string);
    }
    if node.int_or_string {
        return value.is_string() || is_integer(value);
    }
    match node.kind {
        None => true,
        Some(Type::Object) => value.is_object(),
        Some(Type::Array) => value.is_array(),
        Some(Type::String) => value.is_string(),
        Some(Type::Integer) => value.is_number() && is_integer(value),
        Some(Type::Number) => value.is_number(),
        Some(Type::Boolean) => value.is_boolean(),
    }
}

fn wrong_type(path: &str, expected: &str, shown: &Value) -> FieldError {
    FieldError::type_invalid(
        path,
        shown,
        &format!("{path} in body must be of type {expected}: {shown}"),
    )
}

/// Types, bounds and required fields.
fn values(schema: Cursor<'_>, value: &Value, path: &mut String, errors: &mut Vec<FieldError>) {
    let node = schema.node();
    if !has_type(schema, value) {
        let expected = if node.int_or_string {
            "integer,string"
        } else {
            node.kind.map_or("", Type::name)
        };
        errors.push(wrong_type(path, expected, &type_name(value).into()));
        return;
    }
    if value.is_null() {
        return;
    }
    if let Some(checks) = &node.checks {
        branches(schema, checks, value, path, errors);
    }
    match value {
        Value::String(text) => {
            if let Some(checks) = &node.checks {
                string(checks, text, path, errors);
            }
            if let Some(format) = node
                .format
                .as_deref()
                .filter(|format| !format::matches(format, text))
            {
                errors.push(wrong_type(path, format, value));
            }
        }
        Value::Number(_) => {
            if let Some(checks) = &node.checks {
                number(checks, value, path, errors);
            }
        }
        Value::Array(items) => {
            if let Some(checks) = &node.checks {
                array(checks, items, path, errors);
            }
            if let Some(schema) = schema.items() {
                for (index, item) in items.iter().enumerate() {
                    within(path, format_args!("[{index}]"), |path| {
                        values(schema, item, path, errors)
                    });
                }
            }
        }
        Value::Object(fields) => {
            if let Some(checks) = &node.checks {
                if let Some(most) = checks.max_properties.filter(|most| fields.len() as u64 > *most) {
                    errors.push(FieldError::too_many(path.as_str(), fields.len(), most));
                }
                if let Some(least) = checks
                    .min_properties
                    .filter(|least| (fields.len() as u64) < *least)
                {
                    let detail = format!("{path} in body should have at least {least} properties");
                    errors.push(FieldError::invalid(path.as_str(), &fields.len().into(), &detail));
                }
            }
            for name in node.required.iter().filter(|name| !fields.contains_key(*name)) {
                errors.push(FieldError::required(name.as_str(), "").under(path));
            }
            for (name, value) in fields {
                if let Some(schema) = schema.field(name) {
                    let dot = if path.is_empty() { "" } else { "." };
                    within(path, format_args!("{dot}{name}"), |path| {
                        values(schema, value, path, errors)
                    });
                }
            }
        }
        Value::Bool(_) | Value::Null => {}
    }
    if let Some(allowed) = node.checks.as_ref().and_then(|checks| checks.allowed.as_ref())
        && !allowed.iter().any(|allowed| same(allowed, value))
    {
        let names: Vec<String> = allowed
            .iter()
            .map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned))
            .collect();
        errors.push(FieldError::not_supported(path.as_str(), value, &names));
    }
}

fn string(checks: &Checks, text: &str, path: &str, errors: &mut Vec<FieldError>) {
    let length = text.chars().count() as u64;
    if let Some(most) = checks.max_length.filter(|most| length > *most) {
        errors.push(FieldError::too_long(path, most));
    }
    let mut invalid = |detail: String| errors.push(FieldError::invalid(path, &text.into(), &detail));
    if let Some(least) = checks.min_length.filter(|least| length < *least) {
        invalid(format!("{path} in body should be at least {least} chars long"));
    }
    if let Some(pattern) = checks.pattern.as_ref().filter(|pattern| !pattern.is_match(text)) {
        invalid(format!("{path} in body should match '{pattern}'"));
    }
}

fn number(checks: &Checks, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let Some(number) = value.as_f64() else { return };
    let mut invalid = |detail: String| errors.push(FieldError::invalid(path, value, &detail));
    if let Some(step) = checks
        .multiple_of
        .filter(|step| *step != 0.0 && (number / step).fract() != 0.0)
    {
        invalid(format!("{path} in body should be a multiple of {step}"));
    }
    if let Some(most) = checks.maximum {
        if checks.exclusive_maximum && number >= most {
            invalid(format!("{path} in body should be less than {most}"));
        } else if number > most {
            invalid(format!("{path} in body should be less than or equal to {most}"));
        }
    }
    if let Some(least) = checks.minimum {
        if checks.exclusive_minimum && number <= least {
            invalid(format!("{path} in body should be greater than {least}"));
        } else if number < least {
            invalid(format!(
                "{path} in body should be greater than or equal to {least}"
            ));
        }
    }
}

fn array(checks: &Checks, items: &[Value], path: &str, errors: &mut Vec<FieldError>) {
    let length = items.len() as u64;
    if let Some(least) = checks.min_items.filter(|least| length < *least) {
        let detail = format!("{path} in body should have at least {least} items");
        errors.push(FieldError::invalid(path, &length.into(), &detail));
    }
    if let Some(most) = checks.max_items.filter(|most| length > *most) {
        errors.push(FieldError::too_many(path, items.len(), most));
    }
    let repeats = |(index, item): (usize, &Value)| items[..index].iter().any(|earlier| same(earlier, item));
    if checks.unique_items && items.iter().enumerate().any(repeats) {
        errors.push(FieldError::duplicate(
            path,
            &"shouldn't contain duplicates".into(),
        ));
    }
}

/// `allOf`, `anyOf`, `oneOf` and `not`.
fn branches(
    schema: Cursor<'_>,
    checks: &Checks,
    value: &Value,
    path: &mut String,
    errors: &mut Vec<FieldError>,
) {
    let about =
        |what: &str, path: &str| FieldError::invalid(NO_FIELD, &"".into(), &format!("{path:?} must {what}"));
    let mut failures = |branches: &[usize]| -> Vec<Vec<FieldError>> {
        let outcome = branches.iter().map(|id| {
            let mut errors = Vec::new();
            values(schema.at(*id), value, path, &mut errors);
            errors
        });
        outcome.collect()
    };
    let (any_of, one_of, all_of) = (
        failures(&checks.any_of),
        failures(&checks.one_of),
        failures(&checks.all_of),
    );
    let not = checks.not.map(|id| failures(&[id]));
    if !any_of.is_empty() && any_of.iter().all(|errors| !errors.is_empty()) {
        errors.push(about("validate at least one schema (anyOf)", path));
        errors.extend(any_of.into_iter().next().into_iter().flatten());
    }
    if !one_of.is_empty() {
        let valid = one_of.iter().filter(|errors| errors.is_empty()).count();
        if valid == 0 {
            errors.push(about(
                "validate one and only one schema (oneOf). Found none valid",
                path,
            ));
            errors.extend(one_of.into_iter().next().into_iter().flatten());
        } else if valid > 1 {
            let what = format!("validate one and only one schema (oneOf). Found {valid} valid alternatives");
            errors.push(about(&what, path));
        }
    }
    if all_of.iter().any(|errors| !errors.is_empty()) {
        errors.extend(all_of.into_iter().flatten());
        errors.push(about("validate all the schemas (allOf)", path));
    }
    if not.is_some_and(|outcome| outcome.iter().all(Vec::is_empty)) {
        errors.push(about("not validate the schema (not)", path));
    }
}

/// Duplicates in sets and in lists with keys.
fn list_keys(schema: Cursor<'_>, value: &Value, path: &mut String, errors: &mut Vec<FieldError>) {
    match value {
        Value::Array(items) => {
            let keys: Vec<Option<Value>> = items
                .iter()
                .map(|item| item_key(&schema.node().list, schema.items(), item))
                .collect();
            for (index, key) in keys.iter().enumerate() {
                if let Some(key) = key.as_ref().filter(|_| keys[..index].contains(key)) {
                    errors.push(FieldError::duplicate(format!("{path}[{index}]"), key));
                }
            }
            if let Some(schema) = schema.items() {
                for (index, item) in items.iter().enumerate() {
                    within(path, format_args!("[{index}]"), |path| {
                        list_keys(schema, item, path, errors)
                    });
                }
            }
        }
        Value::Object(fields) => {
            for (name, value) in fields {
                if let Some(schema) = schema.field(name) {
                    let dot = if path.is_empty() { "" } else { "." };
                    within(path, format_args!("{dot}{name}"), |path| {
                        list_keys(schema, value, path, errors)
                    });
                }
            }
        }
        _ => {}
    }
}

/// What tells an item of a list apart; nothing in atomic lists.
fn item_key(list: &ListType, items: Option<Cursor<'_>>, item: &Value) -> Option<Value> {
    match list {
        ListType::Atomic => None,
        ListType::Set => Some(item.clone()),
        ListType::Map(keys) => {
            let value = |key: &String| {
                let default = || items?.property(key)?.node().default.clone();
                Some((key.clone(), item.get(key).cloned().or_else(default)?))
            };
            Some(Value::Object(keys.iter().filter_map(value).collect()))
        }
    }
}

/// Runs the rules of this node and of all below it.
fn rules(
    schema: Cursor<'_>,
    new: &Value,
    old: Option<&Value>,
    path: &mut String,
    errors: &mut Vec<FieldError>,
) {
    if let Some(rules) = &schema.node().rules {
        rules.check(new, old, path, errors);
    }
    match new {
        Value::Object(fields) => {
            for (name, value) in fields {
                if let Some(schema) = schema.field(name) {
                    let dot = if path.is_empty() { "" } else { "." };
                    let old = old.and_then(|old| old.get(name));
                    within(path, format_args!("{dot}{name}"), |path| {
                        rules_below(schema, value, old, path, errors)
                    });
                }
            }
        }
        Value::Array(items) => {
            let Some(item_schema) = schema.items() else { return };
            let list = &schema.node().list;
            for (index, item) in items.iter().enumerate() {
                // Only items with keys can be told to be the same as before.
                let key = match list {
                    ListType::Map(_) => item_key(list, Some(item_schema), item),
                    ListType::Atomic | ListType::Set => None,
                };
                let old = key.and_then(|key| {
                    let old = old?.as_array()?.iter();
                    old.into_iter()
                        .find(|old| item_key(list, Some(item_schema), old).as_ref() == Some(&key))
                });
                within(path, format_args!("[{index}]"), |path| {
                    rules_below(item_schema, item, old, path, errors)
                });
            }
        }
        _ => {}
    }
}

fn rules_below(
    schema: Cursor<'_>,
    new: &Value,
    old: Option<&Value>,
    path: &mut String,
    errors: &mut Vec<FieldError>,
) {
    // Null stands for an absent value wherever it is allowed.
    if !new.is_null() {
        rules(schema, new, old.filter(|old| !old.is_null()), path, errors);
    }
}
