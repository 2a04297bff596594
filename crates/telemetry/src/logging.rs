//! Logs go to standard error, one line each, as text or JSON; standard output belongs to the command.

use std::io::IsTerminal;

use tracing_subscriber::{
    EnvFilter,
    filter::{Directive, LevelFilter},
};

use crate::install_crypto_provider;

/// How log lines are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line, for collectors.
    Json,
}

/// What a role logs.
#[derive(Clone, Debug, Default)]
pub struct Logging {
    /// A level (`INFO`, `debug`) or a filter of `tracing-subscriber` (`info,kaos_node=debug`). `None`: `warn`.
    pub filter: Option<String>,
    /// The form of each line.
    pub format: LogFormat,
}

/// A log filter that cannot be parsed.
#[derive(Debug, thiserror::Error)]
#[error(
    "log filter {value:?} is not valid: {reason}; use a level such as info or debug, or target=level pairs"
)]
pub struct InvalidFilter {
    value: String,
    reason: String,
}

/// Sets up logging and the crypto provider for this process. Call once, first.
///
/// # Errors
/// When the filter cannot be parsed. The crypto provider is installed all the same.
pub fn init(logging: &Logging) -> Result<(), InvalidFilter> {
    install_crypto_provider();
    let value = logging.filter.clone().unwrap_or_else(|| "warn".to_owned());
    let filter = parse_filter(&value)?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    // An error means that a test harness has set up logging before us.
    let _ = match logging.format {
        LogFormat::Text => builder.with_ansi(std::io::stderr().is_terminal()).try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
    Ok(())
}

fn parse_filter(value: &str) -> Result<EnvFilter, InvalidFilter> {
    let invalid = |reason: String| InvalidFilter {
        value: value.to_owned(),
        reason,
    };
    let mut filter = EnvFilter::new("");
    // A plain level is meant for this project's own words. These libraries write about errors that we handle
    // and report ourselves, and rmcp several lines for each request.
    if value
        .trim()
        .parse()
        .is_ok_and(|level: LevelFilter| level <= LevelFilter::INFO)
    {
        for quiet in ["rmcp=off", "kube_client=off"] {
            filter = filter.add_directive(quiet.parse().map_err(|e| invalid(format!("{e}")))?);
        }
    }
    for part in value.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        // A lone word that is no level would be taken for a target, and silence everything else.
        if !part.contains(['=', '[']) && part.parse::<LevelFilter>().is_err() {
            return Err(invalid(format!("{part:?} is not a level")));
        }
        let directive: Directive = part.parse().map_err(|e| invalid(format!("{e}")))?;
        filter = filter.add_directive(directive);
    }
    Ok(filter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_in_any_case_and_targets_are_filters() {
        for good in ["INFO", "debug", "info,kaos_node=trace", "off"] {
            assert!(parse_filter(good).is_ok(), "{good}");
        }
        let error = parse_filter("loud").unwrap_err().to_string();
        assert!(error.contains("\"loud\""), "{error}");
    }
}
