//! What the tool server is told by its environment.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use kaos_guard::HostPolicy;

use crate::{
    packages,
    settings::{BadNumber, HOSTS_VARIABLE, TIMEOUT_VARIABLE, number, seconds},
};

/// The Python source whose functions are the tools.
pub const SOURCE_VARIABLE: &str = "MCP_TOOLS_STRING";
/// A file with that source instead. Its content is read again when it changes.
pub const FILE_VARIABLE: &str = "MCP_TOOLS_FILE";
/// Packages of PyPI that the source imports, as a requirements file has them, beside those of its PEP 723 block.
pub const REQUIREMENTS_VARIABLE: &str = "MCP_TOOLS_REQUIREMENTS";
/// Worker processes, each running one call at a time; 2 where unset.
pub const WORKERS_VARIABLE: &str = "KAOS_TOOL_WORKERS";

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
    /// Packages that are installed for the source, as lines of a requirements file.
    pub requirements: Vec<String>,
    /// The Python interpreter, and where packages for it are kept.
    pub packages: packages::Settings,
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
    #[error(transparent)]
    BadNumber(#[from] BadNumber),
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
            requirements: Vec::new(),
            packages: packages::Settings::default(),
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
        let variables: BTreeMap<String, String> = variables
            .into_iter()
            .filter(|(_, value)| !value.trim().is_empty())
            .collect();
        let set = |name: &str| variables.get(name).cloned();
        let mut config = match (set(SOURCE_VARIABLE), set(FILE_VARIABLE)) {
            (Some(text), None) => Self::new(text),
            (None, Some(path)) => Self::from_file(path),
            (None, None) => return Err(ConfigError::NoSource),
            (Some(_), Some(_)) => return Err(ConfigError::TwoSources),
        };
        config.packages = packages::Settings::from_env(&variables);
        config.requirements = set(REQUIREMENTS_VARIABLE)
            .iter()
            .flat_map(|text| text.lines())
            .map(|line| line.trim().to_owned())
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            .collect();
        let workers = number(
            &variables,
            WORKERS_VARIABLE,
            1..=MAX_WORKERS,
            "a whole number from 1 to 64",
        )?;
        config.workers = workers.unwrap_or(config.workers);
        config.call_timeout = seconds(&variables, TIMEOUT_VARIABLE)?.unwrap_or(config.call_timeout);
        if let Some(hosts) = variables.get(HOSTS_VARIABLE) {
            config.hosts = HostPolicy::listed(hosts);
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
                config.packages.python.to_str(),
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
            ("MCP_TOOLS_REQUIREMENTS", "# these\n numpy==2.4\n\nrich\n"),
            ("KAOS_TOOL_TIMEOUT_SECONDS", "0.5"),
        ])
        .unwrap();
        assert_eq!(
            (
                config.packages.python.to_str(),
                config.workers,
                config.call_timeout.as_millis()
            ),
            (Some("/opt/python3.13"), 4, 500)
        );
        assert_eq!(config.requirements, ["numpy==2.4", "rich"]);
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
