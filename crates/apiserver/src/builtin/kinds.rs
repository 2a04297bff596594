//! The names of the built-in kinds, and how they are served.

use std::sync::Arc;

use crate::{
    resource::{ResourceType, ScalePaths},
    schema::Schema,
};

/// A built-in kind, as a line of the list.
struct Kind {
    group: &'static str,
    kind: &'static str,
    plural: &'static str,
    short_names: &'static [&'static str],
    categories: &'static [&'static str],
    namespaced: bool,
    status: bool,
    /// The package of its schema, in front of the version.
    package: &'static str,
}

const CORE: &str = "io.k8s.api.core";
const APPS: &str = "io.k8s.api.apps";
const EXTENSIONS: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions";

/// A kind of the core group that lives in a namespace and has no status.
const BASE: Kind = Kind {
    group: "",
    kind: "",
    plural: "",
    short_names: &[],
    categories: &[],
    namespaced: true,
    status: false,
    package: CORE,
};

const KINDS: &[Kind] = &[
    Kind {
        kind: "ConfigMap",
        plural: "configmaps",
        short_names: &["cm"],
        ..BASE
    },
    Kind {
        kind: "Endpoints",
        plural: "endpoints",
        short_names: &["ep"],
        ..BASE
    },
    Kind {
        kind: "Event",
        plural: "events",
        short_names: &["ev"],
        ..BASE
    },
    Kind {
        kind: "Namespace",
        plural: "namespaces",
        short_names: &["ns"],
        namespaced: false,
        status: true,
        ..BASE
    },
    Kind {
        kind: "Node",
        plural: "nodes",
        short_names: &["no"],
        namespaced: false,
        status: true,
        ..BASE
    },
    Kind {
        kind: "PersistentVolumeClaim",
        plural: "persistentvolumeclaims",
        short_names: &["pvc"],
        status: true,
        ..BASE
    },
    Kind {
        kind: "Pod",
        plural: "pods",
        short_names: &["po"],
        categories: &["all"],
        status: true,
        ..BASE
    },
    Kind {
        kind: "Secret",
        plural: "secrets",
        ..BASE
    },
    Kind {
        kind: "Service",
        plural: "services",
        short_names: &["svc"],
        categories: &["all"],
        status: true,
        ..BASE
    },
    Kind {
        kind: "ServiceAccount",
        plural: "serviceaccounts",
        short_names: &["sa"],
        ..BASE
    },
    Kind {
        group: "apiextensions.k8s.io",
        kind: "CustomResourceDefinition",
        plural: "customresourcedefinitions",
        short_names: &["crd", "crds"],
        categories: &["api-extensions"],
        namespaced: false,
        status: true,
        package: EXTENSIONS,
    },
    Kind {
        group: "apps",
        kind: "Deployment",
        plural: "deployments",
        short_names: &["deploy"],
        categories: &["all"],
        status: true,
        package: APPS,
        ..BASE
    },
    Kind {
        group: "apps",
        kind: "ReplicaSet",
        plural: "replicasets",
        short_names: &["rs"],
        categories: &["all"],
        status: true,
        package: APPS,
        ..BASE
    },
    Kind {
        group: "batch",
        kind: "Job",
        plural: "jobs",
        categories: &["all"],
        status: true,
        package: "io.k8s.api.batch",
        ..BASE
    },
    Kind {
        group: "coordination.k8s.io",
        kind: "Lease",
        plural: "leases",
        package: "io.k8s.api.coordination",
        ..BASE
    },
    Kind {
        group: "discovery.k8s.io",
        kind: "EndpointSlice",
        plural: "endpointslices",
        package: "io.k8s.api.discovery",
        ..BASE
    },
    Kind {
        group: "events.k8s.io",
        kind: "Event",
        plural: "events",
        short_names: &["ev"],
        package: "io.k8s.api.events",
        ..BASE
    },
];

/// Every built-in kind. Columns are left empty: they belong to `kubectl get`'s tables.
pub(crate) fn resource_types() -> Vec<ResourceType> {
    // A kind without a schema cannot be served; a test checks that each has one.
    KINDS.iter().filter_map(resource_type).collect()
}

fn resource_type(kind: &Kind) -> Option<ResourceType> {
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    // Every kind of the list has only this version.
    let version = "v1";
    Some(ResourceType {
        group: kind.group.to_owned(),
        version: version.to_owned(),
        kind: kind.kind.to_owned(),
        list_kind: format!("{}List", kind.kind),
        plural: kind.plural.to_owned(),
        singular: kind.kind.to_ascii_lowercase(),
        short_names: texts(kind.short_names),
        categories: texts(kind.categories),
        namespaced: kind.namespaced,
        status: kind.status,
        scale: (kind.group == "apps").then(|| ScalePaths {
            spec_replicas: ".spec.replicas".to_owned(),
            status_replicas: ".status.replicas".to_owned(),
            label_selector: None,
        }),
        schema: Arc::new(Schema::builtin(&format!(
            "{}.{version}.{}",
            kind.package, kind.kind
        ))?),
        columns: Vec::new(),
        builtin: true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_schema() {
        let types = resource_types();
        assert_eq!(types.len(), KINDS.len());
        for kind in types {
            assert!(kind.schema.root().property("metadata").is_some(), "{}", kind.kind);
        }
        assert!(
            Schema::builtin("io.k8s.api.autoscaling.v1.Scale").is_some(),
            "the scale subresource is described"
        );
    }
}
