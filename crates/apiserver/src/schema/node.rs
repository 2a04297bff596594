//! The tree that a schema is.

use std::collections::{BTreeMap, HashMap};

use regex::Regex;
use serde_json::Value;

/// Nodes by name, for schemas that refer to each other or to themselves.
pub(crate) type Definitions = HashMap<String, Node>;

/// The JSON type of a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Kind {
    /// No type is given.
    #[default]
    Any,
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
    /// An integer or a string, such as a port or a percentage.
    IntOrString,
}

/// How two versions of a list are one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum ListType {
    /// One value: replaced as a whole.
    #[default]
    Atomic,
    /// Scalars without order and duplicates.
    Set,
    /// Objects told apart by the values of these fields.
    Map(Vec<String>),
}

/// What is known of one value.
#[derive(Debug, Default)]
pub(crate) struct Node {
    /// The name of the definition that this stands for; everything else is empty then, but the default.
    pub(crate) reference: Option<String>,
    pub(crate) kind: Kind,
    pub(crate) properties: BTreeMap<String, Node>,
    /// What the values of a map are.
    pub(crate) additional: Option<Box<Node>>,
    pub(crate) items: Option<Box<Node>>,
    pub(crate) required: Vec<String>,
    pub(crate) default: Option<Value>,
    pub(crate) nullable: bool,
    /// Unknown fields are kept.
    pub(crate) preserve_unknown: bool,
    /// The value is an object with apiVersion, kind and metadata of its own.
    pub(crate) embedded: bool,
    pub(crate) list: ListType,
    /// The fields of the object are one value: replaced as a whole.
    pub(crate) atomic: bool,
    /// The field that identifies an item in a strategic merge patch; with [`Node::merges`].
    pub(crate) merge_key: Option<String>,
    /// Lists are merged by strategic merge patches instead of replaced.
    pub(crate) merges: bool,
    pub(crate) limits: Limits,
}

impl Node {
    /// Text.
    pub(crate) fn string() -> Self {
        Self { kind: Kind::String, ..Self::default() }
    }

    /// A node that stands for a definition.
    pub(crate) fn reference(name: &str) -> Self {
        Self { reference: Some(name.to_owned()), ..Self::default() }
    }

    /// What the value of a field is: a property, or an entry of a map.
    pub(crate) fn field(&self, name: &str) -> Option<&Node> {
        self.properties.get(name).or(self.additional.as_deref())
    }

    /// Whether the fields of the object are keys of a map.
    pub(crate) fn is_map(&self) -> bool {
        self.properties.is_empty() && self.additional.is_some()
    }
}

/// What values are allowed beyond their type.
#[derive(Debug, Default)]
pub(crate) struct Limits {
    pub(crate) one_of_values: Vec<Value>,
    pub(crate) minimum: Option<f64>,
    pub(crate) exclusive_minimum: bool,
    pub(crate) maximum: Option<f64>,
    pub(crate) exclusive_maximum: bool,
    pub(crate) multiple_of: Option<f64>,
    pub(crate) min_length: Option<u64>,
    pub(crate) max_length: Option<u64>,
    pub(crate) pattern: Option<Regex>,
    pub(crate) format: Option<String>,
    pub(crate) min_items: Option<u64>,
    pub(crate) max_items: Option<u64>,
    pub(crate) min_properties: Option<u64>,
    pub(crate) max_properties: Option<u64>,
    pub(crate) all_of: Vec<Node>,
    pub(crate) any_of: Vec<Node>,
    pub(crate) one_of: Vec<Node>,
    pub(crate) not: Option<Box<Node>>,
}
