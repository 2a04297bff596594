//! Deserializers for what servers of this API write differently from its reference.

use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// `null` is read as the default, as an absent field is.
pub(crate) fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

/// A string, or any other JSON value in its compact text: some servers write the arguments of a call as an
/// object, which the API defines as a string of JSON.
pub(crate) fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Ok(optional_text(deserializer)?.unwrap_or_default())
}

/// As [`text`], with `null` as `None`: error codes are strings, numbers or `null`.
pub(crate) fn optional_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Ok(match Value::deserialize(deserializer)? {
        Value::Null => None,
        Value::String(text) => Some(text),
        other => Some(other.to_string()),
    })
}
