//! The generated configuration file of a proxy, in the layout that KAOS writes. A serializer writes every value,
//! so that no name can break out of its place.

use kaos_api::v1alpha1::ProxyRuntime;
use serde::Serialize;
use serde_saphyr::{DoubleQuoted, FlowSeq, SerializeError, SpaceAfter};

use super::validate::ValidProxy;

/// The variable with the address of the provider.
pub(super) const API_BASE: &str = "PROXY_API_BASE";
/// The variable with the provider's key.
pub(super) const API_KEY: &str = "PROXY_API_KEY";
/// LiteLLM's callback that sends traces.
pub(super) const OTEL: &str = "otel";

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

type Callbacks = FlowSeq<Vec<DoubleQuoted<&'static str>>>;

#[derive(Serialize)]
struct Settings {
    drop_params: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    success_callback: Option<Callbacks>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failure_callback: Option<Callbacks>,
}

/// The configuration file for these models. Keys and addresses are in the container's environment.
pub(super) fn generate(proxy: &ValidProxy<'_>, models: &[&str]) -> Result<String, SerializeError> {
    let from_env = |variable: &str| DoubleQuoted(format!("os.environ/{variable}"));
    let model = |name: &str| match proxy.provider {
        Some(provider) => format!("{provider}/{name}"),
        None => name.to_owned(),
    };
    let list = models.iter().map(|name| Model {
        model_name: DoubleQuoted(name),
        litellm_params: Params {
            model: DoubleQuoted(model(name)),
            api_base: proxy.api_base.map(|_| from_env(API_BASE)),
            api_key: proxy.api_key.as_ref().map(|_| from_env(API_KEY)),
        },
    });
    // The proxy of KAOS refuses what it does not know.
    let traced = proxy.telemetry.is_some() && proxy.runtime == ProxyRuntime::LiteLlm;
    let callbacks = || traced.then(|| FlowSeq(vec![DoubleQuoted(OTEL)]));
    let file = ProxyFile {
        model_list: SpaceAfter(list.collect()),
        litellm_settings: Settings {
            drop_params: true,
            success_callback: callbacks(),
            failure_callback: callbacks(),
        },
    };
    let options = serde_saphyr::ser_options! { compact_list_indent: false };
    let text = serde_saphyr::to_string_with_options(&file, options)?;
    Ok(format!("# Auto-generated LiteLLM config\n{text}"))
}
