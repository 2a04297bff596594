//! Names and numbers inside objects, in kube-apiserver's words (`k8s.io/apimachinery/pkg/util/validation`).

use serde_json::Value;

use crate::schema::FieldError;

/// The most characters of a label.
const LONGEST_LABEL: usize = 63;

const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must \
                     start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for \
                     validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";

/// What is wrong with an RFC 1123 label.
pub(super) fn dns_label(field: &str, name: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let edge = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if name.len() > LONGEST_LABEL {
        let why = format!("must be no more than {LONGEST_LABEL} bytes");
        errors.push(FieldError::invalid(field, &name.into(), &why));
    }
    if !edge(name.bytes().next()) || !edge(name.bytes().last()) || !name.bytes().all(inner) {
        errors.push(FieldError::invalid(field, &name.into(), LABEL));
    }
    errors
}

/// What is wrong with a required RFC 1123 label.
pub(super) fn required_label(field: &str, name: &Value) -> Vec<FieldError> {
    match name.as_str().unwrap_or_default() {
        "" => vec![FieldError::required(field, "")],
        name => dns_label(field, name),
    }
}

/// What is wrong with a port's number.
pub(super) fn port_errors(field: &str, number: &Value) -> Option<FieldError> {
    let zero = Value::from(0);
    let found = if number.is_null() { &zero } else { number };
    let fits = found
        .as_i64()
        .is_some_and(|number| (1..=65_535).contains(&number));
    (!fits).then(|| FieldError::invalid(field, found, "must be between 1 and 65535, inclusive"))
}

/// What is wrong with the name of a container's port.
pub(super) fn port_name(field: &str, name: &str, errors: &mut Vec<FieldError>) {
    let mut invalid = |why: &str| errors.push(FieldError::invalid(field, &name.into(), why));
    if name.len() > 15 {
        invalid("must be no more than 15 characters");
    }
    if !name
        .bytes()
        .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
    {
        invalid("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)");
    }
    if !name.bytes().any(|byte| byte.is_ascii_lowercase()) {
        invalid("must contain at least one letter (a-z)");
    }
    if name.contains("--") {
        invalid("must not contain consecutive hyphens");
    }
    if name.starts_with('-') || name.ends_with('-') {
        invalid("must not begin or end with a hyphen");
    }
}

/// What is wrong with a value that must be one of a few texts; absent ones are not looked at.
pub(super) fn one_of(field: &str, value: &Value, supported: &[&str], errors: &mut Vec<FieldError>) {
    if !value.is_null() && !supported.iter().any(|supported| value == supported) {
        let supported: Vec<String> = supported.iter().map(|text| (*text).to_owned()).collect();
        errors.push(FieldError::not_supported(field, value, &supported));
    }
}

/// What is wrong with a port's protocol.
pub(super) fn protocol(field: &str, value: &Value, errors: &mut Vec<FieldError>) {
    one_of(field, value, &["SCTP", "TCP", "UDP"], errors);
}

/// What is wrong with a number that must not be negative.
pub(super) fn not_negative(field: &str, value: &Value, errors: &mut Vec<FieldError>) {
    if value.as_i64().is_some_and(|number| number < 0) {
        errors.push(FieldError::invalid(
            field,
            value,
            "must be greater than or equal to 0",
        ));
    }
}

/// Whether a label selector selects these labels. An empty one selects everything.
pub(super) fn selects(selector: &Value, labels: &Value) -> bool {
    let mut equal = selector["matchLabels"].as_object().into_iter().flatten();
    let holds = |expression: &Value| {
        let found = &labels[expression["key"].as_str().unwrap_or_default()];
        let values = expression["values"].as_array();
        let listed = values.is_some_and(|values| values.contains(found));
        match expression["operator"].as_str().unwrap_or_default() {
            "In" => listed,
            "NotIn" => !listed,
            "Exists" => !found.is_null(),
            "DoesNotExist" => found.is_null(),
            _ => false,
        }
    };
    equal.all(|(name, value)| labels[name] == *value)
        && selector["matchExpressions"]
            .as_array()
            .into_iter()
            .flatten()
            .all(holds)
}
