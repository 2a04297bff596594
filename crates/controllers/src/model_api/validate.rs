//! From a ModelAPI to one that can be built. What the API server checks too is told here for objects that were
//! stored under other rules.

use k8s_openapi::api::core::v1::{ConfigMapKeySelector, EnvVar, EnvVarSource, SecretKeySelector};
use kaos_api::v1alpha1::{ApiKey, ModelAPISpec, ModelApiMode, NATIVE_PROVIDERS, ProxyConfig, ProxyRuntime};

use super::{
    accepts::ANY,
    config_file::API_KEY,
    given,
    hosted::{self, ValidHosted},
    resolve,
};
use crate::{
    common::{
        env::{self, literal},
        plan::Note,
        status::Standing,
        telemetry::{self, Sent},
    },
    config::Config,
};

/// The provider that the native proxy plays itself.
const MOCK: &str = "mock";

/// A ModelAPI with everything it needs.
#[derive(Debug)]
pub(super) enum Valid<'a> {
    Proxy(Box<ValidProxy<'a>>),
    Hosted(ValidHosted<'a>),
}

/// A ModelAPI of mode Proxy with everything it needs.
#[derive(Debug)]
pub(super) struct ValidProxy<'a> {
    pub(super) runtime: ProxyRuntime,
    pub(super) file: File<'a>,
    /// Not empty where given.
    pub(super) provider: Option<&'a str>,
    pub(super) api_base: Option<&'a str>,
    pub(super) api_key: Option<Key<'a>>,
    /// The variables that the user gives.
    pub(super) users: Vec<EnvVar>,
    pub(super) telemetry: Option<Sent<'a>>,
}

