//! What the file says beside its models: `litellm_settings`, `router_settings` and `general_settings`.

use std::time::Duration;

use super::{
    ConfigError, Environment, Retries,
    tree::{Item, Section},
};
use crate::{health::Tolerance, secret::Secret};

/// As LiteLLM's router.
const RETRIES: u32 = 2;
const COOLDOWN: Duration = Duration::from_secs(5);
const ALLOWED_FAILS: u32 = 3;
/// How long an upstream may take; as OpenAI's clients have it.
const TIMEOUT: Duration = Duration::from_secs(600);

/// What holds for all models.
pub(super) struct Settings {
    pub(super) drop_params: bool,
    pub(super) timeout: Duration,
    pub(super) stream_timeout: Option<Duration>,
    pub(super) retries: Retries,
    pub(super) tolerance: Tolerance,
    pub(super) master_key: Option<Secret>,
    pub(super) ca_file: Option<String>,
    /// Names with what they stand for.
    pub(super) aliases: Vec<(String, String, Item)>,
    /// Names with the models to ask when they have failed.
    pub(super) fallbacks: Vec<(String, Vec<(String, Item)>)>,
    pub(super) default_fallbacks: Vec<(String, Item)>,
}

impl Settings {
    /// Takes the sections out of the file.
    pub(super) fn take(file: &mut Section, environment: &Environment) -> Result<Self, ConfigError> {
        let mut settings = Self {
            drop_params: false,
            timeout: TIMEOUT,
            stream_timeout: None,
            retries: Retries {
                count: RETRIES,
                wait: Duration::ZERO,
            },
            tolerance: Tolerance {
                fails: ALLOWED_FAILS,
                rest: COOLDOWN,
            },
            // LiteLLM reads it from there, too.
            master_key: environment
                .get("LITELLM_MASTER_KEY")
                .filter(|key| !key.trim().is_empty())
                .map(|key| Secret::new(key.trim().to_owned())),
            ca_file: None,
            aliases: Vec::new(),
            fallbacks: Vec::new(),
            default_fallbacks: Vec::new(),
        };
        if let Some(section) = file.take("litellm_settings") {
            settings.litellm(section.section()?, environment)?;
        }
        // What the router is told wins, as with LiteLLM.
        if let Some(section) = file.take("router_settings") {
            settings.router(section.section()?, environment)?;
        }
        if let Some(section) = file.take("general_settings") {
            let mut section = section.section()?;
            if let Some(item) = section.take("master_key") {
                settings.master_key = Some(Secret::new(item.text(environment)?));
            }
            section.end(|name| match name {
                "database_url" | "store_model_in_db" | "database_type" => Some(KEEPS_NOTHING),
                _ => None,
            })?;
        }
        Ok(settings)
    }

    fn litellm(&mut self, mut section: Section, environment: &Environment) -> Result<(), ConfigError> {
        if let Some(item) = section.take("drop_params") {
            self.drop_params = item.switch()?;
        }
        if let Some(item) = section.take("request_timeout") {
            self.timeout = item.seconds(environment)?;
        }
        if let Some(item) = section.take("ssl_verify") {
            self.ca_file = match item.switch() {
                Ok(true) => None,
                Ok(false) => {
                    return Err(item.wrong(
                        "is false, and certificates are always checked here; name the file of the CA to trust instead",
                    ));
                }
                Err(_) => Some(item.text(environment)?),
            };
        }
        if let Some(item) = section.take("telemetry")
            && item.switch()?
        {
            return Err(item.wrong("is true, and nothing is reported to LiteLLM's makers here; remove it"));
        }
        for name in ["callbacks", "success_callback", "failure_callback"] {
            for (callback, item) in section
                .take(name)
                .map(Item::texts)
                .transpose()?
                .unwrap_or_default()
            {
                // Both are there without being asked for.
                if !["otel", "prometheus"].contains(&callback.as_str()) {
                    return Err(item.wrong(format_args!(
                        "is {callback:?}, which this proxy has not; it has otel (where OTEL_EXPORTER_OTLP_ENDPOINT \
                         says where to) and prometheus (GET /metrics)"
                    )));
                }
            }
        }
        self.both(&mut section, environment)?;
        section.end(advice)
    }

    fn router(&mut self, mut section: Section, environment: &Environment) -> Result<(), ConfigError> {
        if let Some(item) = section.take("routing_strategy")
            && item.written()? != "simple-shuffle"
        {
            let found = item.written()?;
            return Err(item.wrong(format_args!("is {found:?}; this proxy has simple-shuffle only")));
        }
        if let Some(item) = section.take("timeout") {
            self.timeout = item.seconds(environment)?;
        }
        if let Some(item) = section.take("stream_timeout") {
            self.stream_timeout = Some(item.seconds(environment)?);
        }
        if let Some(item) = section.take("retry_after") {
            self.retries.wait = item.seconds(environment)?;
        }
        if let Some(item) = section.take("disable_cooldowns")
            && item.switch()?
        {
            self.tolerance.fails = u32::MAX;
        }
        if let Some(item) = section.take("model_group_alias") {
            for (alias, item) in item.section()?.rest() {
                let target = item.written()?.to_owned();
                self.aliases.push((alias, target, item));
            }
        }
        self.both(&mut section, environment)?;
        section.end(advice)
    }

    /// What stands in either section.
    fn both(&mut self, section: &mut Section, environment: &Environment) -> Result<(), ConfigError> {
        if let Some(item) = section.take("num_retries") {
            self.retries.count = u32::try_from(item.count(environment)?).unwrap_or(u32::MAX);
        }
        if let Some(item) = section.take("allowed_fails") {
            self.tolerance.fails = u32::try_from(item.count(environment)?).unwrap_or(u32::MAX);
        }
        if let Some(item) = section.take("cooldown_time") {
            self.tolerance.rest = item.seconds(environment)?;
        }
        if let Some(item) = section.take("fallbacks") {
            self.fallbacks.clear();
            for entry in item.list()? {
                for (name, item) in entry.section()?.rest() {
                    self.fallbacks.push((name, item.texts()?));
                }
            }
        }
        if let Some(item) = section.take("default_fallbacks") {
            self.default_fallbacks = item.texts()?;
        }
        Ok(())
    }
}

const KEEPS_NOTHING: &str = "this proxy keeps nothing; remove it, or run LiteLLM itself";

/// What to do about a field of the file, or of its settings, that is not known here.
pub(super) fn advice(name: &str) -> Option<&'static str> {
    Some(match name {
        "set_verbose" | "debug" => "set LOG_LEVEL=debug in the environment instead",
        "cache" | "cache_params" | "redis_host" | "redis_port" | "redis_password" => KEEPS_NOTHING,
        _ => return None,
    })
}
