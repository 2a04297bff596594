//! The status of an Agent.

use std::collections::BTreeMap;

use kaos_api::{
    names,
    v1alpha1::{Agent, AgentStatus},
};

use super::resolve::Resolved;
use crate::common::{
    children::Observed,
    context::Context,
    objects::Owner,
    status::{Standing, observed},
};

/// The status that says where the Agent stands, what its objects are and what it uses.
pub(crate) fn status(
    agent: &Agent,
    owner: &Owner,
    standing: &Standing,
    objects: &Observed,
    resolved: &Resolved,
    context: &Context<Agent>,
) -> AgentStatus {
    let generation = agent.metadata.generation;
    let mut conditions = agent
        .status
        .as_ref()
        .map(|status| status.conditions.clone())
        .unwrap_or_default();
    standing.put(&mut conditions, generation, context.seams.clock.as_ref());
    let exposed = agent.spec.exposed() && objects.service.is_some();
    AgentStatus {
        phase: Some(standing.phase),
        ready: standing.is_ready(),
        message: Some(standing.message.clone()),
        endpoint: exposed.then(|| owner.endpoint(&context.config.cluster_domain)),
        observed_generation: generation,
        linked_resources: linked(agent, resolved),
        conditions,
        deployment: objects.deployment.as_deref().and_then(observed),
    }
}

/// What was found of what the Agent refers to.
fn linked(agent: &Agent, resolved: &Resolved) -> BTreeMap<String, String> {
    let model_api = resolved
        .model_api
        .iter()
        .map(|_| (names::LINKED_MODEL_API.to_owned(), agent.spec.model_api.clone()));
    let servers = resolved
        .mcp_servers
        .iter()
        .filter(|(_, server)| server.is_some())
        .map(|(name, _)| (names::linked_mcp_server(name), name.clone()));
    model_api.chain(servers).collect()
}
