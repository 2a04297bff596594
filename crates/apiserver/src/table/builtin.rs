//! The columns of built-in kinds, as kubectl users know them, except those of pods and their controllers.

use jiff::Timestamp;
use serde_json::Value;

use super::{age, workloads};
use crate::resource::{Column, ColumnSource};

/// Works a cell out of an object.
pub(super) type Compute = fn(&Value, Timestamp) -> Value;

/// Shown where there is nothing.
pub(super) const NONE: &str = "<none>";

/// Shown where a list was not filled.
const UNSET: &str = "<unset>";

/// How many members of a list are shown.
const SHOWN: usize = 3;

/// The columns of a built-in kind beyond the name. Kinds without columns of their own show when they were made.
pub(crate) fn builtin_columns(group: &str, plural: &str) -> Vec<Column> {
    match (group, plural) {
        ("", "pods") => workloads::pod_columns(),
        ("apps", "deployments") => workloads::deployment_columns(),
        ("apps", "replicasets") => workloads::replica_set_columns(),
        ("batch", "jobs") => workloads::job_columns(),
        ("", "services") => vec![
            text("Type", |object, _| string(object, "/spec/type")),
            text("Cluster-IP", |object, _| first_or_none(object, "/spec/clusterIP")),
            text("External-IP", |object, _| external_address(object).into()),
            text("Port(s)", |object, _| service_ports(object).into()),
            age_column(),
            wide("Selector", |object, _| {
                labels(object.pointer("/spec/selector")).into()
            }),
        ],
        ("", "configmaps") => vec![
            integer("Data", |object, _| {
                (len(object, "/data") + len(object, "/binaryData")).into()
            }),
            age_column(),
        ],
        ("", "secrets") => vec![
            text("Type", |object, _| string(object, "/type")),
            integer("Data", |object, _| len(object, "/data").into()),
            age_column(),
        ],
        ("", "namespaces") => vec![
            text("Status", |object, _| string(object, "/status/phase")),
            age_column(),
        ],
        ("", "nodes") => node_columns(),
        ("", "events") | ("events.k8s.io", "events") => event_columns(),
        ("", "endpoints") => vec![
            text("Endpoints", |object, _| endpoints(object).into()),
            age_column(),
        ],
        ("discovery.k8s.io", "endpointslices") => vec![
            text("AddressType", |object, _| string(object, "/addressType")),
            text("Ports", |object, _| slice_ports(object).into()),
            text("Endpoints", |object, _| slice_addresses(object).into()),
            age_column(),
        ],
        ("", "serviceaccounts") => vec![age_column()],
        ("coordination.k8s.io", "leases") => {
            vec![
                text("Holder", |object, _| string(object, "/spec/holderIdentity")),
                age_column(),
            ]
        }
        _ => vec![Column {
            kind: "date".to_owned(),
            ..text("Created At", |object, _| {
                object
                    .pointer("/metadata/creationTimestamp")
                    .cloned()
                    .unwrap_or_default()
            })
        }],
    }
}

fn column(name: &str, kind: &str, priority: i32, compute: Compute) -> Column {
    Column {
        name: name.to_owned(),
        kind: kind.to_owned(),
        format: String::new(),
        priority,
        source: ColumnSource::Computed(compute),
    }
}

pub(super) fn text(name: &str, compute: Compute) -> Column {
    column(name, "string", 0, compute)
}

pub(super) fn integer(name: &str, compute: Compute) -> Column {
    column(name, "integer", 0, compute)
}

/// A column of `-o wide`.
pub(super) fn wide(name: &str, compute: Compute) -> Column {
    column(name, "string", 1, compute)
}

pub(super) fn age_column() -> Column {
    text("Age", |object, now| {
        age::at(object, "/metadata/creationTimestamp", now)
    })
}

/// The text at a pointer; empty where there is none.
pub(super) fn str_at<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// The number at a pointer; 0 where there is none.
pub(super) fn int_at(object: &Value, pointer: &str) -> i64 {
    object
        .pointer(pointer)
        .and_then(Value::as_i64)
        .unwrap_or_default()
}

/// The list at a pointer; empty where there is none.
pub(super) fn list_at<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object
        .pointer(pointer)
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default()
}

pub(super) fn or_none(text: &str) -> &str {
    if text.is_empty() { NONE } else { text }
}

fn string(object: &Value, pointer: &str) -> Value {
    str_at(object, pointer).into()
}

pub(super) fn first_or_none(object: &Value, pointer: &str) -> Value {
    or_none(str_at(object, pointer)).into()
}

