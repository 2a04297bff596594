//! From an Agent and what it refers to, to an agent that can be built.

use k8s_openapi::api::core::v1::EnvVar;
use kaos_api::{
    names::{self, Kind},
    v1alpha1::{Agent, AgentConfig, MCPServer, ModelAPI, ModelApiMode},
};
use kaos_kube_ext::Observed;

use super::{model, peers, resolve::Resolved};
use crate::{
    common::{
        env,
        objects::Owner,
        plan::Note,
        status::Standing,
        telemetry::{self, Sent},
    },
    config::Config,
};

/// The condition that tells whether the ModelAPI and all MCPServers are ready.
pub(crate) const DEPENDENCIES_READY: &str = "DependenciesReady";

/// Between the problems of several references.
pub(super) const SENTENCES: &str = ". ";

/// An Agent with everything it needs.
#[derive(Clone, Debug)]
pub(crate) struct ValidAgent<'a> {
    pub(crate) owner: &'a Owner,
    pub(crate) agent: &'a Agent,
    pub(crate) model_api: &'a str,
    pub(crate) model_api_port: u16,
    /// Nothing where the user's variables have it.
    pub(crate) model: Option<&'a str>,
    /// Names, each once, sorted.
    pub(crate) mcp_servers: Vec<&'a str>,
    /// Names, each once, sorted.
    pub(crate) peers: Vec<&'a str>,
    /// The user's variables.
    pub(crate) users: Vec<EnvVar>,
    pub(crate) max_steps: Option<i32>,
    pub(crate) telemetry: Option<Sent<'a>>,
}

/// What an agent needs and does not have, in the order of the spec.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Dependencies {
    problems: Vec<Problem>,
    /// What has to be done about peers. It holds no pods back, and is told beside what does.
    peers: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Problem {
    /// It does not exist.
    Missing(String),
    /// It is not ready.
    Unready(String),
}

impl Problem {
    fn message(&self) -> &str {
        match self {
            Self::Missing(message) | Self::Unready(message) => message,
        }
    }

    fn is_missing(&self) -> bool {
        matches!(self, Self::Missing(_))
    }
}

impl Dependencies {
    pub(crate) fn of(agent: &Agent, resolved: &Resolved) -> Self {
        let model_api = match &resolved.model_api {
            None => Some(Problem::Missing(format!(
                "Failed to resolve ModelAPI: modelapis.kaos.tools {:?} not found; create it, or change spec.modelAPI",
                agent.spec.model_api
            ))),
            Some(model_api) if model_api_is_ready(model_api) => None,
            Some(_) => Some(Problem::Unready("ModelAPI is not ready".to_owned())),
        };
        let servers = resolved.mcp_servers.iter().filter_map(|(name, server)| match server {
            None => Some(Problem::Missing(format!(
                "Failed to resolve MCPServer {name}: mcpservers.kaos.tools {name:?} not found; create it, or \
                 remove it from spec.mcpServers"
            ))),
            Some(server) if mcp_server_is_ready(server) => None,
            Some(_) => Some(Problem::Unready(format!("MCPServer {name} is not ready"))),
        });
        Self {
            problems: model_api.into_iter().chain(servers).collect(),
            peers: peers::to_mend(&resolved.peers),
        }
    }

    /// What keeps it from being ready, all of it at once: what does not exist and, where the agent waits, what is not
    /// ready.
    pub(crate) fn lacks(&self, wait: bool) -> Option<Standing> {
        let counts = |problem: &&Problem| wait || problem.is_missing();
        let problems = self.problems.iter().filter(counts).map(Problem::message);
        let mut messages: Vec<&str> = problems.collect();
        if messages.is_empty() {
            return None;
        }
        if wait {
            messages.extend(self.peers.iter().map(String::as_str));
        }
        let message = messages.join(SENTENCES);
        Some(if self.problems.iter().any(Problem::is_missing) {
            Standing::missing(message)
        } else {
            Standing::waiting("DependencyNotReady", message)
        })
    }

    /// What keeps its pods as they are, were it to be started for the first time or not.
    fn forbids(&self, wait: bool) -> Option<Standing> {
        let missing = self.problems.iter().any(Problem::is_missing);
        self.lacks(wait).filter(|_| missing)
    }

    pub(crate) fn observed(&self) -> Observed {
        let messages: Vec<&str> = self.problems.iter().map(Problem::message).collect();
        Observed {
            status: Some(messages.is_empty()),
            reason: self
                .lacks(true)
                .map_or("Ready", |standing| standing.reason)
                .to_owned(),
            message: messages.join(SENTENCES),
        }
    }
}

