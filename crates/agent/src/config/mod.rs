//! What an agent is told by its environment.

mod env;
#[cfg(test)]
mod tests;

use std::time::Duration;

use kaos_guard::{HOSTS_VARIABLE, HostPolicy};
use kaos_openai::Message;
use url::Url;

use crate::{
    config::env::Env,
    memory::{self, Limits},
    model,
};

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
    /// `AGENT_REQUEST_TIMEOUT_SECONDS`: how long one answer may take, with all its steps.
    pub request_timeout: Duration,
    /// `AGENT_STRICT_ERRORS`: whether a failure of the model is an error of HTTP instead of an answer that says
    /// so.
    pub strict_errors: bool,
    /// `TOOL_CALL_MODE`: how the model calls tools.
    pub tool_calls: ToolCalls,
    /// `AGENTIC_LOOP_ENABLE_TOOLS`: whether the model is offered the tools of the MCP servers.
    pub enable_tools: bool,
    /// `AGENT_SUB_AGENTS` (`name:url,name:url`), else `PEER_AGENTS` and `PEER_AGENT_<NAME>_CARD_URL`, with the
    /// name in capitals and `_` for `-`.
    pub peers: Vec<PeerAgent>,
    /// `AGENTIC_LOOP_ENABLE_DELEGATION`: whether the model may hand tasks to the peers.
    pub enable_delegation: bool,
    /// `AGENT_DELEGATION_TIMEOUT_SECONDS`: how long a peer may take to answer.
    pub delegation_timeout: Duration,
    /// `MEMORY_CONTEXT_LIMIT`: how many messages of a conversation a peer is told, and how many of a remembered
    /// session the model is.
    pub context_limit: usize,
    /// `MEMORY_ENABLED`, `MEMORY_TYPE`, `MEMORY_MAX_SESSIONS` and `MEMORY_MAX_SESSION_EVENTS`: what is
    /// remembered at most; `None`: nothing.
    pub memory: Option<Limits>,
    /// `AGENT_DEBUG_MEMORY_ENDPOINTS`: whether `/memory/…` shows what is remembered, to whoever asks.
    pub memory_endpoints: bool,
    /// `DEBUG_MOCK_RESPONSES`: what the agent takes for the model's answers, one after the other, before it
    /// asks the model.
    pub mock_responses: Vec<Message>,
    /// `AGENT_TOOL_TIMEOUT_SECONDS`: how long one tool call may take.
    pub tool_timeout: Duration,
    /// `AGENT_MODEL_TIMEOUT_SECONDS`: how long the model may stay silent, before it begins to answer and
    /// between two pieces of its answer.
    pub model_timeout: Duration,
    /// `AGENT_SHUTDOWN_GRACE_SECONDS`: how long answers that have begun may take to end once the agent is told
    /// to stop.
    pub shutdown_grace: Duration,
    /// `KAOS_ALLOWED_HOSTS`: the names by which the agent may be asked.
    pub hosts: HostPolicy,
    /// `AGENT_ACCESS_LOG`: whether each request is a line of the log.
    pub access_log: bool,
}

/// How the model is told of tools and calls them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ToolCalls {
    /// `auto`: by the API, and by its text once the server has refused tools.
    #[default]
    Auto,
    /// `native`: by the API.
    Native,
    /// `string`: by blocks in its text.
    Text,
}

/// An MCP server whose tools the agent uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct McpServer {
    /// Its name.
    pub name: String,
    /// Where it is, with or without the path `/mcp`.
    pub url: Url,
}

/// Another agent that tasks can be handed to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerAgent {
    /// Its name.
    pub name: String,
    /// Where it is: below it are `/.well-known/agent` and `/v1/chat/completions`.
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
        expected: String,
    },
}

impl Config {
    /// Reads the configuration from the variables of an environment. A variable that is empty counts as not
    /// set.
    ///
    /// # Errors
    /// Names the first variable that is missing or malformed.
    pub fn from_env(variables: impl IntoIterator<Item = (String, String)>) -> Result<Self, ConfigError> {
        let env = Env::new(variables);
        let limits = Limits {
            sessions: env.number("MEMORY_MAX_SESSIONS", 1..=100_000, 1000)?,
            session_events: env.number("MEMORY_MAX_SESSION_EVENTS", 1..=10_000, 500)?,
        };
        if env.get("MEMORY_TYPE").is_some_and(|kind| kind != memory::KIND) {
            return Err(env.invalid("MEMORY_TYPE", "local, the only kind of memory there is"));
        }
        let mock_responses = match env.get(MOCK_RESPONSES) {
            None => Vec::new(),
            Some(value) => {
                model::mock::parse(value).map_err(|expected| env.invalid(MOCK_RESPONSES, expected))?
            }
        };
        Ok(Self {
            name: env.required("AGENT_NAME", "the agent's name")?.to_owned(),
            description: env.get("AGENT_DESCRIPTION").unwrap_or("AI Agent").to_owned(),
            instructions: env
                .get("AGENT_INSTRUCTIONS")
                .unwrap_or("You are a helpful assistant.")
                .to_owned(),
            port: env.parse("AGENT_PORT", "a port number", 8000)?,
            model_api_url: env.url("MODEL_API_URL", "the URL of a server of the Chat Completions API")?,
            model: env
                .required("MODEL_NAME", "the name of the model to ask")?
                .to_owned(),
            mcp_servers: env.mcp_servers()?,
            max_steps: match env.parse("AGENTIC_LOOP_MAX_STEPS", POSITIVE, 5)? {
                0 => return Err(env.invalid("AGENTIC_LOOP_MAX_STEPS", POSITIVE)),
                steps => steps,
            },
            request_timeout: env.seconds("AGENT_REQUEST_TIMEOUT_SECONDS", 600)?,
            strict_errors: env.switch("AGENT_STRICT_ERRORS", false)?,
            tool_calls: match env.get(TOOL_CALL_MODE).map(str::to_ascii_lowercase).as_deref() {
                None | Some("auto") => ToolCalls::Auto,
                Some("native") => ToolCalls::Native,
                Some("string") => ToolCalls::Text,
                Some(_) => return Err(env.invalid(TOOL_CALL_MODE, "auto, native or string")),
            },
            enable_tools: env.switch("AGENTIC_LOOP_ENABLE_TOOLS", true)?,
            peers: env.peers()?,
            enable_delegation: env.switch("AGENTIC_LOOP_ENABLE_DELEGATION", true)?,
            delegation_timeout: env.seconds("AGENT_DELEGATION_TIMEOUT_SECONDS", 60)?,
            context_limit: env.number("MEMORY_CONTEXT_LIMIT", 1..=100, 6)?,
            memory: env.switch("MEMORY_ENABLED", true)?.then_some(limits),
            memory_endpoints: env.switch("AGENT_DEBUG_MEMORY_ENDPOINTS", true)?,
            mock_responses,
            tool_timeout: env.seconds("AGENT_TOOL_TIMEOUT_SECONDS", 60)?,
            model_timeout: env.seconds("AGENT_MODEL_TIMEOUT_SECONDS", 60)?,
            shutdown_grace: env.seconds("AGENT_SHUTDOWN_GRACE_SECONDS", 25)?,
            hosts: HostPolicy::listed(env.get(HOSTS_VARIABLE).unwrap_or_default()),
            access_log: env.switch("AGENT_ACCESS_LOG", false)?,
        })
    }
}

const POSITIVE: &str = "a number of at least 1";
const TOOL_CALL_MODE: &str = "TOOL_CALL_MODE";
const MOCK_RESPONSES: &str = "DEBUG_MOCK_RESPONSES";
