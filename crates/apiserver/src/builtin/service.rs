//! Services: their defaults, their cluster addresses and their rules.
//!
//! Nothing listens on a cluster address here; clients expect one and it must not change.

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::{
    defaults::{each, object, set},
    names::{self, port_errors},
};
use crate::schema::FieldError;

/// Fills in the defaults (`SetDefaults_Service`).
pub(super) fn apply_defaults(service: &mut Value) {
    let Some(spec) = object(service, "spec") else {
        return;
    };
    set(spec, "sessionAffinity", "None");
    set(spec, "type", "ClusterIP");
    if spec["sessionAffinity"] == "ClientIP" {
        let seconds = json!({ "clientIP": { "timeoutSeconds": 10_800 } });
        set(spec, "sessionAffinityConfig", seconds);
    } else {
        spec.shift_remove("sessionAffinityConfig");
    }
    for port in each(spec, "ports").filter_map(Value::as_object_mut) {
        set(port, "protocol", "TCP");
        let target = port.get("targetPort").cloned().unwrap_or_default();
        if (target.is_null() || target == 0 || target == "")
            && let Some(number) = port.get("port").cloned()
        {
            port.insert("targetPort".to_owned(), number);
        }
    }
    let kind = spec["type"].as_str().unwrap_or_default().to_owned();
    if matches!(kind.as_str(), "ClusterIP" | "NodePort" | "LoadBalancer") {
        set(spec, "internalTrafficPolicy", "Cluster");
    }
    if matches!(kind.as_str(), "NodePort" | "LoadBalancer") {
        set(spec, "externalTrafficPolicy", "Cluster");
    }
    if kind == "LoadBalancer" {
        set(spec, "allocateLoadBalancerNodePorts", true);
    }
}

fn needs_address(spec: &Map<String, Value>) -> bool {
    spec.get("type").and_then(Value::as_str) != Some("ExternalName")
}

/// Gives a Service its cluster address, where it needs one: one of 10.96.0.0/16, worked out from its name, and not
/// `taken`. After tracking, before validation.
pub(crate) fn assign_cluster_ip(service: &mut Value, taken: &dyn Fn(&str) -> bool) {
    let name = |field: &str| service["metadata"][field].as_str().unwrap_or_default().to_owned();
    let identity = format!("{}/{}", name("namespace"), name("name"));
    let Some(spec) = object(service, "spec").filter(|spec| needs_address(spec)) else {
        return;
    };
    let given = spec
        .get("clusterIP")
        .and_then(Value::as_str)
        .filter(|given| !given.is_empty());
    let address = given.map_or_else(|| free_address(&identity, taken), str::to_owned);
    set(spec, "clusterIPs", json!([address]));
    spec.insert("clusterIP".to_owned(), address.into());
    set(spec, "ipFamilies", json!(["IPv4"]));
    set(spec, "ipFamilyPolicy", "SingleStack");
}

/// The first free address from a place that depends on the name on.
fn free_address(identity: &str, taken: &dyn Fn(&str) -> bool) -> String {
    let hash = Sha256::digest(identity.as_bytes());
    let start = u16::from_be_bytes([hash[0], hash[1]]);
    let address = |host: u16| format!("10.96.{}.{}", host >> 8, host & 0xff);
    let hosts = (0..=u16::MAX).map(|offset| start.wrapping_add(offset));
    // The first ten are left to the cluster itself; .0 and .255 look like networks.
    let mut usable = hosts
        .filter(|host| *host > 10 && !matches!(host & 0xff, 0 | 0xff))
        .map(address);
    usable
        .find(|address| !taken(address))
        .unwrap_or_else(|| address(start))
}

/// An update that leaves out what the server chose keeps it.
pub(super) fn keep_allocated(new: &mut Value, old: &Value) {
    let Some(spec) = object(new, "spec").filter(|spec| needs_address(spec)) else {
        return;
    };
    if old["spec"]["type"] == "ExternalName" {
        return;
    }
    for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
        let empty = match spec.get(field) {
            None | Some(Value::Null) => true,
            Some(Value::String(text)) => text.is_empty(),
            Some(Value::Array(items)) => items.is_empty(),
            Some(_) => false,
        };
        if empty && let Some(value) = old["spec"].get(field) {
            spec.insert(field.to_owned(), value.clone());
        }
    }
}

/// What is wrong with a Service.
pub(super) fn validate(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let spec = &new["spec"];
    let kind = spec["type"].as_str().unwrap_or_default();
    let ports = spec["ports"].as_array().map(Vec::as_slice).unwrap_or_default();
    let kinds = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
    if !kinds.contains(&kind) {
        errors.push(FieldError::not_supported(
            "spec.type",
            &spec["type"],
            &kinds.map(str::to_owned),
        ));
    }
    if ports.is_empty() && spec["clusterIP"] != "None" && kind != "ExternalName" {
        errors.push(FieldError::required("spec.ports", ""));
    }
    if kind == "ExternalName" && spec["externalName"].as_str().unwrap_or_default().is_empty() {
        errors.push(FieldError::required("spec.externalName", ""));
    }
    for (index, port) in ports.iter().enumerate() {
        let at = format!("spec.ports[{index}]");
        let name = port["name"].as_str().unwrap_or_default();
        if name.is_empty() && ports.len() > 1 {
            errors.push(FieldError::required(format!("{at}.name"), ""));
        } else if !name.is_empty() {
            errors.extend(names::dns_label(&format!("{at}.name"), name));
        }
        if !name.is_empty() && ports[..index].iter().any(|earlier| earlier["name"] == name) {
            errors.push(FieldError::duplicate(format!("{at}.name"), &port["name"]));
        }
        errors.extend(port_errors(&format!("{at}.port"), &port["port"]));
        names::protocol(&format!("{at}.protocol"), &port["protocol"], errors);
        match &port["targetPort"] {
            number @ Value::Number(_) => errors.extend(port_errors(&format!("{at}.targetPort"), number)),
            Value::String(name) => names::port_name(&format!("{at}.targetPort"), name, errors),
            _ => {}
        }
    }
    for (index, port) in ports.iter().enumerate() {
        let same =
            |earlier: &&Value| earlier["port"] == port["port"] && earlier["protocol"] == port["protocol"];
        if ports[..index].iter().find(same).is_some() {
            let shown = json!({ "protocol": port["protocol"], "port": port["port"] });
            errors.push(FieldError::duplicate(format!("spec.ports[{index}]"), &shown));
        }
    }
    if let Some(old) = old {
        let address = |service: &Value| {
            service["spec"]["clusterIP"]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        };
        let (before, after) = (address(old), address(new));
        if !before.is_empty()
            && before != after
            && kind != "ExternalName"
            && old["spec"]["type"] != "ExternalName"
        {
            let shown = json!([after]);
            errors.push(FieldError::invalid(
                "spec.clusterIPs[0]",
                &shown,
                "may not change once set",
            ));
        }
    }
}
