//! A YAML file as a tree that knows where each part stands, so that a complaint names the line and the path of
//! what is wrong, and what nobody asked for is found.

use std::{borrow::Cow, fmt, time::Duration};

use serde::{
    Deserialize,
    de::{self, Deserializer, MapAccess, SeqAccess, Visitor},
};
use serde_json::Value;
use serde_saphyr::Spanned;

use super::{ConfigError, Environment};

/// What stands before the name of an environment variable.
const REFERENCE: &str = "os.environ/";

/// How deep the file may be nested, which is far deeper than any field is. The parser calls itself for each level.
const DEEPEST: usize = 24;

/// A part of the file.
#[derive(Clone, Debug)]
pub(super) enum Node {
    Map(Vec<(Spanned<String>, Spanned<Node>)>),
    List(Vec<Spanned<Node>>),
    Scalar(Value),
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AnyNode;
        impl<'de> Visitor<'de> for AnyNode {
            type Value = Node;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a mapping, a list or a value")
            }

            fn visit_bool<E: de::Error>(self, value: bool) -> Result<Node, E> {
                Ok(Node::Scalar(value.into()))
            }

            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Node, E> {
                Ok(Node::Scalar(value.into()))
            }

            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Node, E> {
                Ok(Node::Scalar(value.into()))
            }

            fn visit_f64<E: de::Error>(self, value: f64) -> Result<Node, E> {
                Ok(Node::Scalar(value.into()))
            }

            fn visit_str<E: de::Error>(self, value: &str) -> Result<Node, E> {
                Ok(Node::Scalar(value.into()))
            }

            fn visit_unit<E: de::Error>(self) -> Result<Node, E> {
                Ok(Node::Scalar(Value::Null))
            }

            fn visit_none<E: de::Error>(self) -> Result<Node, E> {
                Ok(Node::Scalar(Value::Null))
            }

            fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
                Node::deserialize(deserializer)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Node, A::Error> {
                let mut list = Vec::new();
                while let Some(item) = items.next_element()? {
                    list.push(item);
                }
                Ok(Node::List(list))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Node, A::Error> {
                let mut map = Vec::new();
                while let Some(entry) = entries.next_entry()? {
                    map.push(entry);
                }
                Ok(Node::Map(map))
            }
        }
        deserializer.deserialize_any(AnyNode)
    }
}

impl Node {
    fn what(&self) -> &'static str {
        match self {
            Self::Map(_) => "a mapping",
            Self::List(_) => "a list",
            Self::Scalar(Value::String(_)) => "a text",
            Self::Scalar(Value::Bool(_)) => "true or false",
            Self::Scalar(Value::Number(_)) => "a number",
            Self::Scalar(_) => "nothing",
        }
    }

    fn json(self) -> Value {
        match self {
            Self::Map(entries) => entries
                .into_iter()
                .map(|(name, node)| (name.value, node.value.json()))
                .collect(),
            Self::List(items) => items.into_iter().map(|item| item.value.json()).collect(),
            Self::Scalar(value) => value,
        }
    }
}

/// A value with its place.
#[derive(Clone, Debug)]
pub(super) struct Item {
    /// From the top of the file: `model_list[0].litellm_params.model`.
    pub(super) path: String,
    line: Option<u64>,
    node: Node,
}

/// Reads a whole file.
pub(super) fn read(text: &str) -> Result<Item, ConfigError> {
    let limits = serde_saphyr::options! { budget: serde_saphyr::budget! { max_depth: DEEPEST } };
    let node: Result<Spanned<Node>, _> = serde_saphyr::from_str_with_options(text, limits);
    let node = node.map_err(|error| {
        let error = error.without_snippet();
        let line = error.location().map(|location| location.line());
        ConfigError::Invalid {
            line,
            problem: plain(&error.to_string()),
        }
    })?;
    Ok(Item::new(String::new(), node))
}

/// A field's name as messages have it, which are one line.
fn shown(name: &str) -> Cow<'_, str> {
    if name.contains(char::is_control) {
        Cow::Owned(format!("{name:?}"))
    } else {
        Cow::Borrowed(name)
    }
}

/// The parser's message without the place, which is said before it.
fn plain(message: &str) -> String {
    let message = message.trim().lines().next().unwrap_or_default();
    message.split(" at line ").next().unwrap_or(message).to_owned()
}

impl Item {
    fn new(path: String, node: Spanned<Node>) -> Self {
        Self {
            path,
            line: Some(node.referenced.line()).filter(|line| *line > 0),
            node: node.value,
        }
    }

    /// An error at this place; the message begins with its path.
    pub(super) fn wrong(&self, problem: impl fmt::Display) -> ConfigError {
        ConfigError::Invalid {
            line: self.line,
            // One line, whatever it quotes.
            problem: format!("{} {problem}", self.path).replace(char::is_control, " "),
        }
    }

    fn not(&self, wanted: &str) -> ConfigError {
        self.wrong(format_args!("is {}; write {wanted}", self.node.what()))
    }

