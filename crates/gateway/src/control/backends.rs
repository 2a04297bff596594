//! From a route's reference to the Service's port behind it.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::core::v1::Service;
use kaos_external::gateway_api::HttpRouteRulesBackendRefs;

use crate::routes::rule::Target;

/// The Services by namespace and name.
pub(super) type Services = BTreeMap<(String, String), Arc<Service>>;

/// Why a reference leads nowhere: the reason of the condition, and a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unresolved {
    pub(super) reason: &'static str,
    pub(super) message: String,
}

/// Finds the Service's port that a route in `namespace` refers to.
pub(super) fn resolve(
    reference: &HttpRouteRulesBackendRefs,
    namespace: &str,
    services: &Services,
) -> Result<Target, Unresolved> {
    let unresolved = |reason, message| Unresolved { reason, message };
    // The filters are the rule's matter, and so is the weight.
    let HttpRouteRulesBackendRefs {
        filters: _,
        group,
        kind,
        name,
        namespace: other,
        port,
        weight: _,
    } = reference;
    let (group, kind) = (
        group.as_deref().unwrap_or_default(),
        kind.as_deref().unwrap_or("Service"),
    );
    if !group.is_empty() || kind != "Service" {
        let message = format!(
            "{kind} {name} is of group \"{group}\"; the local gateway sends requests to Services only"
        );
        return Err(unresolved("InvalidKind", message));
    }
    if let Some(other) = other.as_deref().filter(|other| *other != namespace) {
        let message = format!(
            "Service {name} is in namespace {other}, and the local gateway knows no ReferenceGrants; move the route or \
             the Service"
        );
        return Err(unresolved("RefNotPermitted", message));
    }
    let Some(service) = services.get(&(namespace.to_owned(), name.clone())) else {
        return Err(unresolved(
            "BackendNotFound",
            format!("there is no Service {name} in namespace {namespace}"),
        ));
    };
    let spec = service.spec.clone().unwrap_or_default();
    if spec.type_.as_deref() == Some("ExternalName") {
        let message = format!("Service {name} is an ExternalName, to which no requests are sent");
        return Err(unresolved("UnsupportedProtocol", message));
    }
    let ports = spec.ports.unwrap_or_default();
    let tcp = |protocol: &Option<String>| protocol.as_deref().is_none_or(|protocol| protocol == "TCP");
    let Some(found) = ports
        .iter()
        .find(|one| Some(one.port) == *port && tcp(&one.protocol))
    else {
        let wanted = port.map_or_else(
            || "no port is named".to_owned(),
            |port| format!("port {port} is not there"),
        );
        let has: Vec<String> = ports.iter().map(|one| one.port.to_string()).collect();
        let message = format!("Service {name} has the ports {}; {wanted}", has.join(", "));
        return Err(unresolved("BackendNotFound", message));
    };
    if let Some(protocol) = found
        .app_protocol
        .as_deref()
        .filter(|protocol| *protocol != "http")
    {
        let message = format!(
            "port {} of Service {name} has the appProtocol {protocol}; the local gateway speaks http only",
            found.port
        );
        return Err(unresolved("UnsupportedProtocol", message));
    }
    let port = u16::try_from(found.port).map_err(|_| {
        unresolved(
            "BackendNotFound",
            format!("Service {name} has no port {}", found.port),
        )
    })?;
    Ok(Target {
        host: format!("{name}.{namespace}.svc"),
        port,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn found(reference: &Value) -> Result<Target, Unresolved> {
        let service =
            |spec: Value| Arc::new(serde_json::from_value::<Service>(json!({ "spec": spec })).unwrap());
        let key = |name: &str| ("n".to_owned(), name.to_owned());
        let services = Services::from([
            (
                key("s"),
                service(json!({"ports": [
                    {"port": 80}, {"port": 53, "protocol": "UDP"}, {"port": 81, "appProtocol": "kubernetes.io/h2c"}]})),
            ),
            (
                key("e"),
                service(json!({"type": "ExternalName", "externalName": "a.test"})),
            ),
        ]);
        resolve(
            &serde_json::from_value(reference.clone()).unwrap(),
            "n",
            &services,
        )
    }

    #[test]
    fn a_reference_leads_to_a_port_of_a_service_of_the_namespace() {
        let expected = Target {
            host: "s.n.svc".to_owned(),
            port: 80,
        };
        assert_eq!(found(&json!({"name": "s", "port": 80})), Ok(expected.clone()));
        assert_eq!(
            found(&json!({"name": "s", "port": 80, "namespace": "n", "kind": "Service"})),
            Ok(expected)
        );
        for (reference, reason, message) in [
            (
                json!({"name": "s", "port": 8080}),
                "BackendNotFound",
                "the ports 80, 53, 81; port 8080 is not there",
            ),
            (json!({"name": "s"}), "BackendNotFound", "no port is named"),
            (
                json!({"name": "s", "port": 53}),
                "BackendNotFound",
                "port 53 is not there",
            ),
            (
                json!({"name": "s", "port": 81}),
                "UnsupportedProtocol",
                "kubernetes.io/h2c",
            ),
            (
                json!({"name": "e", "port": 80}),
                "UnsupportedProtocol",
                "ExternalName",
            ),
            (
                json!({"name": "t", "port": 80}),
                "BackendNotFound",
                "no Service t in namespace n",
            ),
            (
                json!({"name": "s", "port": 80, "namespace": "m"}),
                "RefNotPermitted",
                "in namespace m",
            ),
            (
                json!({"name": "s", "port": 80, "kind": "InferencePool", "group": "x"}),
                "InvalidKind",
                "InferencePool",
            ),
        ] {
            let unresolved = found(&reference).unwrap_err();
            assert_eq!(unresolved.reason, reason, "{reference}");
            assert!(unresolved.message.contains(message), "{}", unresolved.message);
        }
    }
}
