//! ModelAPI: a proxy to a model provider becomes a ConfigMap, a Deployment and a Service.

mod apply;
mod build;
mod resolve;
mod status;
#[cfg(test)]
mod tests;
mod validate;

use std::{convert::Infallible, sync::Arc};

use kaos_api::{names::Kind, v1alpha1::ModelAPI};
use kube::runtime::controller::Action;

use crate::common::{
    apply::{Blame, Failure},
    children::Children,
    context::{Context, SOON},
    objects::Owner,
    status::Standing,
};

/// Who writes what this controller writes.
pub(crate) const MANAGER: &str = "kaos-modelapi";

/// What the passes over ModelAPIs share.
pub(crate) struct ModelApis {
    pub(crate) shared: Context<ModelAPI>,
    pub(crate) children: Children,
}

/// One pass over a ModelAPI.
pub(crate) async fn reconcile(
    model_api: Arc<ModelAPI>,
    context: Arc<ModelApis>,
) -> Result<Action, Infallible> {
    if model_api.metadata.deletion_timestamp.is_some() {
        return Ok(Action::await_change());
    }
    if !context.children.are_known() {
        return Ok(Action::requeue(SOON));
    }
    let outcome = pass(&model_api, &context).await;
    Ok(context.shared.after(&model_api, outcome))
}

async fn pass(model_api: &ModelAPI, context: &ModelApis) -> Result<(), Failure> {
    let owner = Owner::of(Kind::ModelApi, model_api).ok_or(Failure::NotStored)?;
    let config = &context.shared.config;
    let program = resolve::program(model_api, config);
    let (standing, objects, outcome) = match validate::validate(&owner, model_api, program) {
        Err(problem) => (problem, context.children.observed(&owner), Ok(())),
        Ok(valid) => {
            let desired = build::build(&valid, &config.log_level)?;
            match apply::apply(&context.shared.applier, &desired).await {
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
    let status = status::status(model_api, &owner, &standing, &objects, &context.shared);
    context.shared.write_status(model_api, &status).await?;
    outcome
}