    /// The fields of a mapping.
    pub(super) fn section(self) -> Result<Section, ConfigError> {
        match self.node {
            Node::Map(entries) => Ok(Section {
                entries: entries
                    .into_iter()
                    .filter(|(_, node)| !matches!(node.value, Node::Scalar(Value::Null)))
                    .map(|(name, node)| {
                        let shown = shown(&name.value);
                        let path = match self.path.as_str() {
                            "" => shown.into_owned(),
                            path => format!("{path}.{shown}"),
                        };
                        let line = Some(name.referenced.line()).filter(|line| *line > 0);
                        let item = Self {
                            line,
                            ..Self::new(path, node)
                        };
                        (name.value, item)
                    })
                    .collect(),
                place: Self {
                    node: Node::Map(Vec::new()),
                    ..self
                },
            }),
            _ if self.path.is_empty() => Err(ConfigError::Invalid {
                line: self.line,
                problem: format!("the file is {}; it needs at least model_list", self.node.what()),
            }),
            _ => Err(self.not("a mapping")),
        }
    }

    /// The items of a list.
    pub(super) fn list(self) -> Result<Vec<Self>, ConfigError> {
        match self.node {
            Node::List(items) => Ok(items
                .into_iter()
                .enumerate()
                .map(|(at, node)| Self::new(format!("{}[{at}]", self.path), node))
                .collect()),
            _ => Err(self.not("a list")),
        }
    }

    /// A text as it is written.
    pub(super) fn written(&self) -> Result<&str, ConfigError> {
        match &self.node {
            Node::Scalar(Value::String(text)) => Ok(text),
            _ => Err(self.not("a text (in quotes, if it looks like something else)")),
        }
    }

    /// A text, or that of the environment variable it refers to. Never empty.
    pub(super) fn text(&self, environment: &Environment) -> Result<String, ConfigError> {
        let written = self.written()?;
        let value = match written.strip_prefix(REFERENCE) {
            None => written.to_owned(),
            Some(name) => environment.get(name).cloned().ok_or_else(|| {
                self.wrong(format_args!(
                    "refers to the environment variable {name}, which is not set; set it"
                ))
            })?,
        };
        let value = value.trim().to_owned();
        if value.is_empty() {
            return Err(self.wrong("is empty; give it a value or remove it"));
        }
        Ok(value)
    }

    /// A whole number, also where the environment has it.
    pub(super) fn count(&self, environment: &Environment) -> Result<u64, ConfigError> {
        let number = match &self.node {
            Node::Scalar(Value::Number(number)) => number.as_u64(),
            Node::Scalar(Value::String(_)) => self.text(environment)?.parse().ok(),
            _ => None,
        };
        number.ok_or_else(|| self.wrong("must be a whole number, 0 or more"))
    }

    /// A number above 0.
    pub(super) fn positive(&self, environment: &Environment) -> Result<f64, ConfigError> {
        let number = match &self.node {
            Node::Scalar(Value::Number(number)) => number.as_f64(),
            Node::Scalar(Value::String(_)) => self.text(environment)?.parse().ok(),
            _ => None,
        };
        number
            .filter(|number| number.is_finite() && *number > 0.0)
            .ok_or_else(|| self.wrong("must be a number above 0"))
    }

    /// A time in seconds, of at most a day.
    pub(super) fn seconds(&self, environment: &Environment) -> Result<Duration, ConfigError> {
        let seconds = self.positive(environment)?;
        if seconds > 86_400.0 {
            return Err(self.wrong(format_args!("is {seconds} s; give at most 86400 (a day)")));
        }
        Ok(Duration::from_secs_f64(seconds))
    }

    /// A switch.
    pub(super) fn switch(&self) -> Result<bool, ConfigError> {
        match &self.node {
            Node::Scalar(Value::Bool(value)) => Ok(*value),
            _ => Err(self.not("true or false")),
        }
    }

    /// Texts: a list of them, or one.
    pub(super) fn texts(self) -> Result<Vec<(String, Self)>, ConfigError> {
        let items = match self.node {
            Node::List(_) => self.list()?,
            _ => vec![self],
        };
        items
            .into_iter()
            .map(|item| Ok((item.written()?.to_owned(), item)))
            .collect()
    }

    /// The value as JSON.
    pub(super) fn json(self) -> Value {
        self.node.json()
    }
}

/// The fields of a mapping, of which each is taken once.
#[derive(Debug)]
pub(super) struct Section {
    pub(super) place: Item,
    entries: Vec<(String, Item)>,
}

impl Section {
    /// The field `name`, if it is there and not null.
    pub(super) fn take(&mut self, name: &str) -> Option<Item> {
        let at = self.entries.iter().position(|(known, _)| known == name)?;
        Some(self.entries.remove(at).1)
    }

    /// The field `name`.
    pub(super) fn required(&mut self, name: &str) -> Result<Item, ConfigError> {
        self.take(name).ok_or_else(|| ConfigError::Invalid {
            line: self.place.line,
            problem: match self.place.path.as_str() {
                "" => format!("{name} is missing; add it"),
                path => format!("{path} has no {name}; add it"),
            },
        })
    }

    /// All fields that are left.
    pub(super) fn rest(self) -> impl Iterator<Item = (String, Item)> {
        self.entries.into_iter()
    }

    /// Refuses a field that nobody has taken; `advice` says for some what to do.
    pub(super) fn end(self, advice: impl Fn(&str) -> Option<&'static str>) -> Result<(), ConfigError> {
        match self.entries.into_iter().next() {
            None => Ok(()),
            Some((name, item)) => {
                let what = advice(&name).unwrap_or("remove it, or run LiteLLM itself");
                Err(item.wrong(format_args!("is not implemented by this proxy; {what}")))
            }
        }
    }
}
