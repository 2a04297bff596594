//! What the bridge is told by its command line and its environment.

use std::{collections::BTreeMap, time::Duration};

use super::command::{self, Command, CommandError, Wanted};
use kaos_guard::HostPolicy;

use crate::{
    packages::{self, PackageError},
    settings::{BadNumber, number, seconds},
};

/// The command line of the server, where `kaos serve bridge` is given none: words divided as a shell does, of
/// which nothing else is done.
pub const COMMAND_VARIABLE: &str = "MCP_COMMAND";
/// How many sessions, and so server processes, there may be at a time; 32 where unset.
pub const SESSIONS_VARIABLE: &str = "KAOS_BRIDGE_SESSIONS";
/// How long a session may go unused before it ends, in seconds; 900 where unset.
pub const IDLE_VARIABLE: &str = "KAOS_BRIDGE_IDLE_SECONDS";

const DEFAULT_SESSIONS: usize = 32;
const DEFAULT_IDLE: Duration = Duration::from_secs(900);
/// Longer than a Python function may take by default: servers of others also start with their first request.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(300);

/// The configuration of the bridge.
#[derive(Clone, Debug)]
pub struct BridgeConfig {
    wanted: Wanted,
    packages: packages::Settings,
    /// How long a request may go without an answer or a sign of progress.
    pub call_timeout: Duration,
    /// How long a session may go unused.
    pub idle_timeout: Duration,
    /// How many sessions there may be.
    pub sessions: usize,
    /// The names that requests may be addressed to.
    pub hosts: HostPolicy,
}

/// A command line or variable that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The command cannot be run.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// A number is not one, or out of range.
    #[error(transparent)]
    Number(#[from] BadNumber),
}

impl BridgeConfig {
    /// Reads the configuration: the words of the command line, and environment variables as name and value.
    ///
    /// # Errors
    /// When there is no command or there are two, or a number cannot be used.
    pub fn from_env(
        words: Vec<String>,
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, ConfigError> {
        let variables: BTreeMap<String, String> = variables
            .into_iter()
            .filter(|(_, value)| !value.trim().is_empty())
            .collect();
        let words = match (words.is_empty(), variables.get(COMMAND_VARIABLE)) {
            (false, Some(_)) => return Err(CommandError::Two.into()),
            (true, Some(text)) => command::split(text)?,
            (_, None) => words,
        };
        let has_uv = variables
            .get("PATH")
            .is_some_and(|path| std::env::split_paths(path).any(|folder| folder.join("uvx").is_file()));
        Ok(Self {
            wanted: Wanted::read(words, has_uv)?,
            call_timeout: seconds(&variables, crate::settings::TIMEOUT_VARIABLE)?.unwrap_or(DEFAULT_TIMEOUT),
            idle_timeout: seconds(&variables, IDLE_VARIABLE)?.unwrap_or(DEFAULT_IDLE),
            sessions: number(
                &variables,
                SESSIONS_VARIABLE,
                1..=1024,
                "a whole number from 1 to 1024",
            )?
            .unwrap_or(DEFAULT_SESSIONS),
            hosts: variables
                .get(crate::settings::HOSTS_VARIABLE)
                .map(|hosts| HostPolicy::listed(hosts))
                .unwrap_or_default(),
            packages: packages::Settings::from_env(&variables),
        })
    }

    /// The same with the command ready to be started.
    pub(super) async fn prepare(self) -> Result<Ready, PackageError> {
        Ok(Ready {
            command: self.wanted.prepare(&self.packages).await?,
            call_timeout: self.call_timeout,
            idle_timeout: self.idle_timeout,
            sessions: self.sessions,
        })
    }
}

/// What the sessions are told.
#[derive(Debug)]
pub(super) struct Ready {
    pub(super) command: Command,
    pub(super) call_timeout: Duration,
    pub(super) idle_timeout: Duration,
    pub(super) sessions: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str], variables: &[(&str, &str)]) -> Result<BridgeConfig, ConfigError> {
        let words = words.iter().map(|&word| word.to_owned()).collect();
        let variables = variables
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        BridgeConfig::from_env(words, variables)
    }

    #[test]
    fn the_command_is_of_the_command_line_or_of_the_environment() {
        let given = read(
            &["server", "a b"],
            &[("KAOS_BRIDGE_SESSIONS", "3"), ("MCP_COMMAND", " ")],
        )
        .unwrap();
        assert_eq!(
            (
                given.sessions,
                given.call_timeout.as_secs(),
                given.idle_timeout.as_secs()
            ),
            (3, 300, 900)
        );
        let of_env = read(&[], &[("MCP_COMMAND", "server 'a b'")]).unwrap();
        assert_eq!(given.wanted, of_env.wanted);
    }

    #[test]
    fn what_cannot_be_used_is_named_with_the_fix() {
        for (words, variables, said) in [
            (
                &[][..],
                &[][..],
                "there is no command; write it behind two dashes (kaos serve bridge -- npx -y my-server), or in \
                 MCP_COMMAND",
            ),
            (
                &["a"],
                &[("MCP_COMMAND", "b")],
                "there are two commands, one on the command line and one in MCP_COMMAND; remove one of them",
            ),
            (
                &[],
                &[("MCP_COMMAND", "a 'b")],
                "MCP_COMMAND: \"a 'b\" has a quote without an end; close it, or put a backslash before it",
            ),
            (
                &["a"],
                &[("KAOS_BRIDGE_SESSIONS", "0")],
                "KAOS_BRIDGE_SESSIONS is \"0\"; set it to a whole number from 1 to 1024",
            ),
            (
                &["a"],
                &[("KAOS_BRIDGE_IDLE_SECONDS", "soon")],
                "KAOS_BRIDGE_IDLE_SECONDS is \"soon\"; set it to seconds, from 0.1 to 86400",
            ),
        ] {
            assert_eq!(read(words, variables).unwrap_err().to_string(), said);
        }
    }
}
