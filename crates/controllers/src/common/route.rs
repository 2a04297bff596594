//! The way from the Gateway to a resource, and what became of it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kaos_api::{names::Kind, v1alpha1::GatewayRoute};
use kaos_external::gateway_api::{
    GROUP, HTTPRoute, HttpRouteParentRefs, HttpRouteRules, HttpRouteRulesBackendRefs, HttpRouteRulesFilters,
    HttpRouteRulesFiltersType, HttpRouteRulesFiltersUrlRewrite, HttpRouteRulesFiltersUrlRewritePath,
    HttpRouteRulesFiltersUrlRewritePathType, HttpRouteRulesMatches, HttpRouteRulesMatchesPath,
    HttpRouteRulesMatchesPathType, HttpRouteRulesTimeouts, HttpRouteSpec, HttpRouteStatus,
};
use kaos_kube_ext::Observed;

use super::{objects::Owner, plan::Note};
use crate::config::Gateway;

/// The condition that tells whether the Gateway has taken the route.
pub(crate) const ROUTE_ACCEPTED: &str = "RouteAccepted";

/// A request without limit.
const NO_LIMIT: &str = "0s";

/// The route of a resource: what the Gateway gets under the resource's path goes to its Service, without that path.
///
/// Lists of a route are replaced as a whole, so everything that the API server would fill in is given: only then
/// can the live route be told to be this one.
pub(crate) fn route(
    owner: &Owner,
    gateway: &Gateway,
    timeout: Option<&GatewayRoute>,
    port: u16,
) -> HTTPRoute {
    let path = HttpRouteRulesMatchesPath {
        r#type: Some(HttpRouteRulesMatchesPathType::PathPrefix),
        value: Some(owner.kind.route_path(&owner.namespace, &owner.name)),
    };
    let rewrite = HttpRouteRulesFiltersUrlRewrite {
        hostname: None,
        path: Some(HttpRouteRulesFiltersUrlRewritePath {
            r#type: HttpRouteRulesFiltersUrlRewritePathType::ReplacePrefixMatch,
            replace_prefix_match: Some("/".to_owned()),
            replace_full_path: None,
        }),
    };
    let rule = HttpRouteRules {
        name: None,
        matches: Some(vec![HttpRouteRulesMatches {
            path: Some(path),
            ..HttpRouteRulesMatches::default()
        }]),
        filters: Some(vec![HttpRouteRulesFilters {
            r#type: HttpRouteRulesFiltersType::UrlRewrite,
            url_rewrite: Some(rewrite),
            cors: None,
            extension_ref: None,
            request_header_modifier: None,
            request_mirror: None,
            request_redirect: None,
            response_header_modifier: None,
        }]),
        backend_refs: Some(vec![HttpRouteRulesBackendRefs {
            group: Some(String::new()),
            kind: Some("Service".to_owned()),
            name: owner.child(),
            port: Some(i32::from(port)),
            weight: Some(1),
            ..HttpRouteRulesBackendRefs::default()
        }]),
        timeouts: request_timeout(owner.kind, gateway, timeout),
    };
    HTTPRoute {
        metadata: owner.metadata(owner.kind.route(&owner.name)),
        spec: HttpRouteSpec {
            hostnames: None,
            parent_refs: Some(vec![HttpRouteParentRefs {
                group: Some(GROUP.to_owned()),
                kind: Some("Gateway".to_owned()),
                name: gateway.name.clone(),
                namespace: Some(gateway.namespace.clone()),
                ..HttpRouteParentRefs::default()
            }]),
            rules: Some(vec![rule]),
        },
        status: None,
    }
}

fn request_timeout(
    kind: Kind,
    gateway: &Gateway,
    given: Option<&GatewayRoute>,
) -> Option<HttpRouteRulesTimeouts> {
    let default = match kind {
        Kind::Agent => &gateway.timeouts.agent,
        Kind::ModelApi => &gateway.timeouts.model_api,
        Kind::McpServer => &gateway.timeouts.mcp_server,
    };
    let timeout = given.and_then(|route| route.timeout.as_ref()).unwrap_or(default);
    (timeout != NO_LIMIT).then(|| HttpRouteRulesTimeouts {
        request: Some(timeout.clone()),
        backend_request: None,
    })
}

/// What is said of a `gatewayRoute` where there is no route.
pub(crate) fn without_effect(given: Option<&GatewayRoute>, gateway: bool, exposed: bool) -> Option<Note> {
    given.and_then(|given| given.timeout.as_ref())?;
    let why = match (gateway, exposed) {
        (true, true) => return None,
        (false, _) => "the operator is configured with no Gateway",
        (true, false) => "spec.agentNetwork.expose is false",
    };
    Some(Note::without_effect(format!(
        "spec.gatewayRoute.timeout has no effect: {why}; remove it"
    )))
}

