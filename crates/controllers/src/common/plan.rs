//! What a resource is to become, as far as that follows from its spec and from what it refers to.

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Service},
};
use kaos_external::gateway_api::HTTPRoute;
use kaos_kube_ext::Observed;
use serde::Serialize;

use super::status::Standing;

/// Everything a resource is made of.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Objects {
    pub(crate) config_maps: Vec<ConfigMap>,
    pub(crate) services: Vec<Service>,
    pub(crate) deployment: Deployment,
    /// Where a Gateway is configured and the resource has a Service.
    pub(crate) route: Option<HTTPRoute>,
}

/// Which objects a resource may keep while it cannot be built. Its Deployment goes on in any case; what the spec
/// has turned off goes at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Keep {
    pub(crate) services: bool,
    pub(crate) routes: bool,
    pub(crate) config_maps: bool,
}

impl Keep {
    /// Everything, where a Gateway is configured.
    pub(crate) fn all(gateway: bool) -> Self {
        Self {
            services: true,
            routes: gateway,
            config_maps: true,
        }
    }
}

/// What the user should know of a spec that works all the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Note {
    /// Of the condition `ConfigurationValid`.
    pub(crate) reason: &'static str,
    pub(crate) text: String,
}

impl Note {
    /// An older spelling is overridden by a newer one.
    pub(crate) fn older(text: impl Into<String>) -> Self {
        Self {
            reason: "OlderSpelling",
            text: text.into(),
        }
    }

    /// A field has no effect beside the others.
    pub(crate) fn without_effect(text: impl Into<String>) -> Self {
        Self {
            reason: "WithoutEffect",
            text: text.into(),
        }
    }
}

/// What a resource is to become.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// What it is made of, or why it cannot be made (yet).
    pub(crate) objects: Result<Objects, Standing>,
    /// The port of its Service.
    pub(crate) port: u16,
    /// What stays of the present objects while `objects` is an error.
    pub(crate) keep: Keep,
    /// What it waits for: its first pods are not made, and it is not ready, until then.
    pub(crate) lacks: Option<Standing>,
    pub(crate) notes: Vec<Note>,
    /// Conditions of its kind.
    pub(crate) conditions: Vec<(&'static str, Observed)>,
}
