//! A ModelAPI of mode Proxy: a program with a configuration file.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    ConfigMap, ConfigMapVolumeSource, EnvVar, KeyToPath, SecretVolumeSource, Volume, VolumeMount,
};
use kaos_api::{
    names,
    v1alpha1::{ModelAPISpec, ProxyRuntime},
};
use sha2::{Digest, Sha256};

use super::{
    config_file::{API_BASE, generate},
    resolve,
    validate::{File, Key, ValidProxy},
};
use crate::{
    common::{
        env::{literal, merged},
        objects::{Check, Owner, Pods},
        status::Standing,
        telemetry,
    },
    config::Config,
};

const CONFIG_VOLUME: &str = "litellm-config";
const CONFIG_DIRECTORY: &str = "/etc/litellm";
/// The provider's key as a file, and the variable that names it to the proxy of KAOS.
const KEY_VOLUME: &str = "api-key";
const KEY_DIRECTORY: &str = "/etc/kaos/api-key";
const KEY_FILE: &str = "api-key";
const API_KEY_FILE: &str = "PROXY_API_KEY_FILE";
const CHECK: Check = Check::Http {
    live: "/health/liveliness",
    ready: "/health/liveliness",
};

/// The ConfigMap with the configuration file, unless that is in a Secret.
///
/// # Errors
/// When it cannot be written as YAML.
pub(super) fn file(owner: &Owner, proxy: &ValidProxy<'_>) -> Result<Option<ConfigMap>, Standing> {
    let text = match &proxy.file {
        File::Generated(models) => generate(proxy, models).map_err(|error| {
            Standing::failed(
                "Unwritable",
                format!("the configuration of spec.proxyConfig cannot be written: {error}; change its names"),
            )
        })?,
        File::Given(text) => (*text).to_owned(),
        File::InSecret(_) => return Ok(None),
    };
    Ok(Some(ConfigMap {
        metadata: owner.metadata(names::litellm_config(&owner.name)),
        data: Some(BTreeMap::from([(names::LITELLM_CONFIG_KEY.to_owned(), text)])),
        ..ConfigMap::default()
    }))
}

/// The pods of a proxy. `file` is in the template as a hash, so that pods with another one are replaced.
pub(super) fn pods<'a>(
    owner: &Owner,
    spec: &'a ModelAPISpec,
    proxy: &ValidProxy<'a>,
    file: Option<&ConfigMap>,
    config: &'a Config,
) -> Pods<'a> {
    let program = resolve::program(spec, config);
    let path = format!("{CONFIG_DIRECTORY}/{}", names::LITELLM_CONFIG_KEY);
    let mut args = program.args.clone();
    args.extend(["--config", &path, "--port", &names::PORT.to_string()].map(ToOwned::to_owned));

    let mut volumes = vec![config_volume(owner, proxy)];
    let mut mounts = vec![read_only(CONFIG_VOLUME, CONFIG_DIRECTORY)];
    let mut before: Vec<EnvVar> = proxy
        .api_base
        .map(|base| literal(API_BASE, base))
        .into_iter()
        .collect();
    match &proxy.api_key {
        None => {}
        Some(Key::Variable(variable)) => before.push((**variable).clone()),
        Some(Key::Secret(secret)) => volumes.push(Volume {
            name: KEY_VOLUME.to_owned(),
            secret: Some(SecretVolumeSource {
                secret_name: Some(secret.name.clone()),
                items: Some(item(&secret.key, KEY_FILE)),
                optional: secret.optional,
                ..SecretVolumeSource::default()
            }),
            ..Volume::default()
        }),
        Some(Key::ConfigMap(map)) => volumes.push(Volume {
            name: KEY_VOLUME.to_owned(),
            config_map: Some(ConfigMapVolumeSource {
                name: map.name.clone(),
                items: Some(item(&map.key, KEY_FILE)),
                optional: map.optional,
                ..ConfigMapVolumeSource::default()
            }),
            ..Volume::default()
        }),
    }
    if let Some(Key::Secret(_) | Key::ConfigMap(_)) = &proxy.api_key {
        mounts.push(read_only(KEY_VOLUME, KEY_DIRECTORY));
        before.push(literal(API_KEY_FILE, &format!("{KEY_DIRECTORY}/{KEY_FILE}")));
    }
    let (level, sent) = match proxy.runtime {
        ProxyRuntime::LiteLlm => (
            literal("LITELLM_LOG", litellm_log_level(&config.log_level)),
            telemetry::litellm_env(proxy.telemetry, owner),
        ),
        ProxyRuntime::Native => (
            literal("LOG_LEVEL", &config.log_level),
            telemetry::env(proxy.telemetry, owner),
        ),
    };
    let after = [vec![level], sent].concat();
    let text = file.and_then(|file| file.data.as_ref()?.get(names::LITELLM_CONFIG_KEY));
    Pods {
        image: &program.image,
        command: &[],
        args,
        env: merged(before, proxy.users.clone(), after),
        container: spec.container.as_ref(),
        pod_spec: spec.pod_spec.as_ref(),
        service_account: None,
        init: Vec::new(),
        volumes,
        mounts,
        annotations: text
            .map(|text| (names::CONFIG_HASH_ANNOTATION.to_owned(), short_hash(text)))
            .into_iter()
            .collect(),
        port: names::PORT,
        check: CHECK,
        requests: match proxy.runtime {
            ProxyRuntime::LiteLlm => ("50m", "256Mi"),
            ProxyRuntime::Native => ("10m", "32Mi"),
        },
        replicas: None,
    }
}

fn config_volume(owner: &Owner, proxy: &ValidProxy<'_>) -> Volume {
    let (secret, config_map) = match &proxy.file {
        File::InSecret(secret) => (
            Some(SecretVolumeSource {
                secret_name: Some(secret.name.clone()),
                items: Some(item(&secret.key, names::LITELLM_CONFIG_KEY)),
                optional: secret.optional,
                ..SecretVolumeSource::default()
            }),
            None,
        ),
        File::Generated(_) | File::Given(_) => (
            None,
            Some(ConfigMapVolumeSource {
                name: names::litellm_config(&owner.name),
                ..ConfigMapVolumeSource::default()
            }),
        ),
    };
    Volume {
        name: CONFIG_VOLUME.to_owned(),
        secret,
        config_map,
        ..Volume::default()
    }
}

fn item(key: &str, path: &str) -> Vec<KeyToPath> {
    vec![KeyToPath {
        key: key.to_owned(),
        path: path.to_owned(),
        ..KeyToPath::default()
    }]
}

fn read_only(volume: &str, directory: &str) -> VolumeMount {
    VolumeMount {
        name: volume.to_owned(),
        mount_path: directory.to_owned(),
        read_only: Some(true),
        ..VolumeMount::default()
    }
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
