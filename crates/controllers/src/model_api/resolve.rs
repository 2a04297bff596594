//! What a ModelAPI refers to: the program that its runtime names. The Secret or ConfigMap with its key is
//! never read here; its pods refer to it by name.

use kaos_api::v1alpha1::{ModelAPI, ProxyRuntime};

use crate::config::{Config, RoleImage};

/// The image that runs the ModelAPI.
pub(crate) fn program<'a>(model_api: &ModelAPI, config: &'a Config) -> &'a RoleImage {
    match runtime(model_api) {
        ProxyRuntime::LiteLlm => &config.images.litellm,
        ProxyRuntime::Native => &config.images.native_proxy,
    }
}

/// The runtime of the ModelAPI, the default one where it names none.
pub(crate) fn runtime(model_api: &ModelAPI) -> ProxyRuntime {
    model_api
        .spec
        .proxy_config
        .as_ref()
        .map(|proxy| proxy.runtime)
        .unwrap_or_default()
}
