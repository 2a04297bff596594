//! What a ModelAPI refers to: the program that its mode and runtime name. The Secrets and ConfigMaps that it names
//! are never read here; its pods refer to them by name.

use kaos_api::v1alpha1::{ModelAPISpec, ModelApiMode, ProxyRuntime};

use crate::config::{Config, RoleImage};

/// The image that serves the models.
pub(super) fn program<'a>(spec: &ModelAPISpec, config: &'a Config) -> &'a RoleImage {
    match (spec.mode, runtime(spec)) {
        (ModelApiMode::Hosted, _) => &config.images.ollama,
        (ModelApiMode::Proxy, ProxyRuntime::LiteLlm) => &config.images.litellm,
        (ModelApiMode::Proxy, ProxyRuntime::Native) => &config.images.native_proxy,
    }
}

/// The runtime of a proxy, the default one where the spec names none.
pub(super) fn runtime(spec: &ModelAPISpec) -> ProxyRuntime {
    spec.proxy_config
        .as_ref()
        .map(|proxy| proxy.runtime)
        .unwrap_or_default()
}
