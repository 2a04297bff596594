//! What an agent is told by its environment.

use std::{collections::BTreeMap, time::Duration};

use url::Url;

/// How an agent is set up.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// `AGENT_NAME`.
    pub name: String,
    /// `AGENT_DESCRIPTION`: what others are told about it.
    pub description: String,
    /// `AGENT_INSTRUCTIONS`: how it is to act.
    pub instructions: String,
    /// `AGENT_PORT`: the port that the agent's card names.
    pub port: u16,
    /// `MODEL_API_URL`: a server of the Chat Completions API, with or without the `/v1` of its paths.
    pub model_api_url: Url,
    /// `MODEL_NAME`.
    pub model: String,
    /// `MCP_SERVERS` and `MCP_SERVER_<name>_URL`, in the order given: the first server that has a tool of a
    /// name is the one called.
    pub mcp_servers: Vec<McpServer>,
    /// `AGENTIC_LOOP_MAX_STEPS`: how often the model is asked for one answer at most.
    pub max_steps: u32,
    /// `AGENTIC_LOOP_ENABLE_TOOLS`: whether the model is offered the tools of the MCP servers.
    pub enable_tools: bool,
    /// `AGENT_TOOL_TIMEOUT_SECONDS`: how long one tool call may take.
    pub tool_timeout: Duration,
    /// `AGENT_MODEL_TIMEOUT_SECONDS`: how long the model may stay silent, before it begins to answer and
    /// between two pieces of its answer.
    pub model_timeout: Duration,
    /// `AGENT_SHUTDOWN_GRACE_SECONDS`: how long answers that have begun may take to end once the agent is told
    /// to stop.
    pub shutdown_grace: Duration,
    /// `LOG_LEVEL`, else `AGENT_LOG_LEVEL`.
    pub log_level: Option<String>,
}

/// An MCP server whose tools the agent uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct McpServer {
    /// Its name.
    pub name: String,
    /// Where it is, with or without the path `/mcp`.
    pub url: Url,
}

/// An environment that no agent can be set up from.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A variable without which there is no agent.
    #[error("environment variable {variable} is required: set it to {meaning}")]
    Missing {
        /// The variable.
        variable: String,
        /// What it has to say.
        meaning: &'static str,
    },
    /// A variable with a value that means nothing.
    #[error("environment variable {variable} is {value:?}, which is not {expected}")]
    Invalid {
        /// The variable.
        variable: String,
        /// Its value.
        value: String,
        /// What it has to be.
        expected: &'static str,
    },
    /// A variable that asks for something that this agent does not do.
    #[error("environment variable {variable} is {value:?}, but this agent has no {feature}: remove it")]
    Unsupported {
        /// The variable.
        variable: &'static str,
        /// Its value.
        value: String,
        /// What it asks for.
        feature: &'static str,
    },
}

/// Variables that other KAOS agents obey, and what they ask for. An agent that ignored them would run, but
/// not do what its manifest says.
const UNSUPPORTED: [(&str, &str); 6] = [
    ("AGENT_SUB_AGENTS", "delegation to other agents"),
    ("PEER_AGENTS", "delegation to other agents"),
    (
        "DEBUG_MOCK_RESPONSES",
        "scripted answers (the model proxy has a mock)",
    ),
    ("MEMORY_CONTEXT_LIMIT", "memory"),
    ("MEMORY_MAX_SESSIONS", "memory"),
    ("MEMORY_MAX_SESSION_EVENTS", "memory"),
];

impl Config {
    /// Reads the configuration from the variables of an environment. A variable that is empty counts as not
    /// set.
    ///
    /// # Errors
    /// Names the first variable that is missing, malformed or asks for something that is not supported.
    pub fn from_env(variables: impl IntoIterator<Item = (String, String)>) -> Result<Self, ConfigError> {
        let mut env = Env(variables.into_iter().collect());
        env.0.retain(|_, value| !value.trim().is_empty());
        for (variable, feature) in UNSUPPORTED {
            if let Some(value) = env.get(variable) {
                return Err(ConfigError::Unsupported {
                    variable,
                    value: value.to_owned(),
                    feature,
                });
            }
        }
        if env.switch("MEMORY_ENABLED", false)? {
            let value = env.get("MEMORY_ENABLED").unwrap_or_default().to_owned();
            return Err(ConfigError::Unsupported {
                variable: "MEMORY_ENABLED",
                value,
                feature: "memory",
            });
        }
        let port = env.parse("AGENT_PORT", "a port number", 8000)?;
        Ok(Self {
            name: env.required("AGENT_NAME", "the agent's name")?.to_owned(),
            description: env.get("AGENT_DESCRIPTION").unwrap_or("AI Agent").to_owned(),
            instructions: env
                .get("AGENT_INSTRUCTIONS")
                .unwrap_or("You are a helpful assistant.")
                .to_owned(),
            port,
            model_api_url: env.url("MODEL_API_URL", "the URL of a server of the Chat Completions API")?,
            model: env
                .required("MODEL_NAME", "the name of the model to ask")?
                .to_owned(),
            mcp_servers: env.mcp_servers()?,
            max_steps: match env.parse("AGENTIC_LOOP_MAX_STEPS", POSITIVE, 5)? {
                0 => return Err(env.invalid("AGENTIC_LOOP_MAX_STEPS", POSITIVE)),
                steps => steps,
            },
            enable_tools: env.switch("AGENTIC_LOOP_ENABLE_TOOLS", true)?,
            tool_timeout: env.seconds("AGENT_TOOL_TIMEOUT_SECONDS", 60)?,
            model_timeout: env.seconds("AGENT_MODEL_TIMEOUT_SECONDS", 60)?,
            shutdown_grace: env.seconds("AGENT_SHUTDOWN_GRACE_SECONDS", 25)?,
            log_level: env
                .get("LOG_LEVEL")
                .or_else(|| env.get("AGENT_LOG_LEVEL"))
                .map(str::to_owned),
        })
    }
}

