//! What a Service may ask for that this machine cannot give: told with the field, what was found and what
//! follows, never ignored.

use k8s_openapi::api::core::v1::Service;

/// What of the Service takes no effect here; `None` when all of it does.
pub(crate) fn warning(service: &Service) -> Option<String> {
    let spec = service.spec.as_ref()?;
    if spec.type_.as_deref() == Some("ExternalName") {
        return Some(
            "spec.type ExternalName is not supported by the local node: nothing answers at this Service's \
             name; use the external name itself"
                .to_owned(),
        );
    }
    if spec.session_affinity.as_deref() == Some("ClientIP") {
        return Some(
            "spec.sessionAffinity ClientIP is not supported by the local node: every client has the same \
             address, and connections go to any ready pod"
                .to_owned(),
        );
    }
    let other = spec.ports.iter().flatten().find_map(|port| {
        let protocol = port.protocol.as_deref().filter(|protocol| *protocol != "TCP")?;
        Some((port.port, protocol))
    });
    if let Some((port, protocol)) = other {
        return Some(format!(
            "spec.ports[{port}].protocol {protocol} is not supported by the local node: nothing answers at \
             this port; use TCP"
        ));
    }
    if let Some(kind @ ("NodePort" | "LoadBalancer")) = spec.type_.as_deref() {
        return Some(format!(
            "spec.type {kind} is not supported by the local node: the Service is only reachable at its \
             loopback address, on this machine; use ClusterIP"
        ));
    }
    if let Some(address) = spec.external_ips.iter().flatten().next() {
        return Some(format!(
            "spec.externalIPs[{address}] is not supported by the local node: the Service is only reachable at \
             its loopback address, on this machine; leave it out"
        ));
    }
    if spec.cluster_ip.as_deref() == Some("None") {
        return Some(
            "spec.clusterIP None is not supported by the local node: the Service has one address, as others \
             have, and pods have no names of their own; connections go to any ready pod"
                .to_owned(),
        );
    }
    None
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_takes_no_effect_is_named() {
        let found = |spec| warning(&serde_json::from_value(json!({ "spec": spec })).unwrap());
        for (spec, start) in [
            (
                json!({ "type": "ExternalName", "externalName": "a.example" }),
                "spec.type ExternalName ",
            ),
            (
                json!({ "sessionAffinity": "ClientIP" }),
                "spec.sessionAffinity ClientIP ",
            ),
            (
                json!({ "ports": [{ "port": 80 }, { "port": 53, "protocol": "UDP" }] }),
                "spec.ports[53].protocol UDP ",
            ),
            (json!({ "type": "NodePort" }), "spec.type NodePort "),
            (json!({ "type": "LoadBalancer" }), "spec.type LoadBalancer "),
            (
                json!({ "externalIPs": ["192.0.2.1"] }),
                "spec.externalIPs[192.0.2.1] ",
            ),
            (json!({ "clusterIP": "None" }), "spec.clusterIP None "),
        ] {
            let message = found(spec).unwrap();
            assert!(message.starts_with(start), "{message}");
        }
        assert_eq!(
            found(
                json!({ "type": "ClusterIP", "clusterIP": "10.0.0.1", "sessionAffinity": "None",
                "ports": [{ "port": 80, "protocol": "TCP" }] })
            ),
            None
        );
    }
}
