//! The objects of an MCPServer. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{EnvVar, KeyToPath, SecretVolumeSource, Volume, VolumeMount},
};
use kaos_api::names::{self, Kind};

use super::validate::{Program, ValidMcpServer};
use crate::{
    common::{
        env::{literal, merged},
        objects::{Check, Owner, Pods, deployment, service},
        plan::Objects,
        route::route,
        status::Standing,
        telemetry,
    },
    config::{Config, RoleImage},
};

/// Requested CPU and memory, where the user gives no resources.
const REQUESTS: (&str, &str) = ("10m", "64Mi");
/// Where Python source from a Secret is mounted, and the file it is in.
const SOURCE_FOLDER: &str = "/etc/kaos/tools";
const SOURCE_FILE: &str = "tools.py";
/// What the programs differ in.
struct Runs<'a> {
    image: &'a str,
    command: Vec<String>,
    args: Vec<String>,
    env: Vec<EnvVar>,
    /// The volume, where it is mounted, and whether only to be read.
    volume: Option<(Volume, &'static str, bool)>,
}

/// The objects of `server`.
///
/// # Errors
/// When the user's pod spec does not fit, or the environment lacks what the runtime requires.
pub(crate) fn build(
    owner: &Owner,
    server: &ValidMcpServer<'_>,
    config: &Config,
) -> Result<Objects, Standing> {
    let spec = server.spec;
    let mut runs = runs(server, config);
    let mut after = telemetry::env(server.telemetry, owner);
    after.push(literal("LOG_LEVEL", &config.log_level));
    let mounts = runs.volume.iter().map(|(volume, folder, read_only)| VolumeMount {
        name: volume.name.clone(),
        mount_path: (*folder).to_owned(),
        read_only: read_only.then_some(true),
        ..VolumeMount::default()
    });
    let pods = Pods {
        image: runs.image,
        command: &runs.command,
        args: std::mem::take(&mut runs.args),
        env: merged(std::mem::take(&mut runs.env), server.env.clone(), after),
        container: spec.container.as_ref(),
        pod_spec: spec.pod_spec.as_ref(),
        service_account: spec.service_account_name.as_deref(),
        init: Vec::new(),
        mounts: mounts.collect(),
        volumes: runs
            .volume
            .take()
            .map(|(volume, ..)| volume)
            .into_iter()
            .collect(),
        annotations: BTreeMap::new(),
        port: names::PORT,
        check: Check::Tcp,
        requests: REQUESTS,
        replicas: None,
    };
    let deployment = deployment(owner, pods)?;
    if let Program::Runtime { runtime, .. } = &server.program {
        has_required(server.runtime, &runtime.required_env, &deployment)?;
    }
    let gateway = config.gateway.as_ref();
    Ok(Objects {
        config_maps: Vec::new(),
        deployment,
        services: vec![service(owner, owner.child(), names::PORT)],
        route: gateway.map(|gateway| route(owner, gateway, spec.gateway_route.as_ref(), names::PORT)),
    })
}

fn runs<'a>(server: &ValidMcpServer<'a>, config: &'a Config) -> Runs<'a> {
    let nothing = |image: &'a str| Runs {
        image,
        command: Vec::new(),
        args: Vec::new(),
        env: Vec::new(),
        volume: None,
    };
    match &server.program {
        Program::Runtime { runtime, params } => Runs {
            command: runtime.command.clone(),
            args: runtime.args.clone(),
            env: params
                .iter()
                .map(|(variable, params)| literal(*variable, params))
                .collect(),
            ..nothing(&runtime.image)
        },
        Program::Custom { image } => nothing(image),
        Program::Secret { runtime, key } => {
            let file = KeyToPath {
                key: key.key.clone(),
                path: SOURCE_FILE.to_owned(),
                ..KeyToPath::default()
            };
            let volume = Volume {
                name: "tools".to_owned(),
                secret: Some(SecretVolumeSource {
                    secret_name: Some(key.name.clone()),
                    items: Some(vec![file]),
                    ..SecretVolumeSource::default()
                }),
                ..Volume::default()
            };
            Runs {
                command: runtime.command.clone(),
                args: runtime.args.clone(),
                env: vec![literal(
                    "MCP_TOOLS_FILE",
                    &format!("{SOURCE_FOLDER}/{SOURCE_FILE}"),
                )],
                volume: Some((volume, SOURCE_FOLDER, true)),
                ..nothing(&runtime.image)
            }
        }
        // Most packages speak over stdio: the bridge stands in front.
        Program::PythonPackage(package) => Runs {
            command: bridged(
                &config.images.python,
                &["uvx", "--from", package.requirement, package.name],
            ),
            ..nothing(&config.images.python.image)
        },
        Program::NodePackage(package) => Runs {
            command: bridged(&config.images.node, &["npx", "--yes", "--", package]),
            ..nothing(&config.images.node.image)
        },
    }
}

/// The command of the bridge in front of a stdio server. The arguments that users give are the server's.
fn bridged(bridge: &RoleImage, server: &[&str]) -> Vec<String> {
    let mut command = vec!["kaos".to_owned()];
    command.extend(bridge.args.iter().cloned());
    command.push("--".to_owned());
    command.extend(server.iter().map(|&word| word.to_owned()));
    command
}

/// Whether the container has every variable that its runtime cannot do without, from wherever: only the finished
/// pod tells.
fn has_required(runtime: &str, required: &[String], deployment: &Deployment) -> Result<(), Standing> {
    let name = Kind::McpServer.container();
    let pod = deployment.spec.template.spec.as_ref();
    let container = pod.and_then(|pod| pod.containers.iter().find(|container| container.name == name));
    // What these bring is in objects that are not read here.
    if container.is_some_and(|container| container.env_from.iter().flatten().next().is_some()) {
        return Ok(());
    }
    let is_set = |variable: &String| {
        container.is_some_and(|container| container.env.iter().flatten().any(|set| set.name == *variable))
    };
    let missing: Vec<&str> = required
        .iter()
        .filter(|variable| !is_set(variable))
        .map(String::as_str)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let (variables, it) = match missing.len() {
        1 => ("environment variable", "it"),
        _ => ("environment variables", "them"),
    };
    Err(Standing::failed(
        "MissingEnvironment",
        format!(
            "runtime {runtime} needs the {variables} {}; set {it} in spec.container.env, a secret one by \
             valueFrom.secretKeyRef",
            missing.join(" and ")
        ),
    ))
}