/// What the Gateway's controller says of a route of this generation and status.
pub(crate) fn accepted(
    gateway: &Gateway,
    generation: Option<i64>,
    status: Option<&HttpRouteStatus>,
) -> Observed {
    let ours = status
        .into_iter()
        .flat_map(|status| &status.parents)
        .find(|parent| {
            let to = &parent.parent_ref;
            to.name == gateway.name
                && to
                    .namespace
                    .as_ref()
                    .is_none_or(|namespace| *namespace == gateway.namespace)
        });
    let current = |type_: &str| {
        ours.and_then(|parent| {
            parent.conditions.iter().find(|condition| {
                condition.type_ == type_
                    && condition
                        .observed_generation
                        .is_none_or(|seen| Some(seen) == generation)
            })
        })
    };
    let as_observed = |condition: &Condition| Observed {
        status: match condition.status.as_str() {
            "True" => Some(true),
            "False" => Some(false),
            _ => None,
        },
        reason: condition.reason.clone(),
        message: condition.message.clone(),
    };
    match (current("Accepted"), current("ResolvedRefs")) {
        (Some(accepted), _) if accepted.status != "True" => as_observed(accepted),
        (Some(_), Some(resolved)) if resolved.status != "True" => as_observed(resolved),
        (Some(accepted), _) => as_observed(accepted),
        (None, _) => Observed {
            status: None,
            reason: "Pending".to_owned(),
            message: format!(
                "no controller has answered for Gateway {}/{} yet",
                gateway.namespace, gateway.name
            ),
        },
    }
}

/// What is said where the API server does not serve routes.
pub(crate) fn absent() -> Observed {
    Observed {
        status: None,
        reason: "GatewayApiAbsent".to_owned(),
        message: format!("the API server does not serve HTTPRoutes ({GROUP}); install the Gateway API"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::common::testing::{gateway, owner, yaml};

    #[test]
    fn a_route_strips_the_path_of_the_resource_and_leads_to_its_service() {
        let given = GatewayRoute {
            timeout: Some("5m".to_owned()),
        };
        insta::assert_snapshot!(yaml(&route(
            &owner(Kind::McpServer, "calc"),
            &gateway(),
            Some(&given),
            8000
        )));
    }

    #[test]
    fn the_timeout_is_the_resources_else_the_kinds_and_zero_is_none() {
        let timeout = |kind, given: Option<&str>| {
            let given = GatewayRoute {
                timeout: given.map(str::to_owned),
            };
            request_timeout(kind, &gateway(), Some(&given)).and_then(|timeouts| timeouts.request)
        };
        assert_eq!(timeout(Kind::Agent, None).as_deref(), Some("300s"));
        assert_eq!(timeout(Kind::ModelApi, Some("1s")).as_deref(), Some("1s"));
        assert_eq!(timeout(Kind::McpServer, Some("0s")), None);
    }

    #[test]
    fn what_the_gateways_controller_says_is_repeated() {
        let says = |parents: serde_json::Value| {
            let status: HttpRouteStatus = serde_json::from_value(json!({"parents": parents})).unwrap();
            let observed = accepted(&gateway(), Some(2), Some(&status));
            (observed.status, observed.reason)
        };
        let condition = |type_: &str, status: &str, generation: i64| {
            json!({"type": type_, "status": status, "reason": format!("{type_}{status}"), "message": "",
                   "observedGeneration": generation, "lastTransitionTime": "2026-01-01T00:00:00Z"})
        };
        let parent = |name: &str, conditions: serde_json::Value| json!({"parentRef": {"name": name, "namespace": "system"}, "controllerName": "c", "conditions": conditions});
        let pending = (None, "Pending".to_owned());
        assert_eq!(says(json!([])), pending);
        let yes = condition("Accepted", "True", 2);
        assert_eq!(says(json!([parent("other", json!([yes]))])), pending);
        assert_eq!(
            says(json!([parent("gate", json!([condition("Accepted", "True", 1)]))])),
            pending
        );
        assert_eq!(
            says(json!([parent("gate", json!([yes]))])),
            (Some(true), "AcceptedTrue".to_owned())
        );
        assert_eq!(
            says(json!([parent(
                "gate",
                json!([yes, condition("ResolvedRefs", "False", 2)])
            )])),
            (Some(false), "ResolvedRefsFalse".to_owned())
        );
        assert_eq!(
            says(json!([parent(
                "gate",
                json!([condition("Accepted", "False", 2)])
            )])),
            (Some(false), "AcceptedFalse".to_owned())
        );
        assert_eq!(
            says(json!([parent(
                "gate",
                json!([condition("Accepted", "Unknown", 2)])
            )])),
            (None, "AcceptedUnknown".to_owned())
        );
    }
}
