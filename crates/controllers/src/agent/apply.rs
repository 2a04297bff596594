//! The live objects of an Agent.

use k8s_openapi::api::{apps::v1::Deployment, core::v1::Service};
use kaos_api::v1alpha1::Agent;
use kaos_kube_ext::prune;

use super::build::Objects;
use crate::common::{apply::Failure, children::Observed, context::Context, objects::Owner};

/// What is live after an apply.
#[derive(Clone, Debug)]
pub(crate) struct Applied {
    pub(crate) deployment: Deployment,
    pub(crate) service: Option<Service>,
}

impl From<Applied> for Observed {
    fn from(applied: Applied) -> Self {
        Self {
            deployment: Some(applied.deployment.into()),
            service: applied.service.map(Into::into),
        }
    }
}

/// Applies what was built, and deletes what of `seen` was not.
pub(crate) async fn apply(
    context: &Context<Agent>,
    owner: &Owner,
    objects: &Objects,
    seen: &Observed,
) -> Result<Applied, Failure> {
    let service = match &objects.service {
        Some(service) => Some(context.applier.apply(service).await?),
        None => {
            hide(context, owner, seen).await?;
            None
        }
    };
    let deployment = context.applier.apply(&objects.deployment).await?;
    Ok(Applied { deployment, service })
}

/// Deletes the Service of `seen`, if there is one.
pub(crate) async fn hide(context: &Context<Agent>, owner: &Owner, seen: &Observed) -> Result<(), Failure> {
    prune(&context.client, &owner.reference.uid, seen.service.clone(), &[])
        .await
        .map_err(Failure::api("failed to delete the Service"))
}
