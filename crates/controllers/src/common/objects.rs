//! The objects every workload is made of. Pure: the same input is the same object.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::{
        apps::v1::{Deployment, DeploymentSpec, DeploymentStrategy, RollingUpdateDeployment},
        core::v1::{
            Container, ContainerPort, EnvVar, HTTPGetAction, PodSpec, PodTemplateSpec, Probe,
            ResourceRequirements, Service, ServicePort, ServiceSpec, TCPSocketAction, Volume, VolumeMount,
        },
    },
    apimachinery::pkg::{
        api::resource::Quantity,
        apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference},
        util::intstr::IntOrString,
    },
};
use kaos_api::{
    names::{self, Kind},
    v1alpha1::{ContainerOverride, PodSpecPatch},
};
use kaos_kube_ext::merge_pod_spec;
use kube::{Resource, ResourceExt};

use super::{env::complete, status::Standing};

/// A resource whose objects are built: what identifies it and them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Owner {
    pub(crate) kind: Kind,
    pub(crate) name: String,
    pub(crate) namespace: String,
    pub(crate) reference: OwnerReference,
}

impl Owner {
    /// Nothing where the resource has no uid: then it does not come from an API server.
    pub(crate) fn of<K: Resource<DynamicType = ()>>(kind: Kind, resource: &K) -> Option<Self> {
        let reference = resource.controller_owner_ref(&())?;
        Some(Self {
            kind,
            name: resource.name_any(),
            namespace: resource.namespace()?,
            // With foreground deletion the resource is there until its objects are gone.
            reference: OwnerReference {
                block_owner_deletion: Some(true),
                ..reference
            },
        })
    }

    /// The name of the Deployment and of the Service.
    pub(crate) fn child(&self) -> String {
        self.kind.child(&self.name)
    }

    /// The address of the Service at this port.
    pub(crate) fn endpoint(&self, port: u16, cluster_domain: &str) -> String {
        let host = self.kind.host(&self.name, &self.namespace, cluster_domain);
        format!("http://{host}:{port}")
    }

    /// The metadata of an object called `name`.
    pub(crate) fn metadata(&self, name: String) -> ObjectMeta {
        ObjectMeta {
            name: Some(name),
            namespace: Some(self.namespace.clone()),
            labels: Some(self.kind.labels(&self.name)),
            owner_references: Some(vec![self.reference.clone()]),
            ..ObjectMeta::default()
        }
    }
}

/// How Kubernetes finds out that a container works.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Check {
    /// These paths answer.
    Http { live: &'static str, ready: &'static str },
    /// The port takes connections.
    Tcp,
}

/// What differs between the Deployments of workloads.
#[derive(Clone, Debug)]
pub(crate) struct Pods<'a> {
    pub(crate) image: &'a str,
    /// Empty keeps the image's.
    pub(crate) command: &'a [String],
    /// Empty keeps the image's.
    pub(crate) args: Vec<String>,
    /// With the user's already in it: see [`super::env::merged`].
    pub(crate) env: Vec<EnvVar>,
    /// What the user changes of the container.
    pub(crate) container: Option<&'a ContainerOverride>,
    /// What the user changes of the pod.
    pub(crate) pod_spec: Option<&'a PodSpecPatch>,
    pub(crate) service_account: Option<&'a str>,
    pub(crate) init: Vec<Container>,
    pub(crate) volumes: Vec<Volume>,
    /// Of the container.
    pub(crate) mounts: Vec<VolumeMount>,
    /// Of the pod template.
    pub(crate) annotations: BTreeMap<String, String>,
    pub(crate) port: u16,
    pub(crate) check: Check,
    /// Requested CPU and memory, where the user gives no resources.
    pub(crate) requests: (&'static str, &'static str),
    /// `None` leaves it to whoever scales the Deployment, and to the API server's default of one.
    pub(crate) replicas: Option<i32>,
}

