//! Environment variables that both roles read, and how numbers are read from them.

use std::{collections::BTreeMap, ops::RangeInclusive, time::Duration};

/// The longest that one call may run, in seconds, fractions allowed.
pub const TIMEOUT_VARIABLE: &str = "KAOS_TOOL_TIMEOUT_SECONDS";
/// Host names that the server may be asked by, beyond those it knows; see [`HostPolicy`](kaos_guard::HostPolicy).
pub const HOSTS_VARIABLE: &str = "KAOS_ALLOWED_HOSTS";

/// A number is not one, or out of range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{variable} is {value:?}; set it to {wanted}")]
pub struct BadNumber {
    /// The environment variable.
    pub variable: &'static str,
    /// What it was set to.
    pub value: String,
    /// What it may be.
    pub wanted: &'static str,
}

/// A whole number in a range; `None` where the variable is not set.
pub(crate) fn number(
    variables: &BTreeMap<String, String>,
    variable: &'static str,
    range: RangeInclusive<usize>,
    wanted: &'static str,
) -> Result<Option<usize>, BadNumber> {
    let Some(value) = variables.get(variable) else {
        return Ok(None);
    };
    let number = value.trim().parse().ok().filter(|number| range.contains(number));
    number.map(Some).ok_or_else(|| BadNumber {
        variable,
        value: value.clone(),
        wanted,
    })
}

/// A time in seconds; `None` where the variable is not set.
pub(crate) fn seconds(
    variables: &BTreeMap<String, String>,
    variable: &'static str,
) -> Result<Option<Duration>, BadNumber> {
    let Some(value) = variables.get(variable) else {
        return Ok(None);
    };
    let seconds = value
        .trim()
        .parse::<f64>()
        .ok()
        .filter(|seconds| (0.1..=86_400.0).contains(seconds));
    let seconds = seconds.ok_or_else(|| BadNumber {
        variable,
        value: value.clone(),
        wanted: "seconds, from 0.1 to 86400",
    })?;
    Ok(Some(Duration::from_secs_f64(seconds)))
}