/// What cannot be built, or not yet, is told as the standing to report.
pub(crate) fn validate<'a>(
    owner: &'a Owner,
    agent: &'a Agent,
    resolved: &'a Resolved,
    dependencies: &Dependencies,
    config: &'a Config,
    notes: &mut Vec<Note>,
) -> Result<ValidAgent<'a>, Standing> {
    let spec = &agent.spec;
    let own = spec.config.as_ref();
    let older = own.map(|own| own.env.as_slice()).unwrap_or_default();
    let users = env::users(spec.container.as_ref(), "spec.config.env", older, notes);
    let telemetry = telemetry::merged(
        "spec.config.telemetry",
        own.and_then(|own| own.telemetry.as_ref()),
        &config.telemetry,
        notes,
    );
    let max_steps = max_steps(own, notes);
    check_names(owner, agent)?;

    let Some(model_api) = &resolved.model_api else {
        return Err(dependencies
            .lacks(spec.wait_for_dependencies)
            .unwrap_or_else(|| Standing::missing("Failed to resolve ModelAPI")));
    };
    let variable = model::variable(&users, spec.pod_spec.as_ref());
    let model = model::model(spec.model.as_deref(), variable.as_ref(), model_api, notes)?;
    if let Some(problem) = dependencies.forbids(spec.wait_for_dependencies) {
        return Err(problem);
    }
    Ok(ValidAgent {
        owner,
        agent,
        model_api: &spec.model_api,
        model_api_port: match model_api.spec.mode {
            ModelApiMode::Proxy => names::PORT,
            ModelApiMode::Hosted => names::OLLAMA_PORT,
        },
        model,
        mcp_servers: sorted(&resolved.mcp_servers),
        peers: sorted(&resolved.peers),
        users,
        max_steps,
        telemetry,
    })
}

fn sorted<T>(found: &[(String, T)]) -> Vec<&str> {
    let mut names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    names
}

/// The newer of the two spellings.
fn max_steps(config: Option<&AgentConfig>, notes: &mut Vec<Note>) -> Option<i32> {
    let newer = config.and_then(|config| config.reasoning_loop_max_steps);
    let older = config.and_then(|config| config.agentic_loop.as_ref()?.max_steps);
    if let (Some(newer), Some(older)) = (newer, older) {
        notes.push(Note::older(format!(
            "spec.config.agenticLoop.maxSteps ({older}) is an older spelling of \
             spec.config.reasoningLoopMaxSteps ({newer}), which wins; remove the older one"
        )));
    }
    newer.or(older)
}

/// A status of an older generation says nothing of the present spec.
fn model_api_is_ready(model_api: &ModelAPI) -> bool {
    let status = model_api.status.as_ref();
    status.is_some_and(|status| status.ready && status.observed_generation == model_api.metadata.generation)
}

fn mcp_server_is_ready(server: &MCPServer) -> bool {
    let status = server.status.as_ref();
    status.is_some_and(|status| status.ready && status.observed_generation == server.metadata.generation)
}

/// Names become names of hosts and variables before there is anything of these names. Objects that were stored under
/// other rules may have names that nothing can have.
fn check_names(owner: &Owner, agent: &Agent) -> Result<(), Standing> {
    let invalid = |message: String| Err(Standing::failed("InvalidSpec", message));
    let spec = &agent.spec;
    let references = [
        (
            "spec.modelAPI",
            Kind::ModelApi,
            std::slice::from_ref(&spec.model_api),
        ),
        ("spec.mcpServers", Kind::McpServer, spec.mcp_servers.as_slice()),
        ("spec.agentNetwork.access", Kind::Agent, spec.peers()),
    ];
    for (field, kind, names) in references {
        if let Some(name) = names.iter().find(|name| !kind.may_be_called(name)) {
            let (kind, longest) = (kind.name(), kind.longest_name());
            return invalid(format!(
                "{field}: {name:?} cannot be the name of any {kind}: write that of one in this namespace, at most \
                 {longest} lower-case letters, digits and hyphens"
            ));
        }
    }
    if spec.peers().contains(&owner.name) {
        return invalid(format!(
            "spec.agentNetwork.access names the agent itself: remove {:?}, an agent cannot be its own peer",
            owner.name
        ));
    }
    Ok(())
}
