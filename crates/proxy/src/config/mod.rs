//! The configuration file: LiteLLM's form, as far as this proxy serves it.
//!
//! ```yaml
//! model_list:
//! - model_name: "gpt-4o"                 # the name that requests use; "*" and "PREFIX*" match many
//!   litellm_params:
//!     model: "openai/gpt-4o"             # PROVIDER/NAME; openai, mock, or none with an api_base
//!     api_base: "https://api.openai.com/v1"
//!     api_key: "os.environ/OPENAI_API_KEY"
//! litellm_settings:
//!   drop_params: true
//! ```
//!
//! What is not known here is refused with its line, so that nothing in the file is silently without effect.
//! `drop_params` is accepted with either value: nothing needs dropping where both sides speak the same API.

mod file;

use std::{collections::BTreeMap, io, path::Path};

use serde::Deserialize;
use serde_saphyr::Spanned;
use url::Url;

use crate::secret::Secret;
use file::Files;

/// Where models of the provider `openai` are when the file names no `api_base`.
const OPENAI: &str = "https://api.openai.com/v1";
/// The variable of the key that goes there when the file names no `api_key`.
const OPENAI_KEY: &str = "OPENAI_API_KEY";
/// What stands before the name of an environment variable.
const REFERENCE: &str = "os.environ/";

/// What the proxy serves.
#[derive(Clone, Debug)]
pub struct Config {
    routes: Vec<Route>,
    /// Where it was read, unless it was given as a text.
    files: Option<Files>,
}

/// A model name and what stands behind it.
#[derive(Clone, Debug)]
struct Route {
    public: Pattern,
    upstream: Upstream,
}

/// A name, or with `*` at its end all names that begin like it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Pattern {
    text: String,
    open: bool,
}

#[derive(Clone, Debug)]
enum Upstream {
    Mock,
    OpenAi {
        completions: Url,
        key: Option<Secret>,
        model: Pattern,
    },
}

/// Where one request goes.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    /// The built-in mock.
    Mock,
    /// A server that speaks the OpenAI API.
    OpenAi {
        /// The URL of its chat completions.
        completions: Url,
        /// Its key.
        key: Option<Secret>,
        /// The model by the name it has there.
        model: String,
    },
}

/// A configuration that cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("proxy configuration {path:?} cannot be read: {source}; give the path of the file with --config")]
    Read {
        /// The file.
        path: String,
        /// What the operating system said.
        source: io::Error,
    },
    /// The file of the key cannot be read.
    #[error("the file {path:?} of PROXY_API_KEY_FILE cannot be read: {source}; name a file that can be")]
    Key {
        /// The file.
        path: String,
        /// What the operating system said.
        source: io::Error,
    },
    /// The file says something that is wrong.
    #[error("proxy configuration{}: {problem}", at_line(*line))]
    Invalid {
        /// The line, from 1, where it is known.
        line: Option<u64>,
        /// What was found and what to write instead.
        problem: String,
    },
}

fn at_line(line: Option<u64>) -> String {
    line.map(|line| format!(", line {line}")).unwrap_or_default()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    model_list: Vec<Entry>,
    #[serde(default, rename = "litellm_settings")]
    _settings: Settings,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    model_name: Spanned<String>,
    litellm_params: Params,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    model: Spanned<String>,
    api_base: Option<Spanned<String>>,
    api_key: Option<Spanned<String>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    #[serde(default, rename = "drop_params")]
    _drop_params: bool,
}

type Environment = BTreeMap<String, String>;

