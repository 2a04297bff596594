//! MCPServer: a runtime with its parameters becomes a Deployment and a Service, and its tools are listed.

mod apply;
mod build;
mod resolve;
mod status;
#[cfg(test)]
mod tests;
pub(crate) mod tools;
mod validate;

use std::{convert::Infallible, sync::Arc};

use kaos_api::{names::Kind, v1alpha1::MCPServer};
use kube::runtime::{controller::Action, reflector::ObjectRef};

use crate::common::{
    apply::{Blame, Failure},
    children::Children,
    context::{Context, SOON},
    objects::Owner,
    status::Standing,
};
use tools::{Rollout, Tools};

/// Who writes what this controller writes.
pub(crate) const MANAGER: &str = "kaos-mcpserver";

/// What the passes over MCPServers share.
pub(crate) struct McpServers {
    pub(crate) shared: Context<MCPServer>,
    pub(crate) children: Children,
    pub(crate) tools: Tools,
}

/// One pass over an MCPServer.
pub(crate) async fn reconcile(
    server: Arc<MCPServer>,
    context: Arc<McpServers>,
) -> Result<Action, Infallible> {
    if server.metadata.deletion_timestamp.is_some() {
        return Ok(Action::await_change());
    }
    if !context.children.are_known() {
        return Ok(Action::requeue(SOON));
    }
    let outcome = pass(&server, &context).await;
    Ok(context.shared.after(&server, outcome))
}

async fn pass(server: &MCPServer, context: &McpServers) -> Result<(), Failure> {
    let owner = Owner::of(Kind::McpServer, server).ok_or(Failure::NotStored)?;
    let config = &context.shared.config;
    let runtime = resolve::runtime(server, config);
    let (standing, objects, outcome) = match validate::validate(&owner, server, runtime) {
        Err(problem) => (problem, context.children.observed(&owner), Ok(())),
        Ok(valid) => {
            match apply::apply(&context.shared.applier, &build::build(&valid, &config.log_level)).await {
                Ok(applied) => (Standing::of(&applied.deployment), applied.into(), Ok(())),
                Err(failure) if failure.blame() == Blame::Passing => return Err(failure),
                Err(failure) => (
                    Standing::of_failure(&failure),
                    context.children.observed(&owner),
                    Err(failure),
                ),
            }
        }
    };
    let key = ObjectRef::from_obj(server);
    if let Some(rollout) = objects
        .deployment
        .as_deref()
        .filter(|_| standing.is_ready())
        .map(Rollout::of)
    {
        context
            .tools
            .list_once(key.clone(), rollout, owner.endpoint(&config.cluster_domain));
    }
    let listing = context.tools.listing(&key);
    let status = status::status(server, &owner, &standing, &objects, listing, &context.shared);
    context.shared.write_status(server, &status).await?;
    outcome
}
