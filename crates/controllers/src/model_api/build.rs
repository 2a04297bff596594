//! The objects of a ModelAPI. Pure.

use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kaos_api::{
    names,
    v1alpha1::{ModelAPISpec, ModelApiMode},
};

use super::{hosted, proxy, validate::Valid};
use crate::{
    common::{
        objects::{Owner, Pods, deployment, service},
        plan::Objects,
        route::route,
        status::Standing,
    },
    config::Config,
};

/// The port of the ModelAPI's Service.
pub(super) fn port(mode: ModelApiMode) -> u16 {
    match mode {
        ModelApiMode::Proxy => names::PORT,
        ModelApiMode::Hosted => names::OLLAMA_PORT,
    }
}

/// The objects of the ModelAPI of this spec.
///
/// # Errors
/// When the configuration cannot be written as YAML, or the user's pod spec does not fit.
pub(super) fn build<'a>(
    owner: &Owner,
    spec: &'a ModelAPISpec,
    valid: &Valid<'a>,
    config: &'a Config,
) -> Result<Objects, Standing> {
    let (pods, config_maps, more): (Pods<'a>, Vec<ConfigMap>, Vec<Service>) = match valid {
        Valid::Proxy(proxy) => {
            let file = proxy::file(owner, proxy)?;
            let pods = proxy::pods(owner, spec, proxy, file.as_ref(), config);
            (pods, file.into_iter().collect(), Vec::new())
        }
        Valid::Hosted(hosted) => (
            hosted::pods(hosted, config),
            Vec::new(),
            vec![hosted::pull_service(owner)],
        ),
    };
    let port = port(spec.mode);
    let mut services = vec![service(owner, owner.child(), port)];
    services.extend(more);
    let timeout = spec.gateway_route.as_ref();
    Ok(Objects {
        deployment: deployment(owner, pods)?,
        services,
        config_maps,
        route: config
            .gateway
            .as_ref()
            .map(|gateway| route(owner, gateway, timeout, port)),
    })
}
