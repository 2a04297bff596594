//! One node of a schema, and a cursor that walks the tree.
//!
//! Nodes live in an arena and name each other by index: built-in definitions share their parts, and a schema may
//! contain itself, as the schemas inside CustomResourceDefinitions do.

use std::{collections::BTreeMap, sync::Arc};

use indexmap::IndexMap;
use regex::Regex;
use serde_json::Value;

use super::rules::Rules;

/// The index of a node in its arena.
pub(crate) type NodeId = usize;

/// All nodes of one schema, or of all built-in kinds.
#[derive(Debug, Default)]
pub(crate) struct Arena {
    pub(super) nodes: Vec<Node>,
    /// Nodes that have a name of their own, such as `io.k8s.api.core.v1.PodSpec`.
    pub(super) definitions: BTreeMap<String, NodeId>,
}

impl Arena {
    pub(super) fn push(&mut self, node: Node) -> NodeId {
        self.nodes.push(node);
        self.nodes.len() - 1
    }

    pub(super) fn cursor(&self, id: NodeId) -> Cursor<'_> {
        Cursor {
            arena: self,
            id,
            node: &self.nodes[id],
        }
    }
}

/// A JSON type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
}

impl Type {
    /// The name in a schema.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Object => "object",
            Self::Array => "array",
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
        }
    }

    /// The type of that name.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        [
            Self::Object,
            Self::Array,
            Self::String,
            Self::Integer,
            Self::Number,
            Self::Boolean,
        ]
        .into_iter()
        .find(|kind| kind.name() == name)
    }
}

/// How the items of a list are merged by server-side apply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum ListType {
    /// Replaced as a whole.
    #[default]
    Atomic,
    /// Scalars, each owned on its own.
    Set,
    /// Objects, told apart by these fields.
    Map(Vec<String>),
}

/// How strategic merge patch treats a field, besides merging objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PatchStrategy {
    /// Lists are merged, by the merge key where there is one.
    pub(crate) merge: bool,
    /// Fields of the patch's object that are not in its `$retainKeys` are dropped.
    pub(crate) retain_keys: bool,
}

/// What a field may be.
#[derive(Clone, Debug, Default)]
pub(crate) struct Node {
    /// The name of the definition this node is, where it has one.
    pub(crate) definition: Option<Arc<str>>,
    pub(crate) description: Option<String>,
    pub(crate) title: Option<String>,
    /// Nothing where any type is allowed.
    pub(crate) kind: Option<Type>,
    pub(crate) format: Option<String>,
    pub(crate) nullable: bool,
    pub(crate) int_or_string: bool,
    pub(crate) preserve_unknown: bool,
    pub(crate) embedded_resource: bool,
    pub(crate) properties: IndexMap<String, NodeId>,
    pub(crate) items: Option<NodeId>,
    /// What the values of a map may be.
    pub(crate) additional: Option<NodeId>,
    /// `additionalProperties: true`.
    pub(crate) additional_any: bool,
    pub(crate) required: Vec<String>,
    /// Fields of built-in kinds that are structs by value in Go: they are always there, if only as `{}`.
    pub(crate) by_value: Vec<String>,
    pub(crate) default: Option<Value>,
    pub(crate) list: ListType,
    /// Whether a map or struct is replaced as a whole by server-side apply.
    pub(crate) atomic_map: bool,
    pub(crate) patch: PatchStrategy,
    pub(crate) merge_key: Option<String>,
    /// `x-kubernetes-group-version-kind`, as it stands in the document.
    pub(crate) kinds: Option<Value>,
    /// Boxed: most nodes have none.
    pub(crate) checks: Option<Box<Checks>>,
    pub(crate) rules: Option<Arc<Rules>>,
}

/// What a value must satisfy beyond its type.
#[derive(Clone, Debug, Default)]
pub(crate) struct Checks {
    pub(crate) allowed: Option<Vec<Value>>,
    pub(crate) maximum: Option<f64>,
    pub(crate) exclusive_maximum: bool,
    pub(crate) minimum: Option<f64>,
    pub(crate) exclusive_minimum: bool,
    pub(crate) multiple_of: Option<f64>,
    pub(crate) max_length: Option<u64>,
    pub(crate) min_length: Option<u64>,
    pub(crate) pattern: Option<Regex>,
    pub(crate) max_items: Option<u64>,
    pub(crate) min_items: Option<u64>,
    pub(crate) unique_items: bool,
    pub(crate) max_properties: Option<u64>,
    pub(crate) min_properties: Option<u64>,
    pub(crate) all_of: Vec<NodeId>,
    pub(crate) any_of: Vec<NodeId>,
    pub(crate) one_of: Vec<NodeId>,
    pub(crate) not: Option<NodeId>,
}

/// A node with its arena.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor<'a> {
    arena: &'a Arena,
    id: NodeId,
    node: &'a Node,
}

impl<'a> Cursor<'a> {
    /// The node itself.
    pub(crate) fn node(self) -> &'a Node {
        self.node
    }

    /// The node's index, to tell nodes of one arena apart.
    pub(crate) fn id(self) -> NodeId {
        self.id
    }

    /// Another node of the same arena.
    pub(crate) fn at(self, id: NodeId) -> Self {
        self.arena.cursor(id)
    }

    /// A declared field.
    pub(crate) fn property(self, name: &str) -> Option<Self> {
        self.node.properties.get(name).map(|id| self.at(*id))
    }

    /// The values of a map.
    pub(crate) fn additional(self) -> Option<Self> {
        self.node.additional.map(|id| self.at(id))
    }

    /// A declared field, or else the values of a map.
    pub(crate) fn field(self, name: &str) -> Option<Self> {
        self.property(name).or_else(|| self.additional())
    }

    /// The items of a list.
    pub(crate) fn items(self) -> Option<Self> {
        self.node.items.map(|id| self.at(id))
    }

    /// Whether fields beyond the declared ones are kept.
    pub(crate) fn keeps_unknown(self) -> bool {
        self.node.preserve_unknown || self.node.additional_any
    }

    /// Whether nothing at all is said about the value: any JSON, as in `default` of a schema.
    pub(crate) fn is_opaque(self) -> bool {
        let node = self.node;
        matches!(node.kind, None | Some(Type::Object))
            && node.properties.is_empty()
            && node.additional.is_none()
            && node.items.is_none()
            && !node.int_or_string
            && (node.kind.is_none() || !self.keeps_unknown())
    }
}