const POSITIVE: &str = "a number of at least 1";

struct Env(BTreeMap<String, String>);

impl Env {
    fn get(&self, variable: &str) -> Option<&str> {
        self.0.get(variable).map(|value| value.trim())
    }

    fn required(&self, variable: &str, meaning: &'static str) -> Result<&str, ConfigError> {
        self.get(variable).ok_or_else(|| ConfigError::Missing {
            variable: variable.to_owned(),
            meaning,
        })
    }

    fn invalid(&self, variable: &str, expected: &'static str) -> ConfigError {
        let value = self.get(variable).unwrap_or_default().to_owned();
        ConfigError::Invalid {
            variable: variable.to_owned(),
            value,
            expected,
        }
    }

    fn parse<T: std::str::FromStr>(
        &self,
        variable: &str,
        expected: &'static str,
        default: T,
    ) -> Result<T, ConfigError> {
        match self.get(variable) {
            None => Ok(default),
            Some(value) => value.parse().map_err(|_| self.invalid(variable, expected)),
        }
    }

    fn switch(&self, variable: &str, default: bool) -> Result<bool, ConfigError> {
        match self.get(variable).map(str::to_ascii_lowercase).as_deref() {
            None => Ok(default),
            Some("true" | "1" | "yes" | "on") => Ok(true),
            Some("false" | "0" | "no" | "off") => Ok(false),
            Some(_) => Err(self.invalid(variable, "true or false")),
        }
    }

    fn seconds(&self, variable: &str, default: u32) -> Result<Duration, ConfigError> {
        const EXPECTED: &str = "a number of seconds above 0";
        let seconds: f64 = self.parse(variable, EXPECTED, f64::from(default))?;
        Duration::try_from_secs_f64(seconds)
            .ok()
            .filter(|duration| !duration.is_zero())
            .ok_or_else(|| self.invalid(variable, EXPECTED))
    }

    fn url(&self, variable: &str, meaning: &'static str) -> Result<Url, ConfigError> {
        Url::parse(self.required(variable, meaning)?)
            .ok()
            .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
            .ok_or_else(|| self.invalid(variable, "an http or https URL"))
    }

