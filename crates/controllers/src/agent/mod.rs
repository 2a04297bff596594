//! Agent: a model, tools and peers, by reference, become a Deployment and, where exposed, a Service and a route.

mod build;
mod model;
pub(crate) mod peers;
pub(crate) mod resolve;
#[cfg(test)]
mod tests;
mod validate;

use std::collections::BTreeMap;

use kaos_api::{
    names::{self, Kind},
    v1alpha1::{Agent, AgentStatus},
};
use kaos_kube_ext::Observed;

use crate::{
    common::{
        children::Live,
        driver::{Pass, Workload},
        objects::Owner,
        plan::{Keep, Note, Plan},
        route,
        status::Standing,
    },
    config::Config,
};
use peers::PEERS_READY;
pub(crate) use peers::Peer;
use resolve::{References, Resolved};
use validate::{DEPENDENCIES_READY, Dependencies};

/// Agents.
#[derive(Debug)]
pub(crate) struct Agents {
    pub(crate) references: References,
}

impl Workload for Agents {
    type Resource = Agent;
    type Status = AgentStatus;
    type Resolved = Resolved;

    const KIND: Kind = Kind::Agent;
    const MANAGER: &'static str = "kaos-agent";

    fn resolve(&self, agent: &Agent) -> Resolved {
        resolve::resolve(agent, &self.references)
    }

    fn plan(owner: &Owner, agent: &Agent, resolved: &Resolved, config: &Config) -> Plan {
        let mut notes: Vec<Note> = Vec::new();
        let exposed = agent.spec.exposed();
        notes.extend(route::without_effect(
            agent.spec.gateway_route.as_ref(),
            config.gateway.is_some(),
            exposed,
        ));
        let dependencies = Dependencies::of(agent, resolved);
        let objects = validate::validate(owner, agent, resolved, &dependencies, config, &mut notes)
            .and_then(|valid| build::build(&valid, config));
        let mut conditions = vec![(DEPENDENCIES_READY, dependencies.observed())];
        conditions.extend(peers::observed(&resolved.peers).map(|observed| (PEERS_READY, observed)));
        Plan {
            objects,
            port: names::PORT,
            keep: Keep {
                services: exposed,
                routes: exposed && config.gateway.is_some(),
                config_maps: false,
            },
            lacks: dependencies.lacks(agent.spec.wait_for_dependencies),
            notes,
            conditions,
        }
    }

    /// An agent that waits is not ready with its pods as long as a peer is missing.
    fn live(
        &self,
        pass: &Pass<'_, Self>,
        standing: Standing,
        _live: &Live,
    ) -> (Standing, Vec<(&'static str, Observed)>) {
        let waits = pass.resource.spec.wait_for_dependencies && standing.is_ready();
        let lacks = peers::standing(&pass.resolved.peers).filter(|_| waits);
        (lacks.unwrap_or(standing), Vec::new())
    }

    fn complete(&self, pass: &Pass<'_, Self>, status: &mut AgentStatus) {
        status.linked_resources = linked(pass.resource, pass.resolved);
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
    let peers = resolved
        .peers
        .iter()
        .filter(|(_, peer)| *peer != Peer::Missing)
        .map(|(name, _)| (names::linked_agent(name), name.clone()));
    model_api.chain(servers).chain(peers).collect()
}
