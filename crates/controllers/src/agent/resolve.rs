//! What an Agent refers to: a ModelAPI and MCPServers of its namespace, as the watches last saw them.

use std::{collections::BTreeSet, sync::Arc};

use kaos_api::v1alpha1::{Agent, MCPServer, ModelAPI};
use kube::runtime::reflector::{ObjectRef, Store};

use crate::common::children::is_known;

/// The stores that references are looked up in.
#[derive(Clone, Debug)]
pub(crate) struct References {
    pub(crate) model_apis: Store<ModelAPI>,
    pub(crate) mcp_servers: Store<MCPServer>,
}

impl References {
    /// Whether both kinds have been listed.
    pub(crate) fn are_known(&self) -> bool {
        is_known(&self.model_apis) && is_known(&self.mcp_servers)
    }
}

/// What the references of an Agent lead to. What is being deleted counts as gone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Resolved {
    pub(crate) model_api: Option<Arc<ModelAPI>>,
    /// By name, each once, sorted by name.
    pub(crate) mcp_servers: Vec<(String, Option<Arc<MCPServer>>)>,
}

/// Looks up what `agent` refers to.
pub(crate) fn resolve(agent: &Agent, namespace: &str, references: &References) -> Resolved {
    let names: BTreeSet<&String> = agent.spec.mcp_servers.iter().collect();
    let server = |name: &String| {
        let key = ObjectRef::new(name).within(namespace);
        references
            .mcp_servers
            .get(&key)
            .filter(|server| server.metadata.deletion_timestamp.is_none())
    };
    Resolved {
        model_api: references
            .model_apis
            .get(&ObjectRef::new(&agent.spec.model_api).within(namespace))
            .filter(|model_api| model_api.metadata.deletion_timestamp.is_none()),
        mcp_servers: names
            .into_iter()
            .map(|name| (name.clone(), server(name)))
            .collect(),
    }
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

fn users(agents: &Store<Agent>, namespace: &str, uses: impl Fn(&Agent) -> bool) -> Vec<ObjectRef<Agent>> {
    let here = |agent: &Agent| agent.metadata.namespace.as_deref() == Some(namespace);
    let users = agents.state_filter(|agent| here(agent) && uses(agent));
    users
        .iter()
        .map(|agent| ObjectRef::from_obj(agent.as_ref()))
        .collect()
}
