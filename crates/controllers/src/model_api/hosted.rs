//! A ModelAPI of mode Hosted: Ollama, and beside it the step that has it pull its model.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{
        Container, ContainerPort, EmptyDirVolumeSource, EnvVar, HTTPGetAction, Probe, ResourceRequirements,
        Service, ServicePort, ServiceSpec, Volume, VolumeMount,
    },
    apimachinery::pkg::{api::resource::Quantity, util::intstr::IntOrString},
};
use kaos_api::{
    names,
    v1alpha1::{HostedConfig, ModelAPISpec},
};
use kaos_ollama::ModelName;

use super::validate::invalid;
use crate::{
    common::{
        env::{self, literal, merged},
        objects::{Check, Owner, Pods},
        plan::{Note, Objects},
        status::Standing,
        telemetry,
    },
    config::Config,
};

/// The port on which the step tells how far it is.
pub(super) const PULL_PORT: u16 = 11435;
/// The step's container.
const PULL: &str = "pull-model";
const PULL_PORT_NAME: &str = "pull";
/// The volume with the models, which a `podSpec` may replace by one that outlives the pod.
const DATA_VOLUME: &str = "ollama-data";
const DATA_DIRECTORY: &str = "/root/.ollama";

/// A ModelAPI of mode Hosted with everything it needs.
#[derive(Debug)]
pub(super) struct ValidHosted<'a> {
    pub(super) model: ModelName,
    /// The variables that the user gives.
    pub(super) users: Vec<EnvVar>,
    spec: &'a ModelAPISpec,
}

/// The model of the spec, in either spelling.
pub(super) fn model(spec: &ModelAPISpec) -> Option<&str> {
    let newer = spec
        .hosted_config
        .as_ref()
        .and_then(|hosted| hosted.model.as_deref());
    newer.or_else(|| spec.server_config.as_ref()?.model.as_deref())
}

/// What of the spec cannot be built is told as the standing to report.
pub(super) fn validate<'a>(
    spec: &'a ModelAPISpec,
    config: &Config,
    notes: &mut Vec<Note>,
) -> Result<ValidHosted<'a>, Standing> {
    let (newer, older) = (spec.hosted_config.as_ref(), spec.server_config.as_ref());
    let name = model(spec).ok_or_else(|| {
        invalid("spec.hostedConfig.model is required with mode Hosted; name an Ollama model, such as smollm2:135m")
    })?;
    let has_model = |hosted: Option<&HostedConfig>| hosted.is_some_and(|hosted| hosted.model.is_some());
    if has_model(newer) && has_model(older) {
        notes.push(Note::older(
            "spec.serverConfig.model is overridden by spec.hostedConfig.model; remove it",
        ));
    }
    let path = if has_model(newer) {
        "hostedConfig"
    } else {
        "serverConfig"
    };
    let model = name
        .parse()
        .map_err(|error| Standing::failed("InvalidModel", format!("spec.{path}.model {error}")))?;
    let users = users(spec, newer, older, notes);
    note_telemetry(spec, config, notes);
    Ok(ValidHosted { model, users, spec })
}

/// Notes telemetry that a spec turns on: Ollama sends none.
fn note_telemetry(spec: &ModelAPISpec, config: &Config, notes: &mut Vec<Note>) {
    let mut own = Vec::new();
    let merged = telemetry::merged(
        "spec.telemetry",
        spec.telemetry.as_ref(),
        &config.telemetry,
        &mut own,
    );
    match (merged, &spec.telemetry) {
        (Some(_), Some(_)) => notes.push(Note::without_effect(
            "spec.telemetry has no effect: Ollama sends none; remove it",
        )),
        // The installation's default is about those that send.
        (Some(_), None) => {}
        (None, _) => notes.extend(own),
    }
}

/// The variables of all three spellings, of which the newest wins.
fn users(
    spec: &ModelAPISpec,
    newer: Option<&HostedConfig>,
    older: Option<&HostedConfig>,
    notes: &mut Vec<Note>,
) -> Vec<EnvVar> {
    let of = |hosted: Option<&HostedConfig>| hosted.map(|hosted| hosted.env.clone()).unwrap_or_default();
    let (newer, mut older) = (of(newer), of(older));
    older.retain(|variable| {
        let overridden = newer.iter().any(|other| other.name == variable.name);
        if overridden {
            let name = &variable.name;
            notes.push(Note::older(format!(
                "spec.serverConfig.env sets {name}, but spec.hostedConfig.env sets it too and wins; \
                 remove it from spec.serverConfig.env"
            )));
        }
        !overridden
    });
    let container = spec.container.as_ref();
    // Each older spelling beside the newest; what both calls return of the newest is the same.
    let mut users = env::users(container, "spec.serverConfig.env", &older, notes);
    let newest = container.map_or(0, |container| container.env.len());
    users.truncate(users.len().saturating_sub(newest));
    users.extend(env::users(container, "spec.hostedConfig.env", &newer, notes));
    users
}

