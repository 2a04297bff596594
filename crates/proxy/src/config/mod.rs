//! The configuration file: LiteLLM's form, as far as this proxy serves it.
//!
//! ```yaml
//! model_list:
//! - model_name: "gpt-4o"                 # the name that requests use; "*" and "PREFIX*" match many
//!   litellm_params:
//!     model: "openai/gpt-4o"             # PROVIDER/NAME
//!     api_base: "https://api.openai.com/v1"
//!     api_key: "os.environ/OPENAI_API_KEY"
//! litellm_settings:
//!   drop_params: true
//! ```
//!
//! Data goes one way: the text becomes a [`tree`], whose parts know their lines; [`settings`] and [`deployment`]
//! take from it what they know; what is left is an error that names it. So nothing in the file is silently
//! without effect. `docs/models.md` lists all fields.

mod deployment;
mod files;
mod settings;
mod tree;

use std::{
    collections::{BTreeMap, HashMap},
    io,
    path::Path,
    sync::Arc,
    time::Duration,
};

use serde_json::Value;

use crate::{
    allowance::Allowance,
    client::Transport,
    health::{Health, Tolerance},
    provider::Remote,
    secret::Secret,
};
use files::Files;
use settings::Settings;
use tree::Item;

/// What the proxy serves.
#[derive(Debug)]
pub struct Config {
    /// In the order of the file.
    groups: Vec<Group>,
    /// Where those with a name that is no pattern are.
    exact: HashMap<String, usize>,
    aliases: BTreeMap<String, String>,
    fallbacks: BTreeMap<String, Vec<String>>,
    default_fallbacks: Vec<String>,
    pub(crate) retries: Retries,
    pub(crate) tolerance: Tolerance,
    /// What requests have to show.
    pub(crate) master_key: Option<Secret>,
    pub(crate) transport: Transport,
    /// Where it was read, unless it was given as a text.
    files: Option<Files>,
}

/// How often what failed is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Retries {
    pub(crate) count: u32,
    /// The least time between two tries.
    pub(crate) wait: Duration,
}

/// All deployments of one name.
#[derive(Debug)]
pub(crate) struct Group {
    name: Pattern,
    pub(crate) deployments: Vec<Arc<Deployment>>,
}

/// One model behind a name.
#[derive(Debug)]
pub(crate) struct Deployment {
    /// For people: `openai/gpt-4o`, or the `model_info.id` of the file.
    pub(crate) id: String,
    pub(crate) model: Pattern,
    pub(crate) upstream: Upstream,
    /// Its share of the requests, beside the others of its name.
    pub(crate) weight: f64,
    pub(crate) limits: Limits,
    /// How often it is tried again, where it differs from the rest.
    pub(crate) retries: Option<u32>,
    pub(crate) health: Health,
    /// How much it may be asked for.
    pub(crate) allowance: Arc<Allowance>,
    /// What the file tells about it.
    pub(crate) info: Option<Value>,
}

/// Who answers.
#[derive(Debug)]
pub(crate) enum Upstream {
    /// The built-in mock.
    Mock,
    /// A server.
    Remote(Box<Remote>),
}

/// How long an upstream may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// For an answer that is no stream, from the request to its end.
    pub(crate) whole: Duration,
    /// Until a stream begins.
    pub(crate) first: Duration,
}

