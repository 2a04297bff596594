//! One entry of `model_list`: who is asked for a model, where and with what.

use std::sync::Arc;

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::value::RawValue;
use url::Url;

use super::{
    ConfigError, Deployment, Environment, Limits, Pattern, Upstream,
    settings::Settings,
    tree::{Item, Section},
};
use crate::{
    allowance::Allowance,
    health::Health,
    provider::{
        DEFAULTS, Remote, key_header,
        known::{self, Api, Known, PROVIDERS},
    },
    secret::Secret,
};

/// The path of OpenAI's API below the address of an Ollama server.
const OLLAMA_PATH: &str = "/v1";

/// Reads an entry. `*` for all models of all providers becomes an entry for each of them that there is a key for.
pub(super) fn read(
    entry: Item,
    settings: &Settings,
    environment: &Environment,
) -> Result<Vec<(Pattern, Deployment)>, ConfigError> {
    let mut entry = entry.section()?;
    let name = entry.required("model_name")?;
    let public = Pattern::parse(name.written()?, &name)?;
    let params = entry.required("litellm_params")?;
    let info = entry.take("model_info");
    entry.end(|_| None)?;
    let id = match &info {
        Some(info) => info
            .clone()
            .section()?
            .take("id")
            .map(|id| id.written().map(str::to_owned))
            .transpose()?,
        None => None,
    };
    let info = info.map(Item::json);

    let mut params = params.section()?;
    let model = params.required("model")?;
    let written = model.written()?.to_owned();
    let base = params.take("api_base").or_else(|| params.take("base_url"));
    let prefix = params.take("custom_llm_provider");
    let entry = Entry {
        place: &model,
        public: &public,
        base: base.as_ref(),
        environment,
    };
    let who = match &prefix {
        Some(item) => vec![(
            entry.provider(item.written()?, item)?,
            written.clone(),
            public.clone(),
        )],
        None => entry.who(&written)?,
    };
    let common = Common::take(&mut params, settings, environment)?;
    params.end(advice)?;
    who.into_iter()
        .map(|(provider, model, name)| {
            let deployment = Deployment {
                id: id.clone().unwrap_or_else(|| format!("{}/{model}", provider.name)),
                model: entry.model(&model, provider)?,
                upstream: entry.upstream(provider, &common)?,
                weight: common.weight,
                limits: common.limits,
                retries: common.retries,
                health: Health::default(),
                allowance: Arc::new(Allowance::new(common.requests, common.tokens)),
                info: info.clone(),
            };
            Ok((name, deployment))
        })
        .collect()
}

/// What to do about a field of `litellm_params` that is not known here.
fn advice(name: &str) -> Option<&'static str> {
    Some(match name {
        "aws_access_key_id"
        | "aws_secret_access_key"
        | "aws_region_name"
        | "vertex_project"
        | "vertex_location" => "of the providers that need it none is here; run LiteLLM itself",
        "mock_response" => "use the provider mock, or run LiteLLM itself",
        "ssl_verify" => "set it for all models in litellm_settings",
        _ => return None,
    })
}

/// What all deployments of an entry share.
struct Common {
    key: Option<(Secret, Item)>,
    api_version: Option<(String, Item)>,
    headers: HeaderMap,
    defaults: Vec<(String, Box<RawValue>)>,
    drop_params: bool,
    weight: f64,
    /// The most requests and tokens in a minute.
    requests: Option<u64>,
    tokens: Option<u64>,
    limits: Limits,
    retries: Option<u32>,
    /// A field that says something of a server, which the mock is not.
    of_server: Option<Item>,
}

