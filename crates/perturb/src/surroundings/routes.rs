//! A gateway without traffic: what becomes of HTTPRoutes.

use kaos_seams::Seams;
use serde_json::{Value, json};

use super::statuses;
use crate::{Cluster, Key, World};

/// Its name in the statuses that it writes.
const CONTROLLER: &str = "example.com/gateway";

/// Answers every HTTPRoute for each Gateway that it names, as the specification of the Gateway API asks of an
/// implementation: `Accepted` and `ResolvedRefs` for the present generation, the latter False with the reason
/// `BackendNotFound` as long as a Service that the route leads to is missing. Every Gateway that is named is there.
pub async fn routes(cluster: Cluster, seams: Seams) {
    statuses(cluster, seams, "HTTPRoute", next).await;
}

fn next(route: &Value, world: &World, now: &str) -> Option<Value> {
    let before = route["status"]["parents"].as_array();
    let (resolved, reason) = match has_backends(route, world) {
        true => ("True", "ResolvedRefs"),
        false => ("False", "BackendNotFound"),
    };
    let parents = route["spec"]["parentRefs"].as_array();
    let parents: Vec<Value> = parents
        .into_iter()
        .flatten()
        .map(|parent| {
            let said = before.into_iter().flatten();
            let said = said.clone().find(|said| said["parentRef"] == *parent);
            let condition = |type_: &str, status: &str, reason: &str| {
                let conditions = said.and_then(|said| said["conditions"].as_array());
                let mut conditions = conditions.into_iter().flatten();
                // A transition is a change of the status, not of what else is said.
                let since = conditions
                    .find(|condition| condition["type"] == type_ && condition["status"] == status)
                    .map_or(now.into(), |condition| condition["lastTransitionTime"].clone());
                json!({
                    "type": type_, "status": status, "reason": reason, "message": "",
                    "observedGeneration": route["metadata"]["generation"], "lastTransitionTime": since,
                })
            };
            json!({
                "parentRef": parent,
                "controllerName": CONTROLLER,
                "conditions": [
                    condition("Accepted", "True", "Accepted"),
                    condition("ResolvedRefs", resolved, reason),
                ],
            })
        })
        .collect();
    (before != Some(&parents)).then(|| json!({ "parents": parents }))
}

/// Whether every Service that a route leads to is there.
fn has_backends(route: &Value, world: &World) -> bool {
    let namespace = route["metadata"]["namespace"].as_str().unwrap_or_default();
    let rules = route["spec"]["rules"].as_array();
    let mut backends = rules
        .into_iter()
        .flatten()
        .filter_map(|rule| rule["backendRefs"].as_array())
        .flatten();
    backends.all(|backend| {
        let namespace = backend["namespace"].as_str().unwrap_or(namespace);
        let name = backend["name"].as_str().unwrap_or_default();
        world.get(&Key::new("Service", namespace, name)).is_some()
    })
}
