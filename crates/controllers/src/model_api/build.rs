//! The objects of a ModelAPI. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Service},
};
use kaos_api::{names, v1alpha1::ProxyRuntime};
use serde::Serialize;
use serde_saphyr::{DoubleQuoted, SerializeError, SpaceAfter};
use sha2::{Digest, Sha256};

use super::validate::{API_KEY, ValidModelApi};
use crate::common::{
    env::{literal, merged},
    objects::{Check, MountedConfig, Pods, deployment, service},
};

/// The variable with the address of the provider.
const API_BASE: &str = "PROXY_API_BASE";
const CONFIG_VOLUME: &str = "litellm-config";
const CONFIG_DIRECTORY: &str = "/etc/litellm";
const CHECK: Check = Check::Http {
    live: "/health/liveliness",
    ready: "/health/liveliness",
};

/// Everything a ModelAPI is made of.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Objects {
    pub(crate) config: ConfigMap,
    pub(crate) deployment: Deployment,
    pub(crate) service: Service,
}

/// The objects of `model_api`.
///
/// # Errors
/// When the configuration cannot be written as YAML.
pub(crate) fn build(model_api: &ValidModelApi<'_>, log_level: &str) -> Result<Objects, SerializeError> {
    let owner = model_api.owner;
    let text = proxy_config(model_api)?;
    let hash = short_hash(&text);
    let config_map = names::litellm_config(&owner.name);

    let mut before = Vec::new();
    before.extend(model_api.api_base.map(|base| literal(API_BASE, base)));
    before.extend(model_api.api_key.clone());
    let logging = match model_api.runtime {
        ProxyRuntime::LiteLlm => literal("LITELLM_LOG", litellm_log_level(log_level)),
        ProxyRuntime::Native => literal("LOG_LEVEL", log_level),
    };
    let mut args = model_api.program.args.clone();
    let config_file = format!("{CONFIG_DIRECTORY}/{}", names::LITELLM_CONFIG_KEY);
    args.extend(["--config", &config_file, "--port", &names::PORT.to_string()].map(ToOwned::to_owned));

    Ok(Objects {
        deployment: deployment(
            owner,
            Pods {
                image: &model_api.program.image,
                command: &[],
                args,
                env: merged(before, model_api.container, vec![logging]),
                check: CHECK,
                config: Some(MountedConfig {
                    volume: CONFIG_VOLUME,
                    config_map: &config_map,
                    directory: CONFIG_DIRECTORY,
                    hash: &hash,
                }),
                requests: match model_api.runtime {
                    ProxyRuntime::LiteLlm => ("50m", "256Mi"),
                    ProxyRuntime::Native => ("10m", "32Mi"),
                },
            },
        ),
        service: service(owner),
        config: ConfigMap {
            metadata: owner.metadata(config_map.clone()),
            data: Some(BTreeMap::from([(names::LITELLM_CONFIG_KEY.to_owned(), text)])),
            ..ConfigMap::default()
        },
    })
}

/// LiteLLM knows no level below DEBUG.
fn litellm_log_level(level: &str) -> &str {
    if level.eq_ignore_ascii_case("TRACE") {
        "DEBUG"
    } else {
        level
    }
}

/// The first 16 hexadecimal digits of the SHA-256 of `text`.
fn short_hash(text: &str) -> String {
    Sha256::digest(text)
        .iter()
        .take(8)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

#[derive(Serialize)]
struct ProxyFile<'a> {
    model_list: SpaceAfter<Vec<Model<'a>>>,
    litellm_settings: Settings,
}

#[derive(Serialize)]
struct Model<'a> {
    model_name: DoubleQuoted<&'a str>,
    litellm_params: Params,
}

#[derive(Serialize)]
struct Params {
    model: DoubleQuoted<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    api_base: Option<DoubleQuoted<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    api_key: Option<DoubleQuoted<String>>,
}

#[derive(Serialize)]
struct Settings {
    drop_params: bool,
}

/// The configuration file of the proxy. Keys and addresses are in the container's environment.
fn proxy_config(model_api: &ValidModelApi<'_>) -> Result<String, SerializeError> {
    let from_env = |variable: &str| DoubleQuoted(format!("os.environ/{variable}"));
    let model = |name: &'_ String| match model_api.provider {
        Some(provider) => format!("{provider}/{name}"),
        None => name.clone(),
    };
    let models = model_api.models.iter().map(|name| Model {
        model_name: DoubleQuoted(name),
        litellm_params: Params {
            model: DoubleQuoted(model(name)),
            api_base: model_api.api_base.map(|_| from_env(API_BASE)),
            api_key: model_api.api_key.as_ref().map(|_| from_env(API_KEY)),
        },
    });
    let file = ProxyFile {
        model_list: SpaceAfter(models.collect()),
        litellm_settings: Settings { drop_params: true },
    };
    let options = serde_saphyr::ser_options! { compact_list_indent: false };
    let text = serde_saphyr::to_string_with_options(&file, options)?;
    Ok(format!("# Auto-generated LiteLLM config\n{text}"))
}