/// The Deployment of a workload.
///
/// # Errors
/// When the user's `podSpec` cannot be merged into the generated one, or takes the container away.
pub(crate) fn deployment(owner: &Owner, pods: Pods<'_>) -> Result<Deployment, Standing> {
    let some = |map: BTreeMap<_, _>| (!map.is_empty()).then_some(map);
    let (annotations, replicas) = (some(pods.annotations.clone()), pods.replicas);
    let pod = pod_spec(owner.kind, pods)?;
    let strategy = strategy(&pod);
    let template = PodTemplateSpec {
        metadata: Some(ObjectMeta {
            labels: Some(owner.kind.labels(&owner.name)),
            annotations,
            ..ObjectMeta::default()
        }),
        spec: Some(pod),
    };
    Ok(Deployment {
        metadata: owner.metadata(owner.child()),
        spec: DeploymentSpec {
            replicas,
            selector: LabelSelector {
                match_labels: Some(owner.kind.selector(&owner.name)),
                match_expressions: None,
            },
            strategy: Some(strategy),
            template,
            ..DeploymentSpec::default()
        },
        status: None,
    })
}

/// A claim may be for one node only, where the new pod would wait for the old one to leave it. What the API server
/// would fill in is given: only then does it go with a change to the other strategy, which forbids it.
fn strategy(pod: &PodSpec) -> DeploymentStrategy {
    let claims = |volume: &Volume| volume.persistent_volume_claim.is_some();
    if pod.volumes.iter().flatten().any(claims) {
        return DeploymentStrategy {
            type_: Some("Recreate".to_owned()),
            rolling_update: None,
        };
    }
    let quarter = || Some(IntOrString::String("25%".to_owned()));
    DeploymentStrategy {
        type_: Some("RollingUpdate".to_owned()),
        rolling_update: Some(RollingUpdateDeployment {
            max_surge: quarter(),
            max_unavailable: quarter(),
        }),
    }
}

fn pod_spec(kind: Kind, mut pods: Pods<'_>) -> Result<PodSpec, Standing> {
    let (init, volumes) = (std::mem::take(&mut pods.init), std::mem::take(&mut pods.volumes));
    let (patch, service_account) = (pods.pod_spec, pods.service_account.map(ToOwned::to_owned));
    let generated = PodSpec {
        init_containers: some(init),
        containers: vec![container(kind, pods)],
        volumes: some(volumes),
        service_account_name: service_account,
        ..PodSpec::default()
    };
    let mut spec = match patch {
        Some(patch) => patched(kind, &generated, patch)?,
        None => generated,
    };
    // The API server keeps the older name of the field beside it, and would bring the newer back from it.
    let account = spec.service_account_name.take().or(spec.service_account.take());
    spec.service_account.clone_from(&account);
    spec.service_account_name = account;
    Ok(spec)
}

const POD_SPEC: &str = "spec.podSpec";

fn patched(kind: Kind, generated: &PodSpec, patch: &PodSpecPatch) -> Result<PodSpec, Standing> {
    let invalid = |problem: String| Standing::failed("InvalidPodSpec", problem);
    let not_a_pod = |error: serde_json::Error| {
        invalid(format!(
            "{POD_SPEC} makes a pod that Kubernetes cannot read: {error}; change it"
        ))
    };
    let generated = serde_json::to_value(generated).map_err(not_a_pod)?;
    let merged =
        merge_pod_spec(&generated, &patch.0).map_err(|error| invalid(error.within(POD_SPEC).to_string()))?;
    let mut pod: PodSpec = serde_json::from_value(merged).map_err(not_a_pod)?;
    let name = kind.container();
    if !pod.containers.iter().any(|container| container.name == name) {
        return Err(invalid(format!(
            "{POD_SPEC}.containers takes away the container {name}; keep it, it is what the Service leads to"
        )));
    }
    let containers = pod.containers.iter_mut();
    for container in containers.chain(pod.init_containers.iter_mut().flatten()) {
        container.env = container
            .env
            .take()
            .map(|env| env.into_iter().map(complete).collect());
    }
    Ok(pod)
}