/// A name, or with `*` at its end all names that begin like it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    text: String,
    open: bool,
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
    /// A variable of the environment, or what it names, is wrong.
    #[error("{variable}: {problem}")]
    Environment {
        /// The variable.
        variable: String,
        /// What was found and what to set instead.
        problem: String,
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
        let mut files = Files::open(path.to_owned(), variables.into_iter().collect())?;
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
        Self::of(text, variables.into_iter().collect())
    }

    fn of(text: &str, mut environment: Environment) -> Result<Self, ConfigError> {
        let mut file = tree::read(text)?.section()?;
        if let Some(variables) = file.take("environment_variables") {
            for (name, item) in variables.section()?.rest() {
                let value = item.text(&environment)?;
                environment.insert(name, value);
            }
        }
        let settings = Settings::take(&mut file, &environment)?;
        let models = file.required("model_list")?;
        file.end(settings::advice)?;
        let mut config = Self {
            groups: Vec::new(),
            exact: HashMap::new(),
            aliases: BTreeMap::new(),
            fallbacks: BTreeMap::new(),
            default_fallbacks: Vec::new(),
            retries: settings.retries,
            tolerance: settings.tolerance,
            master_key: settings.master_key.clone(),
            transport: Transport::read(settings.ca_file.as_deref(), &environment)?,
            files: None,
        };
        let place = models.clone();
        for entry in models.list()? {
            for (name, deployment) in deployment::read(entry, &settings, &environment)? {
                config.add(name, deployment);
            }
        }
        if config.groups.is_empty() {
            return Err(place.wrong("is empty; list at least one model"));
        }
        config.refer(settings)?;
        Ok(config)
    }

    fn add(&mut self, name: Pattern, deployment: Deployment) {
        let known = self.groups.iter_mut().find(|group| group.name == name);
        let deployment = Arc::new(deployment);
        if let Some(group) = known {
            group.deployments.push(deployment);
            return;
        }
        if !name.open {
            self.exact.insert(name.text.clone(), self.groups.len());
        }
        self.groups.push(Group {
            name,
            deployments: vec![deployment],
        });
    }

    /// Takes over what refers to models, once all are known.
    fn refer(&mut self, settings: Settings) -> Result<(), ConfigError> {
        let known = |config: &Self, name: &str, item: &Item| match config.group(name) {
            Some(_) => Ok(()),
            None => Err(item.wrong(format_args!(
                "names the model {name:?}, which model_list has not; add it there"
            ))),
        };
        for (alias, target, item) in settings.aliases {
            known(self, &target, &item)?;
            self.aliases.insert(alias, target);
        }
        for (name, others) in settings.fallbacks {
            for (other, item) in &others {
                known(self, other, item)?;
            }
            let others = others.into_iter().map(|(other, _)| other);
            self.fallbacks.entry(name).or_default().extend(others);
        }
        for (other, item) in settings.default_fallbacks {
            known(self, &other, &item)?;
            self.default_fallbacks.push(other);
        }
        Ok(())
    }

    /// Where it was read.
    pub(crate) fn files(&self) -> Option<&Files> {
        self.files.as_ref()
    }

    /// The names of the file, in its order.
    pub(crate) fn names(&self) -> impl Iterator<Item = String> {
        let aliases = self.aliases.keys().cloned();
        self.groups
            .iter()
            .map(|group| group.name.to_string())
            .chain(aliases)
    }

    /// All deployments with the names they stand behind, in the order of the file.
    pub(crate) fn deployments(&self) -> impl Iterator<Item = (String, &Deployment)> {
        self.groups.iter().flat_map(|group| {
            let deployments = group.deployments.iter();
            deployments.map(move |deployment| (group.name.to_string(), deployment.as_ref()))
        })
    }

    /// Those that answer for `model`: of the group of that name, else of the one with the longest pattern that
    /// it matches.
    pub(crate) fn group(&self, model: &str) -> Option<&Group> {
        let model = self.aliases.get(model).map_or(model, String::as_str);
        if let Some(at) = self.exact.get(model) {
            return self.groups.get(*at);
        }
        let matching = self
            .groups
            .iter()
            .filter(|group| group.name.rest(model).is_some());
        matching.max_by_key(|group| group.name.text.len())
    }

    /// The models to ask when `model` has failed, in this order.
    pub(crate) fn fallbacks(&self, model: &str) -> &[String] {
        let of_group = || self.fallbacks.get(&self.group(model)?.name.to_string());
        let own = self.fallbacks.get(model).or_else(of_group);
        own.or_else(|| self.fallbacks.get("*"))
            .unwrap_or(&self.default_fallbacks)
    }

    /// The name that `deployment`, of those that answer for `model`, has at its upstream.
    pub(crate) fn upstream_model(&self, model: &str, deployment: &Deployment) -> String {
        let model = self.aliases.get(model).map_or(model, String::as_str);
        let rest = self.group(model).and_then(|group| group.name.rest(model));
        deployment.model.filled(rest.unwrap_or_default())
    }
}

impl Pattern {
    fn parse(text: &str, item: &Item) -> Result<Self, ConfigError> {
        if text.is_empty() {
            return Err(item.wrong("is empty; name a model"));
        }
        let (prefix, open) = match text.strip_suffix('*') {
            Some(prefix) => (prefix, true),
            None => (text, false),
        };
        if prefix.contains('*') {
            return Err(item.wrong(format_args!(
                "is {text:?}, with a * before its end; use a name, * or PREFIX*"
            )));
        }
        Ok(Self {
            text: prefix.to_owned(),
            open,
        })
    }

    /// All names that begin with `prefix`.
    fn beginning(prefix: impl Into<String>) -> Self {
        Self {
            text: prefix.into(),
            open: true,
        }
    }

    /// What `*` stands for in `name`; `None` where the pattern does not match.
    fn rest<'a>(&self, name: &'a str) -> Option<&'a str> {
        name.strip_prefix(&self.text)
            .filter(|rest| self.open || rest.is_empty())
    }

    /// The name with `rest` in place of `*`.
    fn filled(&self, rest: &str) -> String {
        if self.open {
            format!("{}{rest}", self.text)
        } else {
            self.text.clone()
        }
    }
}

impl std::fmt::Display for Pattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", self.text, if self.open { "*" } else { "" })
    }
}

#[cfg(test)]
mod tests;
