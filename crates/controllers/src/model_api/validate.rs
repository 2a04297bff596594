//! From a ModelAPI to a proxy that can be built. The API server has checked the same already; an object that
//! was stored under other rules is told here.

use k8s_openapi::api::core::v1::{EnvVar, EnvVarSource};
use kaos_api::v1alpha1::{ApiKey, ContainerOverride, ModelAPI, ModelApiMode, ProxyConfig, ProxyRuntime};

use crate::{
    common::{env::literal, objects::Owner, status::Standing},
    config::RoleImage,
};

/// The provider that the native proxy plays itself.
const MOCK: &str = "mock";
/// The variable with the provider's key.
pub(crate) const API_KEY: &str = "PROXY_API_KEY";

/// A ModelAPI of mode Proxy with everything it needs.
#[derive(Clone, Debug)]
pub(crate) struct ValidModelApi<'a> {
    pub(crate) owner: &'a Owner,
    pub(crate) program: &'a RoleImage,
    pub(crate) runtime: ProxyRuntime,
    /// At least one.
    pub(crate) models: &'a [String],
    /// Not empty where given.
    pub(crate) provider: Option<&'a str>,
    pub(crate) api_base: Option<&'a str>,
    pub(crate) api_key: Option<EnvVar>,
    pub(crate) container: Option<&'a ContainerOverride>,
}

/// What of the spec cannot be built is told as the standing to report.
pub(crate) fn validate<'a>(
    owner: &'a Owner,
    model_api: &'a ModelAPI,
    program: &'a RoleImage,
) -> Result<ValidModelApi<'a>, Standing> {
    let ModelApiMode::Proxy = model_api.spec.mode;
    let Some(proxy) = &model_api.spec.proxy_config else {
        return Err(invalid(
            "spec.proxyConfig is required with mode Proxy; add at least proxyConfig.models",
        ));
    };
    if proxy.models.is_empty() {
        return Err(invalid(
            "spec.proxyConfig.models is empty; name at least one model",
        ));
    }
    let provider = proxy.provider.as_deref().filter(|provider| !provider.is_empty());
    if proxy.runtime == ProxyRuntime::LiteLlm && asks_the_mock(proxy, provider) {
        return Err(invalid(
            "the provider mock is not part of LiteLLM; set spec.proxyConfig.runtime: Native",
        ));
    }
    Ok(ValidModelApi {
        owner,
        program,
        runtime: proxy.runtime,
        models: &proxy.models,
        provider,
        api_base: proxy.api_base.as_deref().filter(|base| !base.is_empty()),
        api_key: proxy.api_key.as_ref().map(api_key).transpose()?,
        container: model_api.spec.container.as_ref(),
    })
}

fn invalid(message: &str) -> Standing {
    Standing::failed("InvalidSpec", message)
}

fn asks_the_mock(proxy: &ProxyConfig, provider: Option<&str>) -> bool {
    match provider {
        Some(provider) => provider == MOCK,
        None => proxy
            .models
            .iter()
            .any(|model| model == MOCK || model.strip_prefix(MOCK).is_some_and(|rest| rest.starts_with('/'))),
    }
}

fn api_key(key: &ApiKey) -> Result<EnvVar, Standing> {
    let one = || {
        invalid(
            "spec.proxyConfig.apiKey needs exactly one of value, valueFrom.secretKeyRef and valueFrom.configMapKeyRef",
        )
    };
    match (&key.value, &key.value_from) {
        (Some(value), None) => Ok(literal(API_KEY, value)),
        (None, Some(source)) if source.secret_key_ref.is_some() != source.config_map_key_ref.is_some() => {
            let source = EnvVarSource {
                secret_key_ref: source.secret_key_ref.clone(),
                config_map_key_ref: source.config_map_key_ref.clone(),
                ..EnvVarSource::default()
            };
            Ok(EnvVar {
                name: API_KEY.to_owned(),
                value: None,
                value_from: Some(source),
            })
        }
        _ => Err(one()),
    }
}
