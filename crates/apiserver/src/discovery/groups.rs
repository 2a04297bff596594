//! Groups, versions and resources: what kubectl finds `deploy` and `agents` in.

use std::{cmp::Reverse, collections::BTreeMap, sync::Arc};

use serde_json::{Map, Value, json};

use super::{
    Answer,
    accept::AGGREGATED,
    subresources::{Subresource, subresources, verbs},
};
use crate::resource::ResourceType;

/// Resources by group, then by version, the most stable and newest version first.
type Groups<'a> = BTreeMap<&'a str, Vec<(&'a str, Vec<&'a ResourceType>)>>;

fn groups(resources: &[Arc<ResourceType>]) -> Groups<'_> {
    let mut groups = Groups::new();
    for resource in resources {
        let versions = groups.entry(&resource.group).or_default();
        match versions
            .iter_mut()
            .find(|(version, _)| *version == resource.version)
        {
            Some((_, members)) => members.push(resource),
            None => versions.push((&resource.version, vec![resource])),
        }
    }
    for versions in groups.values_mut() {
        versions.sort_by_key(|(version, _)| Reverse(priority(version)));
    }
    groups
}

/// How far a version stands before others: stability, then major and minor number. Names that are no such
/// versions come last, in reverse order (`k8s.io/apimachinery/pkg/version`).
fn priority(version: &str) -> (u8, u64, u64, Reverse<&str>) {
    let parsed = || {
        let rest = version.strip_prefix('v')?;
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (major, tail) = rest.split_at(digits);
        let (stability, minor) = match tail {
            "" => (3, "0"),
            _ => match (tail.strip_prefix("beta"), tail.strip_prefix("alpha")) {
                (Some(minor), _) => (2, minor),
                (None, Some(minor)) => (1, minor),
                (None, None) => return None,
            },
        };
        Some((stability, major.parse().ok()?, minor.parse().ok()?))
    };
    let (stability, major, minor) = parsed().unwrap_or_default();
    (stability, major, minor, Reverse(version))
}

/// `/api`.
pub(super) fn core_versions(host: &str) -> Value {
    json!({
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{ "clientCIDR": "0.0.0.0/0", "serverAddress": host }],
    })
}

/// `/apis`.
pub(super) fn list(resources: &[Arc<ResourceType>]) -> Value {
    let groups: Vec<Value> = groups(resources)
        .iter()
        .filter(|(name, _)| !name.is_empty())
        .map(|(name, versions)| Value::Object(group(name, versions)))
        .collect();
    json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups })
}

/// `/apis/GROUP`.
pub(super) fn one(resources: &[Arc<ResourceType>], name: &str) -> Option<Answer> {
    let groups = groups(resources);
    let versions = groups.get(name).filter(|_| !name.is_empty())?;
    let mut document = Map::from_iter([
        ("kind".to_owned(), json!("APIGroup")),
        ("apiVersion".to_owned(), json!("v1")),
    ]);
    document.extend(group(name, versions));
    Some(Answer::json(&Value::Object(document)))
}

fn group(name: &str, versions: &[(&str, Vec<&ResourceType>)]) -> Map<String, Value> {
    let versions: Vec<Value> = versions
        .iter()
        .map(|(version, _)| json!({ "groupVersion": format!("{name}/{version}"), "version": version }))
        .collect();
    Map::from_iter([
        ("name".to_owned(), json!(name)),
        (
            "preferredVersion".to_owned(),
            versions.first().cloned().unwrap_or_default(),
        ),
        ("versions".to_owned(), Value::Array(versions)),
    ])
}

/// `/api/VERSION` and `/apis/GROUP/VERSION`.
pub(super) fn resources(all: &[Arc<ResourceType>], group: &str, version: &str) -> Option<Answer> {
    let mut group_version = None;
    let mut members = Vec::new();
    for resource in all
        .iter()
        .filter(|resource| resource.group == group && resource.version == version)
    {
        group_version = Some(resource.api_version());
        members.push(legacy(resource));
        members.extend(
            subresources(resource)
                .iter()
                .map(|subresource| legacy_subresource(resource, subresource)),
        );
    }
    let document = json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version?, "resources": members,
    });
    Some(Answer::json(&document))
}

fn legacy(resource: &ResourceType) -> Value {
    let mut entry = json!({
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": verbs(resource),
    });
    add_names(&mut entry, resource);
    entry
}

fn legacy_subresource(resource: &ResourceType, subresource: &Subresource) -> Value {
    let mut entry = json!({
        "name": format!("{}/{}", resource.plural, subresource.name),
        "singularName": "",
        "namespaced": resource.namespaced,
    });
    if let Some((group, version)) = subresource.group_version {
        entry["group"] = group.into();
        entry["version"] = version.into();
    }
    entry["kind"] = subresource.kind.as_str().into();
    entry["verbs"] = json!(subresource.verbs);
    entry
}

fn add_names(entry: &mut Value, resource: &ResourceType) {
    for (key, names) in [
        ("shortNames", &resource.short_names),
        ("categories", &resource.categories),
    ] {
        if !names.is_empty() {
            entry[key] = json!(names);
        }
    }
}

/// `/api` in one document.
pub(super) fn aggregated_core(resources: &[Arc<ResourceType>]) -> Answer {
    aggregate(resources, |group| group.is_empty())
}

/// `/apis` in one document.
pub(super) fn aggregated(resources: &[Arc<ResourceType>]) -> Answer {
    aggregate(resources, |group| !group.is_empty())
}

fn aggregate(resources: &[Arc<ResourceType>], takes: impl Fn(&str) -> bool) -> Answer {
    let groups = groups(resources);
    let items: Vec<Value> = groups
        .iter()
        .filter(|(name, _)| takes(name))
        .map(|(name, versions)| {
            let versions: Vec<Value> = versions
                .iter()
                .map(|(version, members)| {
                    let members: Vec<Value> = members.iter().map(|resource| entry(resource)).collect();
                    json!({ "version": version, "resources": members, "freshness": "Current" })
                })
                .collect();
            let metadata = if name.is_empty() {
                json!({})
            } else {
                json!({ "name": name })
            };
            json!({ "metadata": metadata, "versions": versions })
        })
        .collect();
    let document = json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    });
    Answer::new(AGGREGATED, document.to_string()).with_etag()
}

fn entry(resource: &ResourceType) -> Value {
    let mut entry = json!({
        "resource": resource.plural,
        "responseKind": { "group": resource.group, "version": resource.version, "kind": resource.kind },
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": resource.singular,
        "verbs": verbs(resource),
    });
    add_names(&mut entry, resource);
    let below: Vec<Value> = subresources(resource)
        .iter()
        .map(|subresource| {
            let (group, version) = subresource
                .group_version
                .unwrap_or((&resource.group, &resource.version));
            json!({
                "subresource": subresource.name,
                "responseKind": { "group": group, "version": version, "kind": subresource.kind },
                "verbs": subresource.verbs,
            })
        })
        .collect();
    if !below.is_empty() {
        entry["subresources"] = below.into();
    }
    entry
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stable_and_newer_versions_come_first() {
        let mut versions = [
            "v1alpha1", "foo", "v2", "v1beta2", "v10", "v1", "v1beta10", "bar", "v1alpha2",
        ];
        versions.sort_by_key(|version| Reverse(priority(version)));
        assert_eq!(
            versions,
            [
                "v10", "v2", "v1", "v1beta10", "v1beta2", "v1alpha2", "v1alpha1", "bar", "foo"
            ]
        );
    }
}
