//! The Gateway API, `gateway.networking.k8s.io/v1`, standard channel: GatewayClass, Gateway and HTTPRoute.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

// The code of a generator: its habits are not ours.
#[allow(missing_docs, non_camel_case_types, unreachable_pub)]
#[rustfmt::skip]
mod gatewayclasses;
#[allow(missing_docs, non_camel_case_types, unreachable_pub)]
#[rustfmt::skip]
mod gateways;
#[allow(missing_docs, non_camel_case_types, unreachable_pub)]
#[rustfmt::skip]
mod httproutes;

pub use gatewayclasses::*;
pub use gateways::*;
pub use httproutes::{HttpRoute as HTTPRoute, *};

/// The API group.
pub const GROUP: &str = "gateway.networking.k8s.io";

/// The definitions of the three kinds, as they are installed: those referred to come first.
pub fn crds() -> Vec<CustomResourceDefinition> {
    // They are part of this program, and a test reads each of them.
    serde_json::from_str(include_str!("definitions.json")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use kube::{CustomResourceExt, Resource, ResourceExt};
    use serde_json::{Value, json};

    use super::*;

    /// The definitions as published.
    const PUBLISHED: [&str; 3] = [
        include_str!("../../crds/gateway-api/gateway.networking.k8s.io_gatewayclasses.yaml"),
        include_str!("../../crds/gateway-api/gateway.networking.k8s.io_gateways.yaml"),
        include_str!("../../crds/gateway-api/gateway.networking.k8s.io_httproutes.yaml"),
    ];

    #[test]
    fn every_definition_is_read_whole() {
        let read = crds();
        let names: Vec<_> = read.iter().map(ResourceExt::name_any).collect();
        assert_eq!(
            names,
            ["gatewayclasses", "gateways", "httproutes"].map(|kind| format!("{kind}.{GROUP}"))
        );
        for (definition, text) in read.iter().zip(PUBLISHED) {
            let mut published: Value = serde_saphyr::from_str(text).unwrap();
            // A definition has no status before it is installed; the published one has an empty one.
            published.as_object_mut().unwrap().remove("status");
            let mut kept = serde_json::to_value(definition).unwrap();
            kept.as_object_mut().unwrap().remove("status");
            assert_eq!(differences(&published, &kept, ""), Vec::<String>::new());
        }
    }

    /// Where two values differ. Numbers are compared as such: 65535 is 65535.0.
    fn differences(a: &Value, b: &Value, path: &str) -> Vec<String> {
        match (a, b) {
            (Value::Object(a), Value::Object(b)) => {
                let keys: std::collections::BTreeSet<_> = a.keys().chain(b.keys()).collect();
                let value =
                    |map: &serde_json::Map<_, _>, key: &String| map.get(key).cloned().unwrap_or_default();
                keys.into_iter()
                    .flat_map(|key| differences(&value(a, key), &value(b, key), &format!("{path}.{key}")))
                    .collect()
            }
            (Value::Array(a), Value::Array(b)) if a.len() == b.len() => (0..a.len())
                .flat_map(|at| differences(&a[at], &b[at], &format!("{path}[{at}]")))
                .collect(),
            (Value::Number(a), Value::Number(b)) if a.as_f64() == b.as_f64() => Vec::new(),
            _ if a == b => Vec::new(),
            _ => vec![format!("{path}: {a} became {b}")],
        }
    }

    #[test]
    fn the_types_are_those_of_the_definitions() {
        for (definition, kind, plural) in [
            (&crds()[0], GatewayClass::kind(&()), GatewayClass::plural(&())),
            (&crds()[1], Gateway::kind(&()), Gateway::plural(&())),
            (&crds()[2], HTTPRoute::kind(&()), HTTPRoute::plural(&())),
        ] {
            assert_eq!(definition.spec.names.kind, kind);
            assert_eq!(definition.spec.names.plural, plural);
        }
        assert_eq!(HTTPRoute::crd_name(), crds()[2].name_any());
        assert_eq!(HTTPRoute::api_version(&()), format!("{GROUP}/v1"));
    }

    #[test]
    fn a_route_of_a_newer_version_is_read() {
        let route: HTTPRoute = serde_json::from_value(json!({
            "metadata": {"name": "r"},
            "spec": {"rules": [{
                "filters": [{"type": "Teleport", "teleport": {"to": "moon"}}],
                "matches": [{"path": {"type": "Glob", "value": "/*"}, "method": "QUERY"}],
            }]},
            "status": {"parents": [{
                "parentRef": {"name": "g", "kind": "Mesh"},
                "controllerName": "example.com/c",
                "conditions": [{"type": "New", "status": "Perhaps", "reason": "R", "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z"}],
                "extra": 1,
            }]},
        }))
        .unwrap();
        let rule = &route.spec.rules.unwrap()[0];
        assert_eq!(
            rule.filters.as_ref().unwrap()[0].r#type,
            HttpRouteRulesFiltersType::Unrecognized
        );
        assert_eq!(route.status.unwrap().parents[0].conditions[0].status, "Perhaps");
    }
}
