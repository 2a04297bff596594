//! What is behind each Service: computed from Services, pods and their ports, told to the forwarders, and
//! written as EndpointSlices for people and tools to see.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::Arc,
};

use k8s_openapi::{
    api::{
        core::v1::{Pod, Service, ServicePort as SpecPort},
        discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice},
    },
    apimachinery::pkg::{apis::meta::v1::OwnerReference, util::intstr::IntOrString},
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, ObjectMeta, Patch, PatchParams},
};
use sha2::{Digest as _, Sha256};

use super::allocation::ServicePort;
use crate::{
    kubelet::is_ready,
    ports::{self, PodPorts, PortMap},
    watch::Key,
};

/// The value of the label that says who writes a slice.
const MANAGER: &str = "endpoints.kaos-node";
const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// The ready pods' addresses behind every Service, and the Services' port names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Endpoints {
    behind: BTreeMap<ServicePort, Vec<SocketAddr>>,
    ports: BTreeMap<Key, Vec<(Option<String>, u16)>>,
}

impl Endpoints {
    pub(super) fn behind(&self, service: &ServicePort) -> Vec<SocketAddr> {
        self.behind.get(service).cloned().unwrap_or_default()
    }

    /// Whether any Service leads to `target`.
    pub(super) fn leads_to(&self, target: SocketAddr) -> bool {
        self.behind.values().any(|targets| targets.contains(&target))
    }

    pub(super) fn knows(&self, namespace: &str, service: &str) -> bool {
        self.ports
            .contains_key(&(namespace.to_owned(), service.to_owned()))
    }

    pub(super) fn port_of(&self, namespace: &str, service: &str, port: Option<&str>) -> Option<u16> {
        let ports = self.ports.get(&(namespace.to_owned(), service.to_owned()))?;
        let Some(wanted) = port else {
            return match ports.as_slice() {
                [(_, only)] => Some(*only),
                _ => None,
            };
        };
        let number = wanted.parse().ok();
        ports
            .iter()
            .find(|(name, port)| name.as_deref() == Some(wanted) || Some(*port) == number)
            .map(|(_, port)| *port)
    }

    /// What is behind `services` now, and the slices that say so.
    pub(crate) fn compute(
        services: &[Arc<Service>],
        pods: &[Arc<Pod>],
        port_map: &PortMap,
    ) -> (Self, Vec<EndpointSlice>) {
        let mut endpoints = Self::default();
        let mut slices = Vec::new();
        for service in services {
            let (Some(namespace), name) = (service.namespace(), service.name_any()) else {
                continue;
            };
            let Some(spec) = &service.spec else { continue };
            let spec_ports: Vec<(&SpecPort, u16)> = spec
                .ports
                .iter()
                .flatten()
                .filter(|port| port.protocol.as_deref().is_none_or(|protocol| protocol == "TCP"))
                .filter_map(|port| Some((port, u16::try_from(port.port).ok()?)))
                .collect();
            endpoints.ports.insert(
                (namespace.clone(), name.clone()),
                spec_ports
                    .iter()
                    .map(|(port, number)| (port.name.clone(), *number))
                    .collect(),
            );
            // Without a selector, the endpoints are somebody else's to write.
            let Some(selector) = spec.selector.as_ref().filter(|selector| !selector.is_empty()) else {
                continue;
            };
            let mut by_ports: BTreeMap<Vec<u16>, Vec<Endpoint>> = BTreeMap::new();
            for pod in pods.iter().filter(|pod| belongs(pod, &namespace, selector)) {
                let pod_ports = port_map.of(&pod.uid().unwrap_or_default());
                // One that must end gets no new connections, even where it serves for a while still.
                let stays = pod.metadata.deletion_timestamp.is_none();
                let ready = is_ready(pod) && stays;
                let targets: Vec<Option<SocketAddr>> = spec_ports
                    .iter()
                    .map(|(port, number)| target(pod, port, *number, &pod_ports))
                    .collect();
                if ready || (stays && spec.publish_not_ready_addresses == Some(true)) {
                    for ((_, number), address) in spec_ports.iter().zip(&targets) {
                        let (Some(address), service) = (address, name.clone()) else {
                            continue;
                        };
                        let key = ServicePort {
                            namespace: namespace.clone(),
                            service,
                            port: *number,
                        };
                        endpoints.behind.entry(key).or_default().push(*address);
                    }
                }
                let numbers = targets
                    .iter()
                    .map(|target| target.map_or(0, |target| target.port()))
                    .collect();
                by_ports.entry(numbers).or_default().push(endpoint(pod, ready));
            }
            if by_ports.is_empty() {
                by_ports.insert(Vec::new(), Vec::new());
            }
            slices.extend(
                by_ports
                    .into_iter()
                    .map(|(numbers, members)| slice(service, &spec_ports, &numbers, members)),
            );
        }
        (endpoints, slices)
    }
}

