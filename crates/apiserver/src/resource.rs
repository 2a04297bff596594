//! What the server knows about one kind of object: its names, scope, subresources, schema and columns.
//!
//! Built-in kinds and custom resources are described by the same [`ResourceType`]; every other module
//! works from it and never asks which of the two it has before it.

use std::sync::Arc;

use crate::schema::Schema;

/// One served resource: a kind in one group and version.
#[derive(Debug)]
pub(crate) struct ResourceType {
    /// The API group, empty for the core group.
    pub(crate) group: String,
    /// The version, for example `v1`.
    pub(crate) version: String,
    /// The kind, for example `Deployment`.
    pub(crate) kind: String,
    /// The kind of its lists, for example `DeploymentList`.
    pub(crate) list_kind: String,
    /// The name in paths, for example `deployments`.
    pub(crate) plural: String,
    /// The lower-case singular name.
    pub(crate) singular: String,
    /// Names that kubectl accepts beside the plural, for example `deploy`.
    pub(crate) short_names: Vec<String>,
    /// Groups of kinds such as `all`, as kubectl knows them.
    pub(crate) categories: Vec<String>,
    /// Whether objects live in a namespace.
    pub(crate) namespaced: bool,
    /// Whether `/status` is served. Where it is, the main resource cannot change the status and the
    /// status cannot change anything else.
    pub(crate) status: bool,
    /// The paths of the `/scale` subresource, where it is served.
    pub(crate) scale: Option<ScalePaths>,
    /// The structural schema with list types and merge keys.
    pub(crate) schema: Arc<Schema>,
    /// The columns of `kubectl get` beyond the name, in order.
    pub(crate) columns: Vec<Column>,
    /// Whether the kind is built in (strategic merge patch is offered) or defined by a CustomResourceDefinition.
    pub(crate) builtin: bool,
}

impl ResourceType {
    /// `group/version`, or only the version for the core group.
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// The name that its objects are stored under. Events are one resource in two groups.
    pub(crate) fn storage_name(&self) -> String {
        if self.builtin && self.group == "events.k8s.io" {
            self.plural.clone()
        } else {
            self.qualified_name()
        }
    }

    /// `plural.group`, as messages name a resource; only the plural for the core group.
    pub(crate) fn qualified_name(&self) -> String {
        if self.group.is_empty() {
            self.plural.clone()
        } else {
            format!("{}.{}", self.plural, self.group)
        }
    }
}

/// Where the scale subresource finds its numbers, as JSON paths such as `.spec.replicas`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ScalePaths {
    /// Desired replicas.
    pub(crate) spec_replicas: String,
    /// Observed replicas.
    pub(crate) status_replicas: String,
    /// The label selector in its string form.
    pub(crate) label_selector: Option<String>,
}

/// A column of `kubectl get`.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    /// The heading.
    pub(crate) name: String,
    /// `string`, `integer`, `number`, `boolean` or `date`.
    pub(crate) kind: String,
    /// An OpenAPI format, or empty.
    pub(crate) format: String,
    /// 0: always shown; greater: only with `-o wide`.
    pub(crate) priority: i32,
    /// Where the value comes from.
    pub(crate) source: ColumnSource,
}

/// Where a column's value comes from.
#[derive(Clone)]
pub(crate) enum ColumnSource {
    /// A JSON path of an `additionalPrinterColumns` entry.
    JsonPath(String),
    /// Worked out from the whole object, as kubectl's printers for built-in kinds do. The second argument is
    /// the time now, for ages.
    Computed(fn(&serde_json::Value, jiff::Timestamp) -> serde_json::Value),
}

impl std::fmt::Debug for ColumnSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::JsonPath(path) => f.debug_tuple("JsonPath").field(path).finish(),
            Self::Computed(_) => f.write_str("Computed"),
        }
    }
}