impl Config {
    /// Reads the file at `path`. References to the environment are looked up in `variables`, of which
    /// `PROXY_API_KEY_FILE` names a file to take `PROXY_API_KEY` from. While it is served both files are read
    /// again when they change.
    ///
    /// # Errors
    /// When a file cannot be read or says something that this proxy does not serve.
    pub fn load(
        path: &Path,
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, ConfigError> {
        let files = Files::open(path.to_owned(), variables.into_iter().collect())?;
        let mut config = files.parse()?;
        config.files = Some(files);
        Ok(config)
    }

    /// Reads the text of a file.
    ///
    /// # Errors
    /// When it says something that this proxy does not serve.
    pub fn parse(
        text: &str,
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, ConfigError> {
        Self::of(text, &variables.into_iter().collect())
    }

    fn of(text: &str, environment: &Environment) -> Result<Self, ConfigError> {
        let file: File = serde_saphyr::from_str(text).map_err(|error| {
            let error = error.without_snippet();
            let line = error.location().map(|location| location.line());
            ConfigError::Invalid {
                line,
                problem: plain(&error.to_string()),
            }
        })?;
        if file.model_list.is_empty() {
            let problem = "model_list is empty; list at least one model".to_owned();
            return Err(ConfigError::Invalid { line: None, problem });
        }
        let mut routes: Vec<Route> = Vec::with_capacity(file.model_list.len());
        for entry in file.model_list {
            let public = Pattern::parse(&entry.model_name, "model_name")?;
            if routes.iter().any(|route| route.public == public) {
                return Err(wrong(
                    &entry.model_name,
                    format!(
                        "model_name {:?} is there twice; this proxy does not balance load between \
                         deployments of one name, so give each its own",
                        entry.model_name.value
                    ),
                ));
            }
            let upstream = upstream(&entry.litellm_params, &public, environment)?;
            routes.push(Route { public, upstream });
        }
        Ok(Self { routes, files: None })
    }

    /// Where it was read.
    pub(crate) fn files(&self) -> Option<&Files> {
        self.files.as_ref()
    }

    /// The names of the file, in its order.
    pub(crate) fn names(&self) -> impl Iterator<Item = String> {
        self.routes.iter().map(|route| route.public.to_string())
    }

    /// Where a request for `model` goes: to the entry of that name, else to the longest pattern that it
    /// matches.
    pub(crate) fn target(&self, model: &str) -> Option<Target> {
        let route = self
            .routes
            .iter()
            .filter(|route| route.public.rest(model).is_some())
            .max_by_key(|route| (!route.public.open, route.public.text.len()))?;
        let rest = route.public.rest(model)?;
        Some(match &route.upstream {
            Upstream::Mock => Target::Mock,
            Upstream::OpenAi {
                completions,
                key,
                model,
            } => Target::OpenAi {
                completions: completions.clone(),
                key: key.clone(),
                model: if model.open {
                    format!("{}{rest}", model.text)
                } else {
                    model.text.clone()
                },
            },
        })
    }
}

impl Pattern {
    fn parse(name: &Spanned<String>, field: &str) -> Result<Self, ConfigError> {
        let text = name.value.as_str();
        if text.is_empty() {
            return Err(wrong(name, format!("{field} is empty; name a model")));
        }
        let (prefix, open) = match text.strip_suffix('*') {
            Some(prefix) => (prefix, true),
            None => (text, false),
        };
        if prefix.contains('*') {
            return Err(wrong(
                name,
                format!("{field} {text:?} has a * before its end; use a name, * or PREFIX*"),
            ));
        }
        Ok(Self {
            text: prefix.to_owned(),
            open,
        })
    }

    /// What `*` stands for in `name`; `None` where the pattern does not match.
    fn rest<'a>(&self, name: &'a str) -> Option<&'a str> {
        name.strip_prefix(&self.text)
            .filter(|rest| self.open || rest.is_empty())
    }
}

impl std::fmt::Display for Pattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", self.text, if self.open { "*" } else { "" })
    }
}

fn upstream(params: &Params, public: &Pattern, environment: &Environment) -> Result<Upstream, ConfigError> {
    let named = &params.model;
    let (provider, rest) = match named.value.split_once('/') {
        Some((provider, rest)) => (Some(provider), rest),
        None if named.value == "mock" => (Some("mock"), ""),
        None => (None, named.value.as_str()),
    };
    match provider {
        Some("mock") => {
            let given = [("api_base", &params.api_base), ("api_key", &params.api_key)];
            if let Some((field, value)) = given.iter().find_map(|(f, v)| Some((f, v.as_ref()?))) {
                return Err(wrong(
                    value,
                    format!("{field} has no effect on the provider mock; remove it"),
                ));
            }
            Ok(Upstream::Mock)
        }
        Some("openai") | None => {
            let model = Pattern::parse(
                &Spanned {
                    value: rest.to_owned(),
                    ..named.clone()
                },
                "model",
            )?;
            if model.open && !public.open {
                return Err(wrong(
                    named,
                    format!(
                        "model {:?} has a * that nothing stands for, since model_name {:?} has none; \
                         name one model",
                        named.value,
                        public.to_string()
                    ),
                ));
            }
            let (base, key) = address(params, provider.is_some(), environment)?;
            Ok(Upstream::OpenAi {
                completions: completions(base)?,
                key,
                model,
            })
        }
        Some(other) => Err(wrong(
            named,
            format!(
                "model {:?} names the provider {other:?}, which this proxy does not serve; for a server that \
                 speaks the OpenAI API write \"openai/{rest}\" and its api_base, for a test \
                 \"mock/{rest}\", for anything else use LiteLLM",
                named.value
            ),
        )),
    }
}