impl Common {
    fn take(
        params: &mut Section,
        settings: &Settings,
        environment: &Environment,
    ) -> Result<Self, ConfigError> {
        let mut of_server: Option<Item> = None;
        let mut server = |params: &mut Section, name: &str| {
            let item = params.take(name);
            if of_server.is_none() {
                of_server.clone_from(&item);
            }
            item
        };
        let key = server(params, "api_key")
            .map(|item| Ok::<_, ConfigError>((Secret::new(item.text(environment)?), item)))
            .transpose()?;
        let api_version = server(params, "api_version")
            .map(|item| Ok::<_, ConfigError>((item.text(environment)?, item)))
            .transpose()?;
        let mut headers = HeaderMap::new();
        if let Some(item) = server(params, "organization") {
            let value = header_value(&item.text(environment)?, &item)?;
            headers.insert(HeaderName::from_static("openai-organization"), value);
        }
        for name in ["extra_headers", "headers"] {
            let Some(item) = server(params, name) else {
                continue;
            };
            for (name, item) in item.section()?.rest() {
                let header = HeaderName::try_from(name.as_str())
                    .map_err(|_| item.wrong("is no name of an HTTP header; correct it"))?;
                headers.insert(header, header_value(&item.text(environment)?, &item)?);
            }
        }
        let timeout = server(params, "timeout")
            .map(|item| item.seconds(environment))
            .transpose()?;
        let first = server(params, "stream_timeout")
            .map(|item| item.seconds(environment))
            .transpose()?;
        let whole = timeout.unwrap_or(settings.timeout);
        let own = timeout.or(settings.stream_timeout);
        let retries = ["max_retries", "num_retries"]
            .into_iter()
            .find_map(|name| server(params, name));
        let retries = retries.map(|item| item.count(environment)).transpose()?;
        let mut defaults = Vec::new();
        for name in DEFAULTS {
            if let Some(item) = server(params, name) {
                let value = RawValue::from_string(item.json().to_string());
                defaults.extend(value.ok().map(|value| ((*name).to_owned(), value)));
            }
        }
        let drop_params = server(params, "drop_params")
            .map(|item| item.switch())
            .transpose()?;
        let weight = params
            .take("weight")
            .map(|item| item.positive(environment))
            .transpose()?;
        let mut limit = |name| {
            let limit = params.take(name).map(|item| match item.count(environment)? {
                0 => Err(item.wrong("is 0, with which it would never be asked; remove the entry instead")),
                limit => Ok(limit),
            });
            limit.transpose()
        };
        let (requests, tokens) = (limit("rpm")?, limit("tpm")?);
        // LiteLLM's simple shuffle takes the first of these that is there.
        let weight = weight.or_else(|| requests.or(tokens).map(|limit| limit as f64));
        Ok(Self {
            key,
            api_version,
            headers,
            defaults,
            drop_params: drop_params.unwrap_or(settings.drop_params),
            weight: weight.unwrap_or(1.0),
            requests,
            tokens,
            limits: Limits {
                whole,
                first: first.or(own).unwrap_or(whole),
            },
            retries: retries.map(|count| u32::try_from(count).unwrap_or(u32::MAX)),
            of_server,
        })
    }
}

fn header_value(text: &str, item: &Item) -> Result<HeaderValue, ConfigError> {
    let mut value =
        HeaderValue::from_str(text).map_err(|_| item.wrong("has characters that no HTTP header may have"))?;
    // What is sent beside a key may be one.
    value.set_sensitive(true);
    Ok(value)
}

struct Entry<'a> {
    /// `litellm_params.model`.
    place: &'a Item,
    public: &'a Pattern,
    base: Option<&'a Item>,
    environment: &'a Environment,
}

