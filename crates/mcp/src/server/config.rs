//! What the tool server is told by its environment.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use super::hosts::HostPolicy;

/// The Python source whose functions are the tools.
pub const SOURCE_VARIABLE: &str = "MCP_TOOLS_STRING";
/// A file with that source instead. Its content is read again when it changes.
pub const FILE_VARIABLE: &str = "MCP_TOOLS_FILE";
/// The Python interpreter, a path or a name in `PATH`; `python3` where unset.
pub const PYTHON_VARIABLE: &str = "KAOS_PYTHON";
/// Worker processes, each running one call at a time; 2 where unset.
pub const WORKERS_VARIABLE: &str = "KAOS_TOOL_WORKERS";
/// The longest that one call may run, in seconds, fractions allowed; 60 where unset.
pub const TIMEOUT_VARIABLE: &str = "KAOS_TOOL_TIMEOUT_SECONDS";
/// Host names that the server may be asked by, beyond those it knows; see [`HostPolicy`].
pub const HOSTS_VARIABLE: &str = "KAOS_ALLOWED_HOSTS";

const DEFAULT_WORKERS: usize = 2;
const MAX_WORKERS: usize = 64;
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

/// Where the Python source is whose public functions become tools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Here.
    Text(String),
    /// In this file, as long as the server runs: when its content changes, the tools do.
    File(PathBuf),
}

/// The configuration of the tool server.
#[derive(Clone, Debug)]
pub struct ToolServerConfig {
    /// Python source; its public functions become tools.
    pub source: Source,
    /// The Python interpreter.
    pub python: PathBuf,
    /// How many worker processes run calls.
    pub workers: usize,
    /// How long one call may wait for a worker, and then how long it may run.
    pub call_timeout: Duration,
    /// The names that requests may be addressed to.
    pub hosts: HostPolicy,
}

/// An environment variable that is missing or cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// There is no Python source.
    #[error(
        "{SOURCE_VARIABLE} is not set or empty; set it to Python source that defines at least one function, \
         or {FILE_VARIABLE} to the path of a file with such source"
    )]
    NoSource,
    /// There are two sources.
    #[error("{SOURCE_VARIABLE} and {FILE_VARIABLE} are both set; unset one of them")]
    TwoSources,
    /// A number is not one, or out of range.
    #[error("{variable} is {value:?}; set it to {wanted}")]
    BadNumber {
        /// The environment variable.
        variable: &'static str,
        /// What it was set to.
        value: String,
        /// What it may be.
        wanted: &'static str,
    },
}

impl ToolServerConfig {
    /// The configuration for `source`, everything else as it is where no variable is set.
    pub fn new(source: impl Into<String>) -> Self {
        Self::of(Source::Text(source.into()))
    }

    /// As [`ToolServerConfig::new`], for source in a file.
    pub fn from_file(path: impl Into<PathBuf>) -> Self {
        Self::of(Source::File(path.into()))
    }

    fn of(source: Source) -> Self {
        Self {
            source,
            python: PathBuf::from("python3"),
            workers: DEFAULT_WORKERS,
            call_timeout: DEFAULT_TIMEOUT,
            hosts: HostPolicy::default(),
        }
    }

