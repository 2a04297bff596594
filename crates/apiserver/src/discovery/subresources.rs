//! The subresources of each kind, as discovery lists them.

use crate::resource::ResourceType;

/// One subresource.
pub(super) struct Subresource {
    pub(super) name: &'static str,
    /// The group and version of its kind, where they are not those of the resource.
    pub(super) group_version: Option<(&'static str, &'static str)>,
    pub(super) kind: String,
    pub(super) verbs: &'static [&'static str],
}

const READ_WRITE: &[&str] = &["get", "patch", "update"];
const ANY: &[&str] = &["create", "delete", "get", "patch", "update"];

/// The verbs of a resource itself.
pub(super) fn verbs(resource: &ResourceType) -> &'static [&'static str] {
    if resource.group.is_empty() && resource.plural == "namespaces" {
        // All namespaces at once are nobody's to delete.
        return &["create", "delete", "get", "list", "patch", "update", "watch"];
    }
    &[
        "create",
        "delete",
        "deletecollection",
        "get",
        "list",
        "patch",
        "update",
        "watch",
    ]
}

/// The subresources of a resource, sorted by name.
pub(super) fn subresources(resource: &ResourceType) -> Vec<Subresource> {
    let own = |name, kind: &str, verbs| Subresource {
        name,
        group_version: None,
        kind: kind.to_owned(),
        verbs,
    };
    let mut all = match (
        resource.builtin,
        resource.group.as_str(),
        resource.plural.as_str(),
    ) {
        (true, "", "pods") => vec![
            own("binding", "Binding", &["create"]),
            own("log", "Pod", &["get"]),
            own("proxy", "PodProxyOptions", ANY),
        ],
        (true, "", "services") => vec![own("proxy", "ServiceProxyOptions", ANY)],
        _ => Vec::new(),
    };
    if resource.scale.is_some() {
        let group_version = Some(("autoscaling", "v1"));
        all.push(Subresource {
            name: "scale",
            group_version,
            kind: "Scale".to_owned(),
            verbs: READ_WRITE,
        });
    }
    if resource.status {
        all.push(own("status", &resource.kind, READ_WRITE));
    }
    all
}
