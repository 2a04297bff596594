//! MCPServer: a runtime with its parameters becomes a Deployment and a Service, and its tools are listed.

mod build;
mod package;
pub(crate) mod registry;
pub(crate) mod resolve;
#[cfg(test)]
mod tests;
pub(crate) mod tools;
mod validate;

use std::sync::Arc;

use kaos_api::{
    names::{self, Kind},
    v1alpha1::{MCPServer, MCPServerStatus},
};
use kaos_kube_ext::Observed;
use kube::{core::object::HasStatus, runtime::reflector::ObjectRef};

use crate::{
    common::{
        asked::Rollout,
        children::Live,
        driver::{Pass, Workload},
        objects::Owner,
        plan::{Keep, Plan},
        status::Standing,
    },
    config::Config,
};
use registry::Registry;
use resolve::Resolved;
use tools::{Listing, Tools};

/// The condition that tells whether `availableTools` is what the running server offers.
const TOOLS_LISTED: &str = "ToolsListed";

/// MCPServers.
pub(crate) struct McpServers {
    pub(crate) tools: Tools,
    pub(crate) registry: Arc<Registry>,
}

impl Workload for McpServers {
    type Resource = MCPServer;
    type Status = MCPServerStatus;
    type Resolved = Resolved;

    const KIND: Kind = Kind::McpServer;
    const MANAGER: &'static str = "kaos-mcpserver";

    fn resolve(&self, server: &MCPServer) -> Resolved {
        resolve::resolve(server, &self.registry.current())
    }

    fn plan(owner: &Owner, server: &MCPServer, resolved: &Resolved, config: &Config) -> Plan {
        let mut notes = Vec::new();
        let objects = validate::validate(server, resolved, config, &mut notes)
            .and_then(|valid| build::build(owner, &valid, config));
        Plan {
            objects,
            port: names::PORT,
            keep: Keep::all(config.gateway.is_some()),
            lacks: None,
            notes,
            conditions: Vec::new(),
        }
    }

    fn live(
        &self,
        pass: &Pass<'_, Self>,
        standing: Standing,
        live: &Live,
    ) -> (Standing, Vec<(&'static str, Observed)>) {
        let key = ObjectRef::from_obj(pass.resource);
        let rollout = live.deployment.as_deref().map(Rollout::of);
        if let Some(rollout) = rollout.clone().filter(|_| standing.is_ready()) {
            let endpoint = pass.owner.endpoint(pass.plan.port, &pass.config.cluster_domain);
            self.tools.list(key.clone(), rollout, endpoint);
        }
        let listed = match rollout.and_then(|rollout| self.tools.listing(&key, &rollout)) {
            Some(listing) => listing.observed(),
            // A program before this one may have listed them.
            None => pass
                .still_said(TOOLS_LISTED, &standing)
                .unwrap_or_else(not_listed),
        };
        (standing, vec![(TOOLS_LISTED, listed)])
    }

    fn complete(&self, pass: &Pass<'_, Self>, status: &mut MCPServerStatus) {
        // Until they have been listed again, those of the last listing stay.
        let before = || {
            pass.resource
                .status()
                .map(|status| status.available_tools.clone())
        };
        let names = self.tools.names(&ObjectRef::from_obj(pass.resource));
        status.available_tools = names.or_else(before).unwrap_or_default();
    }

    fn forget(&self, server: &MCPServer) {
        self.tools.forget(&ObjectRef::from_obj(server));
    }
}

/// What is said of tools that nobody has asked for.
pub(crate) fn not_listed() -> Observed {
    Observed {
        status: None,
        reason: "NotListed".to_owned(),
        message: "its tools are listed once it is ready".to_owned(),
    }
}

impl Listing {
    pub(crate) fn observed(&self) -> Observed {
        let (status, reason, message) = match self {
            Self::Listed { names, count } => {
                let tools = if *count == 1 { "tool" } else { "tools" };
                let message = match names.len() {
                    named if named < *count => {
                        format!("{count} {tools}, the first {named} of which are named")
                    }
                    _ => format!("{count} {tools}"),
                };
                (true, "Listed", message)
            }
            Self::Failed(problem) => (false, "ListingFailed", problem.clone()),
        };
        Observed {
            status: Some(status),
            reason: reason.to_owned(),
            message,
        }
    }
}