fn len(object: &Value, pointer: &str) -> usize {
    object
        .pointer(pointer)
        .and_then(Value::as_object)
        .map_or(0, serde_json::Map::len)
}

/// A map of labels as text, sorted.
pub(super) fn labels(map: Option<&Value>) -> String {
    let map = map.and_then(Value::as_object).into_iter().flatten();
    let mut pairs: Vec<String> = map
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    pairs.sort();
    or_none(&pairs.join(",")).to_owned()
}

/// The first few members and how many more there are.
fn abridged(members: &[String], empty: &str) -> String {
    if members.is_empty() {
        return empty.to_owned();
    }
    let shown = members[..members.len().min(SHOWN)].join(",");
    if members.len() > SHOWN {
        format!("{shown} + {} more...", members.len() - SHOWN)
    } else {
        shown
    }
}

fn external_address(service: &Value) -> String {
    let listed = |pointer: &str| {
        list_at(service, pointer)
            .iter()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let given = listed("/spec/externalIPs");
    match str_at(service, "/spec/type") {
        "ExternalName" => str_at(service, "/spec/externalName").to_owned(),
        "LoadBalancer" => {
            let ingress = list_at(service, "/status/loadBalancer/ingress")
                .iter()
                .map(|ingress| {
                    let address = str_at(ingress, "/ip");
                    if address.is_empty() {
                        str_at(ingress, "/hostname").to_owned()
                    } else {
                        address.to_owned()
                    }
                });
            let all: Vec<String> = ingress
                .chain(given)
                .filter(|address| !address.is_empty())
                .collect();
            if all.is_empty() {
                "<pending>".to_owned()
            } else {
                all.join(",")
            }
        }
        _ => or_none(&given.join(",")).to_owned(),
    }
}

fn service_ports(service: &Value) -> String {
    let ports = list_at(service, "/spec/ports").iter().map(|port| {
        let protocol = port.get("protocol").and_then(Value::as_str).unwrap_or("TCP");
        match int_at(port, "/nodePort") {
            0 => format!("{}/{protocol}", int_at(port, "/port")),
            node_port => format!("{}:{node_port}/{protocol}", int_at(port, "/port")),
        }
    });
    or_none(&ports.collect::<Vec<_>>().join(",")).to_owned()
}

fn endpoints(object: &Value) -> String {
    let subsets = list_at(object, "/subsets").iter();
    let members: Vec<String> = subsets
        .flat_map(|subset| {
            let (addresses, ports) = (list_at(subset, "/addresses"), list_at(subset, "/ports"));
            let mut members = Vec::new();
            for address in addresses.iter().map(|address| str_at(address, "/ip")) {
                if ports.is_empty() {
                    members.push(address.to_owned());
                }
                members.extend(ports.iter().map(|port| host_port(address, int_at(port, "/port"))));
            }
            members
        })
        .collect();
    abridged(&members, NONE)
}

/// IPv6 addresses stand in brackets.
fn host_port(host: &str, port: i64) -> String {
    if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

fn slice_ports(slice: &Value) -> String {
    let ports: Vec<String> = list_at(slice, "/ports")
        .iter()
        .map(
            |port| match (port.get("port").and_then(Value::as_i64), str_at(port, "/name")) {
                (Some(number), _) => number.to_string(),
                (None, "") => "*".to_owned(),
                (None, name) => name.to_owned(),
            },
        )
        .collect();
    abridged(&ports, UNSET)
}

fn slice_addresses(slice: &Value) -> String {
    let addresses: Vec<String> = list_at(slice, "/endpoints")
        .iter()
        .flat_map(|endpoint| list_at(endpoint, "/addresses"))
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect();
    abridged(&addresses, UNSET)
}

fn node_columns() -> Vec<Column> {
    vec![
        text("Status", |node, _| {
            let ready = list_at(node, "/status/conditions")
                .iter()
                .find(|c| str_at(c, "/type") == "Ready");
            let status = match ready.map(|condition| str_at(condition, "/status")) {
                None => "Unknown",
                Some("True") => "Ready",
                Some(_) => "NotReady",
            };
            let closed = node.pointer("/spec/unschedulable") == Some(&Value::Bool(true));
            if closed {
                format!("{status},SchedulingDisabled").into()
            } else {
                status.into()
            }
        }),
        text("Roles", |node, _| {
            let labels = node
                .pointer("/metadata/labels")
                .and_then(Value::as_object)
                .into_iter()
                .flatten();
            let mut roles: Vec<&str> = labels
                .filter_map(
                    |(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
                        Some(role) => Some(role),
                        None if key == "kubernetes.io/role" => value.as_str(),
                        None => None,
                    },
                )
                .filter(|role| !role.is_empty())
                .collect();
            roles.sort_unstable();
            roles.dedup();
            or_none(&roles.join(",")).into()
        }),
        age_column(),
        text("Version", |node, _| {
            string(node, "/status/nodeInfo/kubeletVersion")
        }),
        wide("Internal-IP", |node, _| node_address(node, "InternalIP")),
        wide("External-IP", |node, _| node_address(node, "ExternalIP")),
        wide("OS-Image", |node, _| unknown_or(node, "/status/nodeInfo/osImage")),
        wide("Kernel-Version", |node, _| {
            unknown_or(node, "/status/nodeInfo/kernelVersion")
        }),
        wide("Container-Runtime", |node, _| {
            unknown_or(node, "/status/nodeInfo/containerRuntimeVersion")
        }),
    ]
}

fn node_address(node: &Value, kind: &str) -> Value {
    let address = list_at(node, "/status/addresses")
        .iter()
        .find(|address| str_at(address, "/type") == kind);
    or_none(
        address
            .map(|address| str_at(address, "/address"))
            .unwrap_or_default(),
    )
    .into()
}

fn unknown_or(object: &Value, pointer: &str) -> Value {
    match str_at(object, pointer) {
        "" => "<unknown>".into(),
        text => text.into(),
    }
}

/// Events of both API groups: `events.k8s.io` names the same things otherwise.
fn event_columns() -> Vec<Column> {
    vec![
        text("Last Seen", |event, now| {
            match str_at(event, "/series/lastObservedTime") {
                "" => match one_of(event, "/lastTimestamp", "/deprecatedLastTimestamp") {
                    Some(pointer) => age::at(event, pointer, now),
                    None => first_seen(event, now),
                },
                _ => age::at(event, "/series/lastObservedTime", now),
            }
        }),
        text("Type", |event, _| string(event, "/type")),
        text("Reason", |event, _| string(event, "/reason")),
        text("Object", |event, _| {
            let object = involved(event);
            let kind = str_at(object, "/kind").to_lowercase();
            match str_at(object, "/name") {
                "" => kind.into(),
                name => format!("{kind}/{name}").into(),
            }
        }),
        wide("Subobject", |event, _| string(involved(event), "/fieldPath")),
        wide("Source", |event, _| {
            let source = event
                .get("source")
                .or_else(|| event.get("deprecatedSource"))
                .unwrap_or(&Value::Null);
            let either = |given: &str, other: &str| {
                if given.is_empty() {
                    other.to_owned()
                } else {
                    given.to_owned()
                }
            };
            let component = either(
                str_at(source, "/component"),
                either(
                    str_at(event, "/reportingComponent"),
                    str_at(event, "/reportingController"),
                )
                .as_str(),
            );
            match either(str_at(source, "/host"), str_at(event, "/reportingInstance")).as_str() {
                "" => component.into(),
                instance => format!("{component}, {instance}").into(),
            }
        }),
        text("Message", |event, _| {
            let message = one_of(event, "/message", "/note").map_or("", |pointer| str_at(event, pointer));
            message.trim().into()
        }),
        wide("First Seen", first_seen),
        Column {
            kind: "integer".to_owned(),
            ..wide("Count", |event, _| {
                let counts =
                    ["/series/count", "/count", "/deprecatedCount"].map(|pointer| int_at(event, pointer));
                counts.into_iter().find(|count| *count > 0).unwrap_or(1).into()
            })
        },
        Column {
            format: "name".to_owned(),
            ..wide("Name", |event, _| string(event, "/metadata/name"))
        },
    ]
}

fn involved(event: &Value) -> &Value {
    event
        .get("involvedObject")
        .or_else(|| event.get("regarding"))
        .unwrap_or(&Value::Null)
}

fn first_seen(event: &Value, now: Timestamp) -> Value {
    let pointer = one_of(event, "/firstTimestamp", "/deprecatedFirstTimestamp").unwrap_or("/eventTime");
    age::at(event, pointer, now)
}

/// The first of two pointers where there is text.
fn one_of<'a>(object: &Value, first: &'a str, second: &'a str) -> Option<&'a str> {
    [first, second]
        .into_iter()
        .find(|pointer| !str_at(object, pointer).is_empty())
}