/// A provider, the model's name there, and the name that requests use.
type Who = (&'static Known, String, Pattern);

impl Entry<'_> {
    fn provider(&self, name: &str, item: &Item) -> Result<&'static Known, ConfigError> {
        known::provider(name).ok_or_else(|| {
            item.wrong(format_args!(
                "names the provider {name:?}, which this proxy has not; it has {}. For a server that speaks the \
                 OpenAI API write openai/MODEL and its api_base, for anything else run LiteLLM itself",
                known::names()
            ))
        })
    }

    fn who(&self, written: &str) -> Result<Vec<Who>, ConfigError> {
        let one = |provider, model: &str| vec![(provider, model.to_owned(), self.public.clone())];
        match written.split_once('/') {
            Some((prefix, model)) => Ok(one(self.provider(prefix, self.place)?, model)),
            None if written == "mock" => Ok(one(self.provider("mock", self.place)?, "mock")),
            // With an address it is a server of OpenAI's API, whatever its models are called.
            None if self.base.is_some() => Ok(one(self.provider("custom_openai", self.place)?, written)),
            None if written == "*" => self.everyone(),
            None => match known::of_bare_name(written) {
                Some(provider) => Ok(one(provider, written)),
                None => Err(self.place.wrong(format_args!(
                    "is {written:?}, which names no provider, and there is no api_base; write PROVIDER/{written} with \
                     one of {}, or the api_base of a server that speaks the OpenAI API",
                    known::names()
                ))),
            },
        }
    }

    /// `*`: all models of all providers, by the names they have here.
    fn everyone(&self) -> Result<Vec<Who>, ConfigError> {
        if *self.public != Pattern::beginning("") {
            return Err(self
                .place
                .wrong("is *, which needs model_name * beside it; name one model"));
        }
        let has_key =
            |known: &&'static Known| known.needs_key && self.variable(known.key_variables).is_some();
        let usable: Vec<&'static Known> = PROVIDERS
            .iter()
            .filter(has_key)
            .filter(|known| !known.base.is_empty() || self.variable(known.base_variables).is_some())
            .collect();
        if usable.is_empty() {
            let variables: Vec<&str> = PROVIDERS
                .iter()
                .filter(|known| known.needs_key)
                .filter_map(|known| known.key_variables.first().copied())
                .collect();
            return Err(self.place.wrong(format_args!(
                "is *, and there is no api_base and no key of any provider; set one of {}",
                variables.join(", ")
            )));
        }
        let named = usable.iter().map(|known| {
            (
                *known,
                "*".to_owned(),
                Pattern::beginning(format!("{}/", known.name)),
            )
        });
        let bare = known::MAKERS
            .iter()
            .filter_map(|(start, name)| Some((*start, *usable.iter().find(|known| known.name == *name)?)));
        let bare = bare.map(|(start, known)| (known, format!("{start}*"), Pattern::beginning(start)));
        Ok(named.chain(bare).collect())
    }

    fn model(&self, model: &str, provider: &Known) -> Result<Pattern, ConfigError> {
        // The mock is what it is by any name, or none.
        let model = if model.is_empty() && provider.api == Api::Mock {
            "mock"
        } else {
            model
        };
        let pattern = Pattern::parse(model, self.place)?;
        if pattern.open && !self.public.open {
            return Err(self.place.wrong(format_args!(
                "has a * that nothing stands for, since model_name {:?} has none; name one model",
                self.public.to_string()
            )));
        }
        Ok(pattern)
    }

    fn variable(&self, names: &[&str]) -> Option<&String> {
        let mut values = names.iter().filter_map(|name| self.environment.get(*name));
        values.find(|value| !value.trim().is_empty())
    }

    fn upstream(&self, provider: &'static Known, common: &Common) -> Result<Upstream, ConfigError> {
        if provider.api == Api::Mock {
            return match self.base.or(common.of_server.as_ref()) {
                Some(item) => Err(item.wrong("has no effect on the provider mock; remove it")),
                None => Ok(Upstream::Mock),
            };
        }
        let base = self.address(provider)?;
        let key = match &common.key {
            Some((key, _)) => Some(key.clone()),
            // The key of a provider is its own: no other server gets it.
            None if self.base.is_none() || provider.base.is_empty() => self
                .variable(provider.key_variables)
                .map(|key| Secret::new(key.trim().to_owned())),
            None => None,
        };
        if key.is_none() && provider.needs_key && self.base.is_none() {
            let variable = provider.key_variables.first().copied().unwrap_or_default();
            return Err(self.place.wrong(format_args!(
                "is a model of {}, for which there is no api_key, and {variable} is not set; set one of them",
                provider.name
            )));
        }
        let api_version = match &common.api_version {
            Some((_, item)) if provider.api != Api::Azure => {
                return Err(item.wrong(format_args!(
                    "has no effect on the provider {}; remove it",
                    provider.name
                )));
            }
            Some((version, _)) => Some(version.clone()),
            None if provider.api == Api::Azure => self.variable(&["AZURE_API_VERSION"]).cloned(),
            None => None,
        };
        let mut headers = common.headers.clone();
        if let Some(key) = &key {
            let (name, value) = key_header(provider.api, key).ok_or_else(|| {
                let item = common.key.as_ref().map_or(self.place, |(_, item)| item);
                item.wrong("is a key with characters that no HTTP header may have; correct it")
            })?;
            // An authorization that the file writes out wins.
            headers.entry(name).or_insert(value);
        }
        Ok(Upstream::Remote(Box::new(Remote {
            provider,
            base,
            key,
            api_version,
            headers,
            defaults: common.defaults.clone(),
            drop_params: common.drop_params,
        })))
    }

    fn address(&self, provider: &Known) -> Result<Url, ConfigError> {
        let text = match self.base {
            Some(item) => item.text(self.environment)?,
            None => match self.variable(provider.base_variables) {
                Some(text) => text.trim().to_owned(),
                None => provider.base.to_owned(),
            },
        };
        let item = self.base.unwrap_or(self.place);
        if text.is_empty() {
            let variable = match provider.base_variables {
                [] => String::new(),
                [first, ..] => format!(", or set {first}"),
            };
            return Err(item.wrong(format_args!(
                "is a model of {}, which is no server that everybody knows; add its api_base{variable}",
                provider.name
            )));
        }
        let url = Url::parse(&text)
            .ok()
            .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        let mut url = url.ok_or_else(|| {
            item.wrong(format_args!(
                "{text:?} is no URL; write http://HOST:PORT/v1 or https://HOST/v1"
            ))
        })?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(item.wrong("carries a user name or password; use api_key instead"));
        }
        for path in ["/chat/completions", "/embeddings", "/v1/messages"] {
            if url.path().ends_with(path) {
                return Err(item.wrong(format_args!(
                    "ends in {path}, which the proxy adds itself; leave it out"
                )));
            }
        }
        let path = url.path().trim_end_matches('/').to_owned();
        let path = match provider.api {
            Api::Ollama if !path.ends_with(OLLAMA_PATH) => format!("{path}{OLLAMA_PATH}"),
            _ => path,
        };
        url.set_path(&path);
        Ok(url)
    }
}
