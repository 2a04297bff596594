//! What an Agent refers to: a ModelAPI, MCPServers and other Agents of its namespace, as the watches last saw them.

use std::{collections::BTreeSet, sync::Arc};

use kaos_api::v1alpha1::{Agent, MCPServer, ModelAPI};
use kube::{
    Resource,
    runtime::reflector::{ObjectRef, Store},
};

use super::peers::Peer;

/// The stores that references are looked up in.
#[derive(Clone, Debug)]
pub(crate) struct References {
    pub(crate) model_apis: Store<ModelAPI>,
    pub(crate) mcp_servers: Store<MCPServer>,
    pub(crate) agents: Store<Agent>,
}

/// What the references of an Agent lead to. What is being deleted counts as gone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Resolved {
    pub(crate) model_api: Option<Arc<ModelAPI>>,
    /// By name, each once, in the order of the spec.
    pub(crate) mcp_servers: Vec<(String, Option<Arc<MCPServer>>)>,
    /// By name, each once, in the order of the spec.
    pub(crate) peers: Vec<(String, Peer)>,
}

/// Looks up what `agent` refers to.
pub(crate) fn resolve(agent: &Agent, references: &References) -> Resolved {
    let namespace = agent.metadata.namespace.as_deref().unwrap_or_default();
    Resolved {
        model_api: there(&references.model_apis, namespace, &agent.spec.model_api),
        mcp_servers: each_once(&agent.spec.mcp_servers)
            .map(|name| (name.clone(), there(&references.mcp_servers, namespace, name)))
            .collect(),
        peers: each_once(agent.spec.peers())
            .map(|name| {
                let peer = there(&references.agents, namespace, name);
                (name.clone(), Peer::of(peer.as_deref()))
            })
            .collect(),
    }
}

fn each_once(names: &[String]) -> impl Iterator<Item = &String> {
    let mut seen = BTreeSet::new();
    names.iter().filter(move |name| seen.insert(name.as_str()))
}

fn there<K>(store: &Store<K>, namespace: &str, name: &str) -> Option<Arc<K>>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    store
        .get(&ObjectRef::new(name).within(namespace))
        .filter(|object| object.meta().deletion_timestamp.is_none())
}

/// The Agents of `agents` that refer to a ModelAPI of this name.
pub(crate) fn users_of_model_api(
    agents: &Store<Agent>,
    namespace: &str,
    name: &str,
) -> Vec<ObjectRef<Agent>> {
    users(agents, namespace, |agent| agent.spec.model_api == name)
}

/// The Agents of `agents` that refer to an MCPServer of this name.
pub(crate) fn users_of_mcp_server(
    agents: &Store<Agent>,
    namespace: &str,
    name: &str,
) -> Vec<ObjectRef<Agent>> {
    users(agents, namespace, |agent| {
        agent.spec.mcp_servers.iter().any(|server| server == name)
    })
}

/// The Agents of `agents` that have an Agent of this name as a peer.
pub(crate) fn users_of_agent(agents: &Store<Agent>, namespace: &str, name: &str) -> Vec<ObjectRef<Agent>> {
    users(agents, namespace, |agent| {
        agent.spec.peers().iter().any(|peer| peer == name)
    })
}

fn users(agents: &Store<Agent>, namespace: &str, uses: impl Fn(&Agent) -> bool) -> Vec<ObjectRef<Agent>> {
    let here = |agent: &Agent| agent.metadata.namespace.as_deref() == Some(namespace);
    let users = agents.state_filter(|agent| here(agent) && uses(agent));
    users
        .iter()
        .map(|agent| ObjectRef::from_obj(agent.as_ref()))
        .collect()
}
