//! Agent: a model and tools, by reference, become a Deployment and, where exposed, a Service.

mod apply;
mod build;
pub(crate) mod resolve;
mod status;
#[cfg(test)]
mod tests;
mod validate;

use std::{convert::Infallible, sync::Arc};

use kaos_api::{names::Kind, v1alpha1::Agent};
use kube::runtime::controller::Action;

use crate::common::{
    apply::{Blame, Failure},
    children::Children,
    context::{Context, SOON},
    objects::Owner,
    status::Standing,
};
use resolve::References;

/// Who writes what this controller writes.
pub(crate) const MANAGER: &str = "kaos-agent";

/// What the passes over Agents share.
pub(crate) struct Agents {
    pub(crate) shared: Context<Agent>,
    pub(crate) children: Children,
    pub(crate) references: References,
}

/// One pass over an Agent.
pub(crate) async fn reconcile(agent: Arc<Agent>, context: Arc<Agents>) -> Result<Action, Infallible> {
    if agent.metadata.deletion_timestamp.is_some() {
        return Ok(Action::await_change());
    }
    if !context.children.are_known() || !context.references.are_known() {
        return Ok(Action::requeue(SOON));
    }
    let outcome = pass(&agent, &context).await;
    Ok(context.shared.after(&agent, outcome))
}

async fn pass(agent: &Agent, context: &Agents) -> Result<(), Failure> {
    let owner = Owner::of(Kind::Agent, agent).ok_or(Failure::NotStored)?;
    let config = &context.shared.config;
    let resolved = resolve::resolve(agent, &owner.namespace, &context.references);
    let seen = || context.children.observed(&owner);
    let (standing, objects, outcome) = match validate::validate(&owner, agent, &resolved) {
        Err(problem) => {
            // That it is not to be reached does not depend on what it lacks.
            if !agent.spec.exposed() {
                apply::hide(&context.shared, &owner, &seen()).await?;
            }
            (problem, seen(), Ok(()))
        }
        Ok(valid) => {
            let desired = build::build(&valid, config);
            match apply::apply(&context.shared, &owner, &desired, &seen()).await {
                Ok(applied) => {
                    let standing = valid.lacks.unwrap_or_else(|| Standing::of(&applied.deployment));
                    (standing, applied.into(), Ok(()))
                }
                Err(failure) if failure.blame() == Blame::Passing => return Err(failure),
                Err(failure) => (Standing::of_failure(&failure), seen(), Err(failure)),
            }
        }
    };
    let status = status::status(agent, &owner, &standing, &objects, &resolved, &context.shared);
    context.shared.write_status(agent, &status).await?;
    outcome
}