fn some<T>(items: Vec<T>) -> Option<Vec<T>> {
    (!items.is_empty()).then_some(items)
}

fn container(kind: Kind, pods: Pods<'_>) -> Container {
    let users = pods.container;
    let given = |words: fn(&ContainerOverride) -> &Vec<String>| {
        users.map(words).filter(|words| !words.is_empty()).cloned()
    };
    let image = users.and_then(|container| container.image.clone());
    let (cpu, memory) = pods.requests;
    let quantity = |name: &str, amount: &str| (name.to_owned(), Quantity(amount.to_owned()));
    let requests = || ResourceRequirements {
        requests: Some(BTreeMap::from([quantity("cpu", cpu), quantity("memory", memory)])),
        ..ResourceRequirements::default()
    };
    let resources = users.and_then(|container| container.resources.clone());
    let (live, ready) = match pods.check {
        Check::Http { live, ready } => (http(live, pods.port), http(ready, pods.port)),
        Check::Tcp => (tcp(pods.port), tcp(pods.port)),
    };
    // The first answer is waited for closely and for long enough to pull what a program needs at its start;
    // only then do the two others begin.
    let startup = Probe {
        period_seconds: Some(1),
        failure_threshold: Some(120),
        ..live.clone()
    };
    Container {
        name: kind.container().to_owned(),
        image: Some(image.unwrap_or_else(|| pods.image.to_owned())),
        image_pull_policy: Some("IfNotPresent".to_owned()),
        command: given(|container| &container.command).or_else(|| some(pods.command.to_vec())),
        args: given(|container| &container.args).or_else(|| some(pods.args)),
        env: some(pods.env),
        ports: Some(vec![ContainerPort {
            name: Some(names::PORT_NAME.to_owned()),
            container_port: i32::from(pods.port),
            protocol: Some("TCP".to_owned()),
            ..ContainerPort::default()
        }]),
        startup_probe: Some(startup),
        liveness_probe: Some(Probe {
            period_seconds: Some(10),
            ..live
        }),
        readiness_probe: Some(Probe {
            period_seconds: Some(2),
            ..ready
        }),
        resources: Some(resources.unwrap_or_else(requests)),
        // So the reason of a crash stands in the pod's status.
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
        volume_mounts: some(pods.mounts),
        ..Container::default()
    }
}

fn number(port: u16) -> IntOrString {
    IntOrString::Int(i32::from(port))
}

/// Seconds within which a probe is answered. A busy model proxy takes its time.
const PROBE_TIMEOUT: i32 = 5;

fn http(path: &str, port: u16) -> Probe {
    Probe {
        http_get: Some(HTTPGetAction {
            path: Some(path.to_owned()),
            port: number(port),
            ..HTTPGetAction::default()
        }),
        timeout_seconds: Some(PROBE_TIMEOUT),
        ..Probe::default()
    }
}

fn tcp(port: u16) -> Probe {
    Probe {
        tcp_socket: Some(TCPSocketAction {
            port: number(port),
            host: None,
        }),
        timeout_seconds: Some(PROBE_TIMEOUT),
        ..Probe::default()
    }
}

/// The Service of a workload, which leads to `port` of its pods.
pub(crate) fn service(owner: &Owner, name: String, port: u16) -> Service {
    let service_port = |name: &str, from: u16| ServicePort {
        name: Some(name.to_owned()),
        port: i32::from(from),
        protocol: Some("TCP".to_owned()),
        target_port: Some(number(port)),
        ..ServicePort::default()
    };
    Service {
        metadata: owner.metadata(name),
        spec: Some(ServiceSpec {
            selector: Some(owner.kind.selector(&owner.name)),
            ports: Some(vec![
                service_port(names::PORT_NAME, port),
                service_port(names::HTTP_PORT_NAME, names::HTTP_PORT),
            ]),
            ..ServiceSpec::default()
        }),
        status: None,
    }
}
