//! The objects every workload is made of. Pure: the same input is the same object.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::{
        apps::v1::{Deployment, DeploymentSpec},
        core::v1::{
            ConfigMapVolumeSource, Container, ContainerPort, EnvVar, HTTPGetAction, PodSpec, PodTemplateSpec,
            Probe, ResourceRequirements, Service, ServicePort, ServiceSpec, TCPSocketAction, Volume,
            VolumeMount,
        },
    },
    apimachinery::pkg::{
        api::resource::Quantity,
        apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference},
        util::intstr::IntOrString,
    },
};
use kaos_api::names::{self, Kind};
use kube::{Resource, ResourceExt};

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

    /// The address of the Service.
    pub(crate) fn endpoint(&self, cluster_domain: &str) -> String {
        self.kind.endpoint(&self.name, &self.namespace, cluster_domain)
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

/// A ConfigMap mounted as a directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MountedConfig<'a> {
    /// Name of the volume.
    pub(crate) volume: &'static str,
    /// Name of the ConfigMap.
    pub(crate) config_map: &'a str,
    /// Where its keys are files.
    pub(crate) directory: &'static str,
    /// Changes with its content, so that pods are replaced: programs read it once.
    pub(crate) hash: &'a str,
}

/// What differs between the Deployments of workloads.
#[derive(Clone, Debug)]
pub(crate) struct Pods<'a> {
    pub(crate) image: &'a str,
    /// Empty keeps the image's.
    pub(crate) command: &'a [String],
    /// Empty keeps the image's.
    pub(crate) args: Vec<String>,
    pub(crate) env: Vec<EnvVar>,
    pub(crate) check: Check,
    pub(crate) config: Option<MountedConfig<'a>>,
    /// Requested CPU and memory.
    pub(crate) requests: (&'static str, &'static str),
}

/// The Deployment of a workload. It leaves the number of replicas to whoever scales it, and to the API
/// server's default of one.
pub(crate) fn deployment(owner: &Owner, pods: Pods<'_>) -> Deployment {
    let annotations = pods
        .config
        .map(|config| BTreeMap::from([(names::CONFIG_HASH_ANNOTATION.to_owned(), config.hash.to_owned())]));
    let volumes = pods.config.map(|config| {
        vec![Volume {
            name: config.volume.to_owned(),
            config_map: Some(ConfigMapVolumeSource {
                name: config.config_map.to_owned(),
                ..ConfigMapVolumeSource::default()
            }),
            ..Volume::default()
        }]
    });
    let template = PodTemplateSpec {
        metadata: Some(ObjectMeta {
            labels: Some(owner.kind.labels(&owner.name)),
            annotations,
            ..ObjectMeta::default()
        }),
        spec: Some(PodSpec {
            containers: vec![container(owner.kind, pods)],
            volumes,
            ..PodSpec::default()
        }),
    };
    Deployment {
        metadata: owner.metadata(owner.child()),
        spec: DeploymentSpec {
            selector: LabelSelector {
                match_labels: Some(owner.kind.selector(&owner.name)),
                match_expressions: None,
            },
            template,
            ..DeploymentSpec::default()
        },
        status: None,
    }
}

fn container(kind: Kind, pods: Pods<'_>) -> Container {
    let (cpu, memory) = pods.requests;
    let quantity = |name: &str, amount: &str| (name.to_owned(), Quantity(amount.to_owned()));
    let some = |words: &[String]| (!words.is_empty()).then(|| words.to_vec());
    let (live, ready) = match pods.check {
        Check::Http { live, ready } => (http(live), http(ready)),
        Check::Tcp => (tcp(), tcp()),
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
        image: Some(pods.image.to_owned()),
        image_pull_policy: Some("IfNotPresent".to_owned()),
        command: some(pods.command),
        args: some(&pods.args),
        env: (!pods.env.is_empty()).then_some(pods.env),
        ports: Some(vec![ContainerPort {
            name: Some(names::PORT_NAME.to_owned()),
            container_port: i32::from(names::PORT),
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
        resources: Some(ResourceRequirements {
            requests: Some(BTreeMap::from([quantity("cpu", cpu), quantity("memory", memory)])),
            ..ResourceRequirements::default()
        }),
        // So the reason of a crash stands in the pod's status.
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
        volume_mounts: pods.config.map(|config| {
            vec![VolumeMount {
                name: config.volume.to_owned(),
                mount_path: config.directory.to_owned(),
                read_only: Some(true),
                ..VolumeMount::default()
            }]
        }),
        ..Container::default()
    }
}

fn port() -> IntOrString {
    IntOrString::Int(i32::from(names::PORT))
}

/// Seconds within which a probe is answered. A busy model proxy takes its time.
const PROBE_TIMEOUT: i32 = 5;

fn http(path: &str) -> Probe {
    Probe {
        http_get: Some(HTTPGetAction {
            path: Some(path.to_owned()),
            port: port(),
            ..HTTPGetAction::default()
        }),
        timeout_seconds: Some(PROBE_TIMEOUT),
        ..Probe::default()
    }
}

fn tcp() -> Probe {
    Probe {
        tcp_socket: Some(TCPSocketAction {
            port: port(),
            host: None,
        }),
        timeout_seconds: Some(PROBE_TIMEOUT),
        ..Probe::default()
    }
}

/// The Service of a workload.
pub(crate) fn service(owner: &Owner) -> Service {
    let service_port = |name: &str, number: u16| ServicePort {
        name: Some(name.to_owned()),
        port: i32::from(number),
        protocol: Some("TCP".to_owned()),
        target_port: Some(port()),
        ..ServicePort::default()
    };
    Service {
        metadata: owner.metadata(owner.child()),
        spec: Some(ServiceSpec {
            selector: Some(owner.kind.selector(&owner.name)),
            ports: Some(vec![
                service_port(names::PORT_NAME, names::PORT),
                service_port(names::HTTP_PORT_NAME, names::HTTP_PORT),
            ]),
            ..ServiceSpec::default()
        }),
        status: None,
    }
}