fn belongs(pod: &Pod, namespace: &str, selector: &BTreeMap<String, String>) -> bool {
    let running = pod.status.as_ref().is_some_and(|status| {
        status.pod_ip.is_some() && !matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"))
    });
    running
        && pod.namespace().as_deref() == Some(namespace)
        && selector
            .iter()
            .all(|(key, value)| pod.labels().get(key) == Some(value))
}

/// Where `port` of a Service leads in `pod`; `None` for a named port that the pod does not have.
fn target(pod: &Pod, port: &SpecPort, number: u16, pod_ports: &PodPorts) -> Option<SocketAddr> {
    let container_port = match &port.target_port {
        None => number,
        Some(IntOrString::Int(port)) => u16::try_from(*port)
            .ok()
            .filter(|port| *port != 0)
            .unwrap_or(number),
        Some(IntOrString::String(wanted)) => {
            let mut declared = ports::declared(pod.spec.as_ref()?);
            let port = declared
                .find(|port| port.name.as_ref() == Some(wanted))?
                .container_port;
            u16::try_from(port).ok()?
        }
    };
    Some(ports::address(pod_ports, container_port))
}

fn endpoint(pod: &Pod, ready: bool) -> Endpoint {
    let terminating = pod.metadata.deletion_timestamp.is_some();
    Endpoint {
        addresses: pod
            .status
            .as_ref()
            .and_then(|status| status.pod_ip.clone())
            .into_iter()
            .collect(),
        conditions: Some(EndpointConditions {
            ready: Some(ready),
            serving: Some(is_ready(pod)),
            terminating: Some(terminating),
        }),
        node_name: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()),
        target_ref: Some(k8s_openapi::api::core::v1::ObjectReference {
            kind: Some("Pod".to_owned()),
            name: pod.metadata.name.clone(),
            namespace: pod.metadata.namespace.clone(),
            uid: pod.metadata.uid.clone(),
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// One slice for the pods that share the same ports, as one slice has one list of ports.
fn slice(
    service: &Service,
    spec_ports: &[(&SpecPort, u16)],
    numbers: &[u16],
    mut endpoints: Vec<Endpoint>,
) -> EndpointSlice {
    let name = service.name_any();
    endpoints.sort_by(|a, b| uid_of(a).cmp(&uid_of(b)));
    let digest = Sha256::digest(format!("{numbers:?}"));
    let suffix: String = digest.iter().take(3).map(|byte| format!("{byte:02x}")).collect();
    let ports = spec_ports
        .iter()
        .zip(numbers)
        .filter(|(_, number)| **number != 0)
        .map(|((port, _), number)| EndpointPort {
            name: Some(port.name.clone().unwrap_or_default()),
            port: Some(i32::from(*number)),
            protocol: Some("TCP".to_owned()),
            app_protocol: port.app_protocol.clone(),
        })
        .collect();
    EndpointSlice {
        metadata: ObjectMeta {
            // The longest Service name leaves room for it.
            name: Some(format!("{name}-{suffix}")),
            namespace: service.namespace(),
            labels: Some(BTreeMap::from([
                (MANAGED_BY.to_owned(), MANAGER.to_owned()),
                (SERVICE_NAME.to_owned(), name.clone()),
            ])),
            owner_references: Some(vec![OwnerReference {
                api_version: "v1".to_owned(),
                kind: "Service".to_owned(),
                name,
                uid: service.uid().unwrap_or_default(),
                controller: Some(true),
                block_owner_deletion: Some(true),
            }]),
            ..Default::default()
        },
        address_type: "IPv4".to_owned(),
        endpoints: Some(endpoints),
        ports: Some(ports),
    }
}

fn uid_of(endpoint: &Endpoint) -> Option<&String> {
    endpoint.target_ref.as_ref()?.uid.as_ref()
}

/// Makes the slices of the API those of `desired`: applies what differs from what is there and deletes what
/// this node wrote before and wants no more.
pub(crate) async fn write_slices(client: &Client, desired: &[EndpointSlice]) -> Result<(), kube::Error> {
    let ours = ListParams::default().labels(&format!("{MANAGED_BY}={MANAGER}"));
    let live = Api::<EndpointSlice>::all(client.clone()).list(&ours).await?.items;
    let key = |slice: &EndpointSlice| (slice.namespace().unwrap_or_default(), slice.name_any());
    let wanted: BTreeSet<_> = desired.iter().map(key).collect();
    for slice in desired {
        let same = live.iter().any(|live| {
            key(live) == key(slice) && live.endpoints == slice.endpoints && live.ports == slice.ports
        });
        if same {
            continue;
        }
        let (namespace, name) = key(slice);
        let api: Api<EndpointSlice> = Api::namespaced(client.clone(), &namespace);
        api.patch(&name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(slice))
            .await?;
    }
    for slice in live.iter().filter(|slice| !wanted.contains(&key(slice))) {
        let (namespace, name) = key(slice);
        let api: Api<EndpointSlice> = Api::namespaced(client.clone(), &namespace);
        match api.delete(&name, &DeleteParams::default()).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
