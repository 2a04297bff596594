//! The status of a ModelAPI.

use kaos_api::v1alpha1::{ModelAPI, ModelAPIStatus};

use crate::common::{
    children::Observed,
    context::Context,
    objects::Owner,
    status::{Standing, observed},
};

/// The status that says where the ModelAPI stands and what its objects are.
pub(crate) fn status(
    model_api: &ModelAPI,
    owner: &Owner,
    standing: &Standing,
    objects: &Observed,
    context: &Context<ModelAPI>,
) -> ModelAPIStatus {
    let generation = model_api.metadata.generation;
    let mut conditions = model_api
        .status
        .as_ref()
        .map(|status| status.conditions.clone())
        .unwrap_or_default();
    standing.put(&mut conditions, generation, context.seams.clock.as_ref());
    ModelAPIStatus {
        phase: Some(standing.phase),
        ready: standing.is_ready(),
        message: Some(standing.message.clone()),
        endpoint: objects
            .service
            .as_ref()
            .map(|_| owner.endpoint(&context.config.cluster_domain)),
        observed_generation: generation,
        conditions,
        deployment: objects.deployment.as_deref().and_then(observed),
    }
}