/// The configuration file of a proxy.
#[derive(Debug)]
pub(super) enum File<'a> {
    /// To be generated for these models, at least one.
    Generated(Vec<&'a str>),
    /// The user's.
    Given(&'a str),
    /// The user's, in a Secret that only the pods read.
    InSecret(&'a SecretKeySelector),
}

/// How a proxy comes by the provider's key.
#[derive(Debug)]
pub(super) enum Key<'a> {
    /// By this variable, when it starts.
    Variable(Box<EnvVar>),
    /// By a file of a Secret, which changes with it.
    Secret(&'a SecretKeySelector),
    /// By a file of a ConfigMap, which changes with it.
    ConfigMap(&'a ConfigMapKeySelector),
}

/// What of the spec cannot be built is told as the standing to report.
pub(super) fn validate<'a>(
    spec: &'a ModelAPISpec,
    config: &'a Config,
    notes: &mut Vec<Note>,
) -> Result<Valid<'a>, Standing> {
    match spec.mode {
        ModelApiMode::Hosted => {
            if spec.proxy_config.is_some() {
                notes.push(without_mode("proxyConfig", "Hosted"));
            }
            hosted::validate(spec, config, notes).map(Valid::Hosted)
        }
        ModelApiMode::Proxy => {
            let hosted = [
                ("hostedConfig", &spec.hosted_config),
                ("serverConfig", &spec.server_config),
            ];
            for (field, _) in hosted.iter().filter(|(_, given)| given.is_some()) {
                notes.push(without_mode(field, "Proxy"));
            }
            let proxy = spec.proxy_config.as_ref().ok_or_else(|| {
                invalid("spec.proxyConfig is required with mode Proxy; add at least proxyConfig.models")
            })?;
            validate_proxy(spec, proxy, config, notes).map(|valid| Valid::Proxy(Box::new(valid)))
        }
    }
}

fn without_mode(field: &str, mode: &str) -> Note {
    Note::without_effect(format!(
        "spec.{field} has no effect with spec.mode: {mode}; remove it"
    ))
}

pub(super) fn invalid(message: impl Into<String>) -> Standing {
    Standing::failed("InvalidSpec", message)
}

fn validate_proxy<'a>(
    spec: &'a ModelAPISpec,
    proxy: &'a ProxyConfig,
    config: &'a Config,
    notes: &mut Vec<Note>,
) -> Result<ValidProxy<'a>, Standing> {
    let filled = |text: &'a Option<String>| text.as_deref().filter(|text| !text.is_empty());
    let runtime = resolve::runtime(spec);
    let (provider, api_base) = (filled(&proxy.provider), filled(&proxy.api_base));
    let models = models(proxy, notes);
    let users = env::users(spec.container.as_ref(), "spec.proxyConfig.env", &proxy.env, notes);
    let telemetry = telemetry::merged(
        "spec.telemetry",
        spec.telemetry.as_ref(),
        &config.telemetry,
        notes,
    );
    // The proxy of KAOS needs no callbacks.
    let by_callbacks = telemetry.filter(|_| runtime == ProxyRuntime::LiteLlm);
    let file = file(proxy, models, api_base, by_callbacks, notes)?;
    if let File::Generated(models) = &file {
        check_provider(runtime, provider, api_base, models)?;
    } else if provider.is_some() {
        notes.push(Note::without_effect(
            "spec.proxyConfig.provider has no effect beside spec.proxyConfig.configYaml, which names its own; remove it",
        ));
    }
    let mut key = proxy
        .api_key
        .as_ref()
        .map(|key| api_key(key, runtime))
        .transpose()?;
    if key.is_some() && users.iter().any(|variable| variable.name == API_KEY) {
        notes.push(Note::without_effect(format!(
            "spec.proxyConfig.apiKey has no effect beside the variable {API_KEY} of the spec; remove one of the two"
        )));
        // The generated file names the variable all the same; its value is the user's.
        key = Some(Key::Variable(Box::new(literal(API_KEY, ""))));
    }
    if let Some(Key::Variable(variable)) = &key
        && variable.value_from.is_some()
    {
        notes.push(Note {
            reason: "ReadAtStart",
            text: "LiteLLM reads the key of spec.proxyConfig.apiKey when it starts: a changed one is taken at the \
                   next rollout (kubectl rollout restart)"
                .to_owned(),
        });
    }
    if let File::InSecret(_) = file {
        let taken = match runtime {
            ProxyRuntime::LiteLlm => {
                ", and LiteLLM takes a changed one at the next rollout (kubectl rollout restart)"
            }
            ProxyRuntime::Native => "",
        };
        notes.push(Note {
            reason: "NotChecked",
            text: format!(
                "the file of spec.proxyConfig.configYaml.fromSecretKeyRef is read by the pods only: nothing of it \
                 is checked here{taken}"
            ),
        });
    }
    Ok(ValidProxy {
        runtime,
        file,
        provider,
        api_base,
        api_key: key,
        users,
        telemetry,
    })
}

/// The models of the spec, in either spelling; none where only the file or the provider knows.
fn models<'a>(proxy: &'a ProxyConfig, notes: &mut Vec<Note>) -> Vec<&'a str> {
    let older = proxy.model.as_deref().filter(|model| !model.is_empty());
    if proxy.models.is_empty() {
        return older.into_iter().collect();
    }
    if older.is_some() {
        notes.push(Note::older(
            "spec.proxyConfig.model is overridden by spec.proxyConfig.models; remove it",
        ));
    }
    proxy.models.iter().map(String::as_str).collect()
}

fn file<'a>(
    proxy: &'a ProxyConfig,
    models: Vec<&'a str>,
    api_base: Option<&str>,
    telemetry: Option<Sent<'_>>,
    notes: &mut Vec<Note>,
) -> Result<File<'a>, Standing> {
    let Some(yaml) = &proxy.config_yaml else {
        return match (models.is_empty(), api_base) {
            (false, _) => Ok(File::Generated(models)),
            (true, Some(_)) => Ok(File::Generated(vec![ANY])),
            (true, None) => Err(invalid(
                "spec.proxyConfig.models is empty; name at least one model",
            )),
        };
    };
    let (file, traced) = match (&yaml.from_string, &yaml.from_secret_key_ref) {
        (Some(text), None) => {
            let wrong = |problem| Standing::failed("InvalidConfigYaml", problem);
            let parsed = given::parse(text).map_err(|problem| {
                wrong(format!(
                    "failed to parse configYaml: {problem}; correct spec.proxyConfig.configYaml.fromString"
                ))
            })?;
            parsed.check(&models).map_err(wrong)?;
            (File::Given(text), parsed.sends_traces())
        }
        (None, Some(secret)) => {
            if secret.name.is_empty() {
                return Err(invalid(
                    "spec.proxyConfig.configYaml.fromSecretKeyRef.name is empty; name a Secret of this namespace",
                ));
            }
            (File::InSecret(secret), false)
        }
        _ => {
            return Err(invalid(
                "spec.proxyConfig.configYaml needs exactly one of fromString and fromSecretKeyRef",
            ));
        }
    };
    if telemetry.is_some() && !traced {
        notes.push(Note::without_effect(
            "telemetry is on, but spec.proxyConfig.configYaml is used as it is: for traces of requests add \
             success_callback: [\"otel\"] and failure_callback: [\"otel\"] to its litellm_settings",
        ));
    }
    Ok(file)
}

