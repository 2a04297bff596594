//! Binds pods to the one node there is, and registers that node.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{
        Binding, Node, NodeAddress, NodeCondition, NodeStatus, NodeSystemInfo, ObjectReference, Pod,
    },
    apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::Time},
};
use kaos_seams::Seams;
use kube::{
    Api, Client, ResourceExt as _,
    api::{ObjectMeta, PostParams},
};

use crate::{
    events::{Recorder, Type, reference},
    kubelet::HOST_IP,
};

/// How many pods the node says it takes.
const POD_CAPACITY: &str = "1000";

/// Makes sure that the node's object is there and says that it is ready.
pub(crate) async fn register(client: &Client, name: &str, seams: &Seams) -> Result<(), kube::Error> {
    let api: Api<Node> = Api::all(client.clone());
    let mut node = match api.get_opt(name).await? {
        Some(node) => node,
        None => {
            let metadata = ObjectMeta {
                name: Some(name.to_owned()),
                labels: Some(node_labels(name)),
                ..ObjectMeta::default()
            };
            api.create(
                &PostParams::default(),
                &Node {
                    metadata,
                    ..Node::default()
                },
            )
            .await?
        }
    };
    node.status = Some(status(name, seams.clock.now()));
    api.replace_status(name, &PostParams::default(), &node).await?;
    Ok(())
}

/// The labels of the one node, which a pod's `nodeSelector` is held against.
pub(crate) fn node_labels(name: &str) -> BTreeMap<String, String> {
    [
        ("kubernetes.io/hostname", name),
        ("kubernetes.io/os", std::env::consts::OS),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .collect()
}

fn status(name: &str, now: Timestamp) -> NodeStatus {
    let capacity = capacity();
    let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
    let address = |kind: &str, address: &str| NodeAddress {
        type_: kind.to_owned(),
        address: address.to_owned(),
    };
    NodeStatus {
        allocatable: Some(capacity.clone()),
        capacity: Some(capacity),
        addresses: Some(vec![address("InternalIP", HOST_IP), address("Hostname", name)]),
        conditions: Some(vec![NodeCondition {
            type_: "Ready".to_owned(),
            status: "True".to_owned(),
            reason: Some("NodeReady".to_owned()),
            message: Some("the node runs pods as processes of this machine".to_owned()),
            last_heartbeat_time: Some(Time(now)),
            last_transition_time: Some(Time(now)),
        }]),
        node_info: Some(NodeSystemInfo {
            architecture: std::env::consts::ARCH.to_owned(),
            operating_system: std::env::consts::OS.to_owned(),
            os_image: std::env::consts::OS.to_owned(),
            container_runtime_version: format!("process://{}", env!("CARGO_PKG_VERSION")),
            kubelet_version: format!("v{}", env!("CARGO_PKG_VERSION")),
            ..NodeSystemInfo::default()
        }),
        ..NodeStatus::default()
    }
}

/// What the machine has, by the names of Kubernetes' resources.
pub(crate) fn capacity() -> BTreeMap<String, Quantity> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    [
        ("cpu", Some(cpus.to_string())),
        ("memory", memory_kib().map(|kib| format!("{kib}Ki"))),
        ("pods", Some(POD_CAPACITY.to_owned())),
    ]
    .into_iter()
    .filter_map(|(resource, amount)| Some((resource.to_owned(), Quantity(amount?))))
    .collect()
}

/// The machine's memory in KiB, where `/proc` tells it.
fn memory_kib() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

/// Whether a pod waits for a node.
pub(crate) fn is_unscheduled(pod: &Pod) -> bool {
    let spec = pod.spec.as_ref();
    let waits = spec.is_some_and(|spec| {
        // Another scheduler's pods, and those that are held back, are not ours to place.
        spec.node_name.as_deref().unwrap_or_default().is_empty()
            && spec
                .scheduler_name
                .as_deref()
                .is_none_or(|name| name == "default-scheduler")
            && spec.scheduling_gates.as_ref().is_none_or(Vec::is_empty)
    });
    waits && pod.metadata.deletion_timestamp.is_none()
}

/// Binds `pod` to `node`. The API sets the pod's `PodScheduled` condition with the binding.
pub(crate) async fn bind(
    client: &Client,
    pod: &Pod,
    node: &str,
    events: &Recorder,
) -> Result<(), kube::Error> {
    let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
    let binding = Binding {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            namespace: Some(namespace.clone()),
            uid: pod.uid(),
            ..ObjectMeta::default()
        },
        target: ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Node".to_owned()),
            name: Some(node.to_owned()),
            ..ObjectReference::default()
        },
    };
    let api: Api<Pod> = Api::namespaced(client.clone(), &namespace);
    let bound: Result<serde_json::Value, _> = api
        .create_subresource("binding", &name, &PostParams::default(), &binding)
        .await;
    match bound {
        Ok(_) => {
            let message = format!("Successfully assigned {namespace}/{name} to {node}");
            events.report(reference(pod), Type::Normal, "Scheduled", message);
            Ok(())
        }
        // Gone, or bound meanwhile.
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(()),
        Err(error) => Err(error),
    }
}