/// The pods of a hosted model.
pub(super) fn pods<'a>(hosted: &ValidHosted<'a>, config: &'a Config) -> Pods<'a> {
    let program = &config.images.ollama;
    Pods {
        image: &program.image,
        command: &[],
        args: program.args.clone(),
        env: merged(Vec::new(), hosted.users.clone(), debug(&config.log_level)),
        container: hosted.spec.container.as_ref(),
        pod_spec: hosted.spec.pod_spec.as_ref(),
        service_account: None,
        init: vec![pull(hosted, config)],
        volumes: vec![Volume {
            name: DATA_VOLUME.to_owned(),
            empty_dir: Some(EmptyDirVolumeSource::default()),
            ..Volume::default()
        }],
        mounts: vec![VolumeMount {
            name: DATA_VOLUME.to_owned(),
            mount_path: DATA_DIRECTORY.to_owned(),
            ..VolumeMount::default()
        }],
        annotations: BTreeMap::new(),
        port: names::OLLAMA_PORT,
        check: Check::Http {
            live: "/",
            ready: "/",
        },
        requests: ("100m", "512Mi"),
        replicas: None,
    }
}

/// Ollama's two levels of saying more.
fn debug(log_level: &str) -> Vec<EnvVar> {
    let level = match log_level.to_ascii_uppercase().as_str() {
        "TRACE" => "2",
        "DEBUG" => "1",
        _ => return Vec::new(),
    };
    vec![literal("OLLAMA_DEBUG", level)]
}

/// The step, as a sidecar: an init container that goes on beside the others. The pod is ready only while the step
/// is, which is while Ollama has the model. The name is an argument of its own, which no shell reads.
fn pull(hosted: &ValidHosted<'_>, config: &Config) -> Container {
    let program = &config.images.model_pull;
    let port = PULL_PORT.to_string();
    // Named, so that the local node, which gives Ollama another port, tells it.
    let ollama = format!("http://127.0.0.1:{}", names::OLLAMA_PORT);
    let mut args = program.args.clone();
    let own = [
        "--model",
        hosted.model.as_str(),
        "--ollama",
        &ollama,
        "--port",
        &port,
    ];
    args.extend(own.map(ToOwned::to_owned));
    let probe = |path: &str, period| Probe {
        http_get: Some(HTTPGetAction {
            path: Some(path.to_owned()),
            port: IntOrString::Int(i32::from(PULL_PORT)),
            ..HTTPGetAction::default()
        }),
        period_seconds: Some(period),
        ..Probe::default()
    };
    let quantity = |name: &str, amount: &str| (name.to_owned(), Quantity(amount.to_owned()));
    Container {
        name: PULL.to_owned(),
        image: Some(program.image.clone()),
        image_pull_policy: Some("IfNotPresent".to_owned()),
        args: Some(args),
        env: Some(vec![literal("LOG_LEVEL", &config.log_level)]),
        restart_policy: Some("Always".to_owned()),
        ports: Some(vec![ContainerPort {
            name: Some(PULL_PORT_NAME.to_owned()),
            container_port: i32::from(PULL_PORT),
            protocol: Some("TCP".to_owned()),
            ..ContainerPort::default()
        }]),
        readiness_probe: Some(probe("/ready", 2)),
        liveness_probe: Some(probe("/health", 10)),
        resources: Some(ResourceRequirements {
            requests: Some(BTreeMap::from([
                quantity("cpu", "10m"),
                quantity("memory", "16Mi"),
            ])),
            ..ResourceRequirements::default()
        }),
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
        ..Container::default()
    }
}

/// Whether the pods have the step: a `podSpec` may take it away.
pub(super) fn pulls(objects: &Objects) -> bool {
    let pod = objects.deployment.spec.template.spec.as_ref();
    let steps = pod.and_then(|pod| pod.init_containers.as_ref());
    steps
        .into_iter()
        .flatten()
        .any(|container| container.name == PULL)
}

/// The name of the Service that leads to the step.
pub(super) fn pull_service_name(owner: &Owner) -> String {
    format!("pull-{}", owner.name)
}

/// Where the step is asked how far it is.
pub(super) fn pull_endpoint(owner: &Owner, cluster_domain: &str) -> String {
    let (name, namespace) = (pull_service_name(owner), &owner.namespace);
    format!("http://{name}.{namespace}.svc.{cluster_domain}:{PULL_PORT}")
}

/// The Service that leads to the step of pods that are not ready yet: while it pulls, none is.
pub(super) fn pull_service(owner: &Owner) -> Service {
    Service {
        metadata: owner.metadata(pull_service_name(owner)),
        spec: Some(ServiceSpec {
            selector: Some(owner.kind.selector(&owner.name)),
            publish_not_ready_addresses: Some(true),
            ports: Some(vec![ServicePort {
                name: Some(PULL_PORT_NAME.to_owned()),
                port: i32::from(PULL_PORT),
                protocol: Some("TCP".to_owned()),
                target_port: Some(IntOrString::Int(i32::from(PULL_PORT))),
                ..ServicePort::default()
            }]),
            ..ServiceSpec::default()
        }),
        status: None,
    }
}