/// What the runtime cannot ask.
fn check_provider(
    runtime: ProxyRuntime,
    provider: Option<&str>,
    api_base: Option<&str>,
    models: &[&str],
) -> Result<(), Standing> {
    let of = |model: &str, provider: &str| {
        model == provider
            || model
                .strip_prefix(provider)
                .is_some_and(|rest| rest.starts_with('/'))
    };
    match (runtime, provider) {
        (ProxyRuntime::LiteLlm, Some(MOCK)) => Err(mock_is_native()),
        (ProxyRuntime::LiteLlm, None) if models.iter().any(|model| of(model, MOCK)) => Err(mock_is_native()),
        (ProxyRuntime::Native, Some(provider)) if !NATIVE_PROVIDERS.contains(&provider) => {
            Err(invalid(format!(
                "spec.proxyConfig.provider {provider:?} is none that runtime Native has; for a server that speaks the \
             OpenAI API write provider: openai and its apiBase, for anything else runtime: LiteLLM"
            )))
        }
        (ProxyRuntime::Native, None)
            if api_base.is_none()
                && !models
                    .iter()
                    .all(|model| NATIVE_PROVIDERS.iter().any(|known| of(model, known))) =>
        {
            Err(invalid(
                "runtime Native needs to know where the models are; add spec.proxyConfig.provider, such as openai, \
                 or spec.proxyConfig.apiBase",
            ))
        }
        _ => Ok(()),
    }
}

fn mock_is_native() -> Standing {
    invalid("the provider mock is not part of LiteLLM; set spec.proxyConfig.runtime: Native")
}

fn api_key(key: &ApiKey, runtime: ProxyRuntime) -> Result<Key<'_>, Standing> {
    let one = || {
        invalid(
            "spec.proxyConfig.apiKey needs exactly one of value, valueFrom.secretKeyRef and valueFrom.configMapKeyRef",
        )
    };
    let unnamed = |field: &str| {
        invalid(format!(
            "spec.proxyConfig.apiKey.valueFrom.{field}.name is empty; name one of this namespace"
        ))
    };
    let source = match (&key.value, &key.value_from) {
        (Some(value), None) => return Ok(Key::Variable(Box::new(literal(API_KEY, value)))),
        (None, Some(source)) => source,
        _ => return Err(one()),
    };
    match (&source.secret_key_ref, &source.config_map_key_ref, runtime) {
        (Some(secret), None, _) if secret.name.is_empty() => Err(unnamed("secretKeyRef")),
        (None, Some(map), _) if map.name.is_empty() => Err(unnamed("configMapKeyRef")),
        (Some(secret), None, ProxyRuntime::Native) => Ok(Key::Secret(secret)),
        (None, Some(map), ProxyRuntime::Native) => Ok(Key::ConfigMap(map)),
        (Some(_), None, ProxyRuntime::LiteLlm) | (None, Some(_), ProxyRuntime::LiteLlm) => {
            Ok(Key::Variable(Box::new(EnvVar {
                name: API_KEY.to_owned(),
                value: None,
                value_from: Some(EnvVarSource {
                    secret_key_ref: source.secret_key_ref.clone(),
                    config_map_key_ref: source.config_map_key_ref.clone(),
                    ..EnvVarSource::default()
                }),
            })))
        }
        _ => Err(one()),
    }
}