/// The base URL, with where it was written, and the key.
type Address = ((Url, Option<Spanned<String>>), Option<Secret>);

fn address(params: &Params, openai: bool, environment: &Environment) -> Result<Address, ConfigError> {
    let key = match &params.api_key {
        Some(written) => Some(Secret::new(resolve(written, "api_key", environment)?)),
        None => None,
    };
    if let Some(written) = &params.api_base {
        let text = resolve(written, "api_base", environment)?;
        let base = Url::parse(&text)
            .ok()
            .filter(|url| matches!(url.scheme(), "http" | "https"));
        let base = base.ok_or_else(|| {
            wrong(
                written,
                format!("api_base {text:?} is no URL; write http://HOST:PORT/v1 or https://HOST/v1"),
            )
        })?;
        return Ok(((base, Some(written.clone())), key));
    }
    if !openai {
        return Err(wrong(
            &params.model,
            format!(
                "model {:?} names no provider and there is no api_base; write \"openai/{}\", or the \
                 api_base of a server that speaks the OpenAI API",
                params.model.value, params.model.value
            ),
        ));
    }
    let own = || {
        environment
            .get(OPENAI_KEY)
            .filter(|key| !key.is_empty())
            .cloned()
            .map(Secret::new)
    };
    let key = key.or_else(own).ok_or_else(|| {
        wrong(
            &params.model,
            format!(
                "model {:?} has no api_key, and {OPENAI_KEY} is not set; set one of them",
                params.model.value
            ),
        )
    })?;
    let base = Url::parse(OPENAI).map_err(|error| wrong(&params.model, error.to_string()))?;
    Ok(((base, None), Some(key)))
}

fn completions((base, written): (Url, Option<Spanned<String>>)) -> Result<Url, ConfigError> {
    let mut url = base;
    if let Some(written) = &written {
        if !url.username().is_empty() || url.password().is_some() {
            return Err(wrong(
                written,
                "api_base carries a user name or password; use api_key instead".to_owned(),
            ));
        }
        if url.path().ends_with("/chat/completions") {
            let problem = "api_base ends in /chat/completions, which the proxy adds itself; leave it out";
            return Err(wrong(written, problem.to_owned()));
        }
    }
    let path = format!("{}/chat/completions", url.path().trim_end_matches('/'));
    url.set_path(&path);
    Ok(url)
}

/// The value itself, or that of the environment variable it refers to.
fn resolve(written: &Spanned<String>, field: &str, environment: &Environment) -> Result<String, ConfigError> {
    let value = match written.value.strip_prefix(REFERENCE) {
        None => written.value.clone(),
        Some(name) => environment.get(name).cloned().ok_or_else(|| {
            wrong(
                written,
                format!("{field} refers to the environment variable {name}, which is not set; set it"),
            )
        })?,
    };
    let value = value.trim().to_owned();
    if value.is_empty() {
        return Err(wrong(
            written,
            format!("{field} is empty; give it a value or remove it"),
        ));
    }
    Ok(value)
}

fn wrong(place: &Spanned<String>, problem: String) -> ConfigError {
    ConfigError::Invalid {
        line: Some(place.referenced.line()).filter(|line| *line > 0),
        problem,
    }
}

/// The parser's message without the place, which is said before it.
fn plain(message: &str) -> String {
    let message = message.trim().lines().next().unwrap_or_default();
    message.split(" at line ").next().unwrap_or(message).to_owned()
}

#[cfg(test)]
mod tests;
