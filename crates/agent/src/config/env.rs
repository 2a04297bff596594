//! Reads single variables of an environment, and says which is wrong and what it has to be.

use std::{collections::BTreeMap, ops::RangeInclusive, time::Duration};

use url::Url;

use super::{ConfigError, McpServer, PeerAgent};

/// The variables that are set, by name.
pub(super) struct Env(BTreeMap<String, String>);

impl Env {
    /// A variable that is empty counts as not set.
    pub(super) fn new(variables: impl IntoIterator<Item = (String, String)>) -> Self {
        let mut set: BTreeMap<String, String> = variables.into_iter().collect();
        set.retain(|_, value| !value.trim().is_empty());
        Self(set)
    }

    pub(super) fn get(&self, variable: &str) -> Option<&str> {
        self.0.get(variable).map(|value| value.trim())
    }

    pub(super) fn required(&self, variable: &str, meaning: &'static str) -> Result<&str, ConfigError> {
        self.get(variable).ok_or_else(|| ConfigError::Missing {
            variable: variable.to_owned(),
            meaning,
        })
    }

    pub(super) fn invalid(&self, variable: &str, expected: impl Into<String>) -> ConfigError {
        let value = self.get(variable).unwrap_or_default().to_owned();
        ConfigError::Invalid {
            variable: variable.to_owned(),
            value,
            expected: expected.into(),
        }
    }

    pub(super) fn parse<T: std::str::FromStr>(
        &self,
        variable: &str,
        expected: &str,
        default: T,
    ) -> Result<T, ConfigError> {
        match self.get(variable) {
            None => Ok(default),
            Some(value) => value.parse().map_err(|_| self.invalid(variable, expected)),
        }
    }

    /// A whole number within `range`.
    pub(super) fn number(
        &self,
        variable: &str,
        range: RangeInclusive<usize>,
        default: usize,
    ) -> Result<usize, ConfigError> {
        let expected = format!("a number from {} to {}", range.start(), range.end());
        let number = self.parse(variable, &expected, default)?;
        if !range.contains(&number) {
            return Err(self.invalid(variable, expected));
        }
        Ok(number)
    }

    pub(super) fn switch(&self, variable: &str, default: bool) -> Result<bool, ConfigError> {
        match self.get(variable).map(str::to_ascii_lowercase).as_deref() {
            None => Ok(default),
            Some("true" | "1" | "yes" | "on") => Ok(true),
            Some("false" | "0" | "no" | "off") => Ok(false),
            Some(_) => Err(self.invalid(variable, "true or false")),
        }
    }

    pub(super) fn seconds(&self, variable: &str, default: u32) -> Result<Duration, ConfigError> {
        const EXPECTED: &str = "a number of seconds above 0";
        let seconds: f64 = self.parse(variable, EXPECTED, f64::from(default))?;
        Duration::try_from_secs_f64(seconds)
            .ok()
            .filter(|duration| !duration.is_zero())
            .ok_or_else(|| self.invalid(variable, EXPECTED))
    }

    pub(super) fn url(&self, variable: &str, meaning: &'static str) -> Result<Url, ConfigError> {
        http_url(self.required(variable, meaning)?)
            .ok_or_else(|| self.invalid(variable, "an http or https URL"))
    }

    /// `MCP_SERVERS`, each with its `MCP_SERVER_<name>_URL`.
    pub(super) fn mcp_servers(&self) -> Result<Vec<McpServer>, ConfigError> {
        let servers = self.names("MCP_SERVERS").into_iter().map(|name| {
            let url = self.url(&format!("MCP_SERVER_{name}_URL"), "the URL of the MCP server")?;
            Ok(McpServer { name, url })
        });
        servers.collect()
    }

    /// `AGENT_SUB_AGENTS`, else `PEER_AGENTS`, each with its `PEER_AGENT_<NAME>_CARD_URL`.
    pub(super) fn peers(&self) -> Result<Vec<PeerAgent>, ConfigError> {
        if self.get(SUB_AGENTS).is_some() {
            return self.sub_agents();
        }
        let peers = self.names("PEER_AGENTS").into_iter().map(|name| {
            let key = name.to_uppercase().replace('-', "_");
            let url = self.url(&format!("PEER_AGENT_{key}_CARD_URL"), "the URL of the agent")?;
            Ok(PeerAgent { name, url })
        });
        peers.collect()
    }

    /// `name:url,name:url`.
    fn sub_agents(&self) -> Result<Vec<PeerAgent>, ConfigError> {
        let invalid = || self.invalid(SUB_AGENTS, "a list NAME:URL,NAME:URL with each name once");
        let mut peers: Vec<PeerAgent> = Vec::new();
        for entry in items(self.get(SUB_AGENTS).unwrap_or_default()) {
            let (name, url) = entry.split_once(':').ok_or_else(invalid)?;
            let name = name.trim().to_owned();
            if name.is_empty() || peers.iter().any(|known| known.name == name) {
                return Err(invalid());
            }
            let url = http_url(url.trim()).ok_or_else(invalid)?;
            peers.push(PeerAgent { name, url });
        }
        Ok(peers)
    }

    /// The names that a variable lists, each once.
    fn names(&self, variable: &str) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for name in items(self.get(variable).unwrap_or_default()) {
            if !names.iter().any(|known| known == name) {
                names.push(name.to_owned());
            }
        }
        names
    }
}

const SUB_AGENTS: &str = "AGENT_SUB_AGENTS";

/// The items of `a,b`, or of `[a,b]` as YAML users write it.
fn items(list: &str) -> impl Iterator<Item = &str> {
    let list = list
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .unwrap_or(list);
    list.split(',')
        .map(|item| item.trim().trim_matches(['"', '\'']))
        .filter(|item| !item.is_empty())
}

fn http_url(text: &str) -> Option<Url> {
    let url = Url::parse(text).ok()?;
    (matches!(url.scheme(), "http" | "https") && url.has_host()).then_some(url)
}