    /// `a,b`, or `[a,b]` as YAML users write it.
    fn mcp_servers(&self) -> Result<Vec<McpServer>, ConfigError> {
        let list = self.get("MCP_SERVERS").unwrap_or_default();
        let list = list
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
            .unwrap_or(list);
        let mut servers: Vec<McpServer> = Vec::new();
        for name in list.split(',') {
            let name = name.trim().trim_matches(['"', '\'']);
            if name.is_empty() || servers.iter().any(|known| known.name == name) {
                continue;
            }
            let url = self.url(&format!("MCP_SERVER_{name}_URL"), "the URL of the MCP server")?;
            servers.push(McpServer {
                name: name.to_owned(),
                url,
            });
        }
        Ok(servers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUIRED: [(&str, &str); 3] = [
        ("AGENT_NAME", "ann"),
        ("MODEL_API_URL", "http://model:8000"),
        ("MODEL_NAME", "m"),
    ];

    fn read(variables: &[(&str, &str)]) -> Result<Config, String> {
        let all = REQUIRED
            .iter()
            .chain(variables)
            .map(|(name, value)| (name.to_string(), value.to_string()));
        Config::from_env(all).map_err(|error| error.to_string())
    }

    #[test]
    fn defaults_are_those_of_the_reference() {
        let config = read(&[]).unwrap();
        assert_eq!(
            config,
            Config {
                name: "ann".to_owned(),
                description: "AI Agent".to_owned(),
                instructions: "You are a helpful assistant.".to_owned(),
                port: 8000,
                model_api_url: Url::parse("http://model:8000").unwrap(),
                model: "m".to_owned(),
                mcp_servers: Vec::new(),
                max_steps: 5,
                enable_tools: true,
                tool_timeout: Duration::from_secs(60),
                model_timeout: Duration::from_secs(60),
                shutdown_grace: Duration::from_secs(25),
                log_level: None,
            }
        );
    }

    #[test]
    fn every_variable_takes_effect() {
        let config = read(&[
            ("AGENT_DESCRIPTION", "adds"),
            ("AGENT_INSTRUCTIONS", "Be exact."),
            ("AGENT_PORT", "9000"),
            ("AGENTIC_LOOP_MAX_STEPS", "3"),
            ("AGENTIC_LOOP_ENABLE_TOOLS", "False"),
            ("AGENT_TOOL_TIMEOUT_SECONDS", "0.5"),
            ("AGENT_MODEL_TIMEOUT_SECONDS", "120"),
            ("AGENT_SHUTDOWN_GRACE_SECONDS", "1"),
            ("AGENT_LOG_LEVEL", "debug"),
            ("MEMORY_ENABLED", "false"),
        ])
        .unwrap();
        assert_eq!(
            (config.description.as_str(), config.instructions.as_str()),
            ("adds", "Be exact.")
        );
        assert_eq!(config.port, 9000);
        assert_eq!((config.max_steps, config.enable_tools), (3, false));
        let seconds =
            [config.tool_timeout, config.model_timeout, config.shutdown_grace].map(|d| d.as_secs_f64());
        assert_eq!(seconds, [0.5, 120.0, 1.0]);
        assert_eq!(config.log_level.as_deref(), Some("debug"));
        let config = read(&[("LOG_LEVEL", "info"), ("AGENT_LOG_LEVEL", "x")]).unwrap();
        assert_eq!(config.log_level.as_deref(), Some("info"));
    }

    #[test]
    fn mcp_servers_are_a_list_with_a_url_each() {
        let urls = [
            ("MCP_SERVER_b-tools_URL", "http://b/base/mcp"),
            ("MCP_SERVER_a_URL", "http://a:8000"),
        ];
        for list in ["b-tools,a", "[b-tools, a]", "[\"b-tools\",'a',]", "b-tools,a,a"] {
            let config = read(&[urls[0], urls[1], ("MCP_SERVERS", list)]).unwrap();
            let found: Vec<_> = config
                .mcp_servers
                .iter()
                .map(|s| (s.name.as_str(), s.url.as_str()))
                .collect();
            assert_eq!(
                found,
                [("b-tools", "http://b/base/mcp"), ("a", "http://a:8000/")],
                "{list}"
            );
        }
        assert_eq!(read(&[("MCP_SERVERS", "[]")]).unwrap().mcp_servers, []);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let cases: [(&[(&str, &str)], &str); 12] = [
            (
                &[("AGENT_NAME", " ")],
                "AGENT_NAME is required: set it to the agent's name",
            ),
            (&[("MODEL_API_URL", "")], "MODEL_API_URL is required"),
            (&[("MODEL_NAME", "")], "MODEL_NAME is required"),
            (
                &[("MODEL_API_URL", "model:8000")],
                "MODEL_API_URL is \"model:8000\", which is not an http or https URL",
            ),
            (
                &[("AGENT_PORT", "70000")],
                "AGENT_PORT is \"70000\", which is not a port number",
            ),
            (
                &[("AGENTIC_LOOP_MAX_STEPS", "0")],
                "AGENTIC_LOOP_MAX_STEPS is \"0\", which is not a number of at least 1",
            ),
            (
                &[("AGENTIC_LOOP_MAX_STEPS", "-1")],
                "AGENTIC_LOOP_MAX_STEPS is \"-1\"",
            ),
            (
                &[("AGENTIC_LOOP_ENABLE_TOOLS", "maybe")],
                "AGENTIC_LOOP_ENABLE_TOOLS is \"maybe\", which is not true or false",
            ),
            (
                &[("AGENT_TOOL_TIMEOUT_SECONDS", "NaN")],
                "AGENT_TOOL_TIMEOUT_SECONDS is \"NaN\"",
            ),
            (
                &[("MCP_SERVERS", "a")],
                "MCP_SERVER_a_URL is required: set it to the URL of the MCP server",
            ),
            (
                &[("PEER_AGENTS", "bob")],
                "PEER_AGENTS is \"bob\", but this agent has no delegation",
            ),
            (
                &[("MEMORY_ENABLED", "true")],
                "MEMORY_ENABLED is \"true\", but this agent has no memory",
            ),
        ];
        for (variables, expected) in cases {
            let error = read(variables).unwrap_err();
            assert!(error.contains(expected), "{variables:?}: {error}");
        }
    }
}
