//! Revisions of a Deployment: the numbers and annotations by which `kubectl rollout` finds its way back.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use kube::ResourceExt as _;

use super::rollout::{limits, wanted};

pub(super) const REVISION: &str = "deployment.kubernetes.io/revision";
const HISTORY: &str = "deployment.kubernetes.io/revision-history";
pub(super) const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
pub(super) const MAX: &str = "deployment.kubernetes.io/max-replicas";

/// Annotations of a Deployment that mean nothing on its ReplicaSets.
const NOT_COPIED: [&str; 6] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    REVISION,
    HISTORY,
    DESIRED,
    MAX,
    "deprecated.deployment.rollback.to",
];

/// The revision of a ReplicaSet; 0 for one that has none.
pub(super) fn revision(replica_set: &ReplicaSet) -> i64 {
    replica_set
        .annotations()
        .get(REVISION)
        .and_then(|revision| revision.parse().ok())
        .unwrap_or(0)
}

/// The annotations by which a later scaling knows what the Deployment was when this one was made.
pub(super) fn size_annotations(deployment: &Deployment) -> BTreeMap<String, String> {
    let wanted = wanted(deployment);
    let max = wanted + limits(deployment).surge;
    BTreeMap::from([
        (DESIRED.to_owned(), wanted.to_string()),
        (MAX.to_owned(), max.to_string()),
    ])
}

/// The annotations of the new ReplicaSet of a Deployment whose other ones are `old`.
pub(super) fn annotations(
    deployment: &Deployment,
    new: Option<&ReplicaSet>,
    old: &[ReplicaSet],
) -> BTreeMap<String, String> {
    let mut annotations = new.map(|set| set.annotations().clone()).unwrap_or_default();
    let copied = deployment
        .annotations()
        .iter()
        .filter(|(key, _)| !NOT_COPIED.contains(&key.as_str()));
    annotations.extend(copied.map(|(key, value)| (key.clone(), value.clone())));
    let next = old.iter().map(revision).max().unwrap_or(0) + 1;
    let current = new.map_or(0, revision);
    if current < next {
        // A template that was in use before: its earlier numbers are history.
        if current > 0 {
            let history = annotations.get(HISTORY).map(|history| format!("{history},"));
            annotations.insert(
                HISTORY.to_owned(),
                format!("{}{current}", history.unwrap_or_default()),
            );
        }
        annotations.insert(REVISION.to_owned(), next.to_string());
    }
    annotations
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn set(annotations: serde_json::Value) -> ReplicaSet {
        serde_json::from_value(json!({ "metadata": { "annotations": annotations } })).unwrap()
    }

    #[test]
    fn a_template_used_again_gets_the_next_revision_and_remembers_the_last() {
        let deployment: Deployment = serde_json::from_value(json!({ "metadata": { "annotations":
            { "note": "x", "kubectl.kubernetes.io/last-applied-configuration": "{}", REVISION: "9" } } }))
        .unwrap();
        let first = annotations(&deployment, None, &[]);
        assert_eq!(
            first,
            [
                ("note".to_owned(), "x".to_owned()),
                (REVISION.to_owned(), "1".to_owned())
            ]
            .into()
        );
        let old = [set(json!({ REVISION: "2" }))];
        let again = annotations(&deployment, Some(&set(json!({ REVISION: "1" }))), &old);
        assert_eq!((again[REVISION].as_str(), again[HISTORY].as_str()), ("3", "1"));
        let same = annotations(&deployment, Some(&set(json!(again.clone()))), &old);
        assert_eq!(same, again);
    }
}