    /// Reads the configuration from environment variables, given as name and value.
    ///
    /// # Errors
    /// When the source is missing or given twice, or a number cannot be used.
    pub fn from_env(variables: impl IntoIterator<Item = (String, String)>) -> Result<Self, ConfigError> {
        let variables: BTreeMap<String, String> = variables.into_iter().collect();
        let set = |name: &str| {
            variables
                .get(name)
                .filter(|value| !value.trim().is_empty())
                .cloned()
        };
        let mut config = match (set(SOURCE_VARIABLE), set(FILE_VARIABLE)) {
            (Some(text), None) => Self::new(text),
            (None, Some(path)) => Self::from_file(path),
            (None, None) => return Err(ConfigError::NoSource),
            (Some(_), Some(_)) => return Err(ConfigError::TwoSources),
        };
        if let Some(python) = set(PYTHON_VARIABLE) {
            config.python = PathBuf::from(python.trim());
        }
        if let Some(value) = set(WORKERS_VARIABLE) {
            let workers = value
                .trim()
                .parse()
                .ok()
                .filter(|workers| (1..=MAX_WORKERS).contains(workers));
            config.workers = workers.ok_or(ConfigError::BadNumber {
                variable: WORKERS_VARIABLE,
                value,
                wanted: "a whole number from 1 to 64",
            })?;
        }
        if let Some(value) = set(TIMEOUT_VARIABLE) {
            let seconds = value
                .trim()
                .parse::<f64>()
                .ok()
                .filter(|seconds| (0.1..=86_400.0).contains(seconds));
            let seconds = seconds.ok_or(ConfigError::BadNumber {
                variable: TIMEOUT_VARIABLE,
                value,
                wanted: "seconds, from 0.1 to 86400",
            })?;
            config.call_timeout = Duration::from_secs_f64(seconds);
        }
        if let Some(hosts) = set(HOSTS_VARIABLE) {
            config.hosts = HostPolicy::listed(&hosts);
        }
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(pairs: &[(&str, &str)]) -> Result<ToolServerConfig, ConfigError> {
        ToolServerConfig::from_env(
            pairs
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned())),
        )
    }

    #[test]
    fn the_defaults_hold_where_nothing_is_set() {
        let config = parse(&[("MCP_TOOLS_STRING", "def f(): pass")]).unwrap();
        assert_eq!(
            (
                config.source,
                config.python.to_str(),
                config.workers,
                config.call_timeout.as_secs()
            ),
            (Source::Text("def f(): pass".to_owned()), Some("python3"), 2, 60)
        );
        let config = parse(&[("MCP_TOOLS_STRING", ""), ("MCP_TOOLS_FILE", "/tools.py")]).unwrap();
        assert_eq!(config.source, Source::File(PathBuf::from("/tools.py")));
    }

    #[test]
    fn every_variable_is_read() {
        let config = parse(&[
            ("MCP_TOOLS_STRING", "def f(): pass"),
            ("KAOS_PYTHON", "/opt/python3.13"),
            ("KAOS_TOOL_WORKERS", "4"),
            ("KAOS_TOOL_TIMEOUT_SECONDS", "0.5"),
        ])
        .unwrap();
        assert_eq!(
            (
                config.python.to_str(),
                config.workers,
                config.call_timeout.as_millis()
            ),
            (Some("/opt/python3.13"), 4, 500)
        );
    }

    #[test]
    fn what_cannot_be_used_is_named_with_the_fix() {
        let said = |pairs: &[(&str, &str)]| parse(pairs).unwrap_err().to_string();
        let source = ("MCP_TOOLS_STRING", "def f(): pass");
        assert_eq!(
            said(&[("MCP_TOOLS_STRING", " \n")]),
            "MCP_TOOLS_STRING is not set or empty; set it to Python source that defines at least one function, \
             or MCP_TOOLS_FILE to the path of a file with such source"
        );
        assert_eq!(
            said(&[source, ("MCP_TOOLS_FILE", "/tools.py")]),
            "MCP_TOOLS_STRING and MCP_TOOLS_FILE are both set; unset one of them"
        );
        assert_eq!(
            said(&[source, ("KAOS_TOOL_WORKERS", "0")]),
            "KAOS_TOOL_WORKERS is \"0\"; set it to a whole number from 1 to 64"
        );
        assert_eq!(
            said(&[source, ("KAOS_TOOL_TIMEOUT_SECONDS", "soon")]),
            "KAOS_TOOL_TIMEOUT_SECONDS is \"soon\"; set it to seconds, from 0.1 to 86400"
        );
        assert!(parse(&[source, ("KAOS_TOOL_TIMEOUT_SECONDS", "NaN")]).is_err());
    }
}
