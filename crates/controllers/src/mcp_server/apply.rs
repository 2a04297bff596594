//! The live objects of an MCPServer.

use k8s_openapi::api::{apps::v1::Deployment, core::v1::Service};
use kaos_kube_ext::Applier;

use super::build::Objects;
use crate::common::{apply::Failure, children::Observed};

/// What is live after an apply.
#[derive(Clone, Debug)]
pub(crate) struct Applied {
    pub(crate) deployment: Deployment,
    pub(crate) service: Service,
}

impl From<Applied> for Observed {
    fn from(applied: Applied) -> Self {
        Self {
            deployment: Some(applied.deployment.into()),
            service: Some(applied.service.into()),
        }
    }
}

/// Applies what was built.
pub(crate) async fn apply(applier: &Applier, objects: &Objects) -> Result<Applied, Failure> {
    let service = applier.apply(&objects.service).await?;
    let deployment = applier.apply(&objects.deployment).await?;
    Ok(Applied { deployment, service })
}
