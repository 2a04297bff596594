//! The addresses at which resources are reached through a gateway, told from what the Gateway API says.

use std::collections::BTreeMap;

use kaos_external::gateway_api::{
    Gateway, HTTPRoute, HttpRouteRulesMatchesPathType as PathType, HttpRouteStatusParents,
};
use kube::{Api, Client, ResourceExt, api::ListParams, core::Resource};

/// Addresses by kind, namespace and name of the resource that a route belongs to.
pub type RouteAddresses = BTreeMap<(String, String, String), String>;

/// Every resource that has an HTTPRoute which a Gateway has accepted, with the address of its path there: on a
/// laptop `http://127.0.0.1:PORT/PATH`. Empty where there is no Gateway API.
///
/// # Errors
/// When the API server cannot be reached or refuses.
pub async fn route_addresses(client: &Client) -> Result<RouteAddresses, kube::Error> {
    let all = ListParams::default();
    let routes = match Api::<HTTPRoute>::all(client.clone()).list(&all).await {
        Ok(routes) => routes,
        Err(kube::Error::Api(status)) if status.code == 404 => return Ok(RouteAddresses::new()),
        Err(error) => return Err(error),
    };
    if routes.items.is_empty() {
        return Ok(RouteAddresses::new());
    }
    let gateways = Api::<Gateway>::all(client.clone()).list(&all).await?.items;
    Ok(routes
        .iter()
        .filter_map(|route| {
            let owners = route.metadata.owner_references.as_ref()?;
            let owner = owners.iter().find(|owner| owner.controller == Some(true))?;
            let key = (owner.kind.clone(), route.namespace()?, owner.name.clone());
            Some((key, address(route, &gateways)?))
        })
        .collect())
}

/// The address of a route's first path at the first Gateway that serves it.
fn address(route: &HTTPRoute, gateways: &[Gateway]) -> Option<String> {
    let path = route.spec.rules.iter().flatten().find_map(|rule| {
        let first = rule.matches.as_ref()?.first()?.path.as_ref()?;
        let literal = matches!(first.r#type, Some(PathType::PathPrefix | PathType::Exact) | None);
        literal.then(|| first.value.clone()).flatten()
    })?;
    let parents = &route.status.as_ref()?.parents;
    let authority = parents
        .iter()
        .filter(|entry| accepted(entry, route))
        .find_map(|entry| authority(entry, route, gateways))?;
    Some(format!("http://{authority}{}", path.trim_end_matches('/')))
}

fn accepted(entry: &HttpRouteStatusParents, route: &HTTPRoute) -> bool {
    entry.conditions.iter().any(|one| {
        one.type_ == "Accepted"
            && one.status == "True"
            && one.observed_generation == route.metadata.generation
    })
}

/// `host:port` of the Gateway of an entry.
fn authority(entry: &HttpRouteStatusParents, route: &HTTPRoute, gateways: &[Gateway]) -> Option<String> {
    let parent = &entry.parent_ref;
    let namespace = parent.namespace.clone().or_else(|| route.namespace())?;
    let gateway = gateways.iter().find(|gateway| {
        gateway.name_any() == parent.name && gateway.meta().namespace.as_ref() == Some(&namespace)
    })?;
    let listener = gateway.spec.listeners.iter().find(|listener| {
        listener.protocol == "HTTP"
            && parent
                .section_name
                .as_ref()
                .is_none_or(|name| *name == listener.name)
            && parent.port.is_none_or(|port| port == listener.port)
    })?;
    let address = &gateway.status.as_ref()?.addresses.as_ref()?.first()?.value;
    let host = route
        .spec
        .hostnames
        .as_ref()
        .and_then(|hostnames| hostnames.iter().find(|hostname| !hostname.starts_with('*')))
        .unwrap_or(address);
    // The address of the scheme's own port needs no port.
    Some(match listener.port {
        80 => host.clone(),
        port => format!("{host}:{port}"),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn gateway() -> Gateway {
        serde_json::from_value(json!({
            "metadata": {"name": "g", "namespace": "system"},
            "spec": {"gatewayClassName": "c", "listeners": [
                {"name": "tls", "port": 443, "protocol": "HTTPS"}, {"name": "web", "port": 8888, "protocol": "HTTP"}]},
            "status": {"addresses": [{"type": "IPAddress", "value": "127.0.0.1"}]},
        }))
        .unwrap()
    }

    fn route(accepted: &str, observed: i64, path: &Value) -> HTTPRoute {
        serde_json::from_value(json!({
            "metadata": {"name": "agent-a", "namespace": "team", "generation": 2},
            "spec": {"rules": [{"matches": [{"path": path}]}]},
            "status": {"parents": [{
                "parentRef": {"name": "g", "namespace": "system"}, "controllerName": "c",
                "conditions": [{"type": "Accepted", "status": accepted, "reason": "R", "message": "",
                    "observedGeneration": observed, "lastTransitionTime": "2026-01-01T00:00:00Z"}]}]},
        }))
        .unwrap()
    }

    #[test]
    fn an_address_is_told_only_of_a_route_that_is_accepted_as_it_is_now() {
        let prefix = json!({"type": "PathPrefix", "value": "/team/agent/a"});
        let found = |route: &HTTPRoute| address(route, &[gateway()]);
        assert_eq!(
            found(&route("True", 2, &prefix)).as_deref(),
            Some("http://127.0.0.1:8888/team/agent/a")
        );
        assert_eq!(found(&route("False", 2, &prefix)), None);
        assert_eq!(
            found(&route("True", 1, &prefix)),
            None,
            "of an earlier generation"
        );
        let pattern = json!({"type": "RegularExpression", "value": "/.*"});
        assert_eq!(
            found(&route("True", 2, &pattern)),
            None,
            "a pattern is no address"
        );
        assert_eq!(
            address(&route("True", 2, &prefix), &[]),
            None,
            "the Gateway is gone"
        );
    }
}
