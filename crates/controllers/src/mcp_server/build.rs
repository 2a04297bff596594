//! The objects of an MCPServer. Pure.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::{
        apps::v1::Deployment,
        core::v1::{
            Container, EmptyDirVolumeSource, EnvVar, KeyToPath, ResourceRequirements, SecretVolumeSource,
            Volume, VolumeMount,
        },
    },
    apimachinery::pkg::api::resource::Quantity,
};
use kaos_api::names::{self, Kind};

use super::{
    package::PythonPackage,
    validate::{Program, ValidMcpServer},
};
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
/// Where a package of PyPI is installed.
const PACKAGE_FOLDER: &str = "/opt/kaos/package";
/// The init container that installs it.
const INSTALL: &str = "install-package";

/// Runs a package that was installed into a folder of its own: the program of its name, or else the module. A
/// program of fixed text; what users write comes to it as arguments.
pub(super) const RUN_PACKAGE: &str = "\
import os, sys
folder, name, module, *rest = sys.argv[1:]
others = os.environ.get('PYTHONPATH')
os.environ['PYTHONPATH'] = folder + (os.pathsep + others if others else '')
programs = os.path.join(folder, 'bin')
os.environ['PATH'] = programs + os.pathsep + os.environ.get('PATH', os.defpath)
program = os.path.join(programs, name)
if os.path.isfile(program):
    os.execv(program, [program, *rest])
os.execv(sys.executable, [sys.executable, '-m', module, *rest])
";

/// What the programs differ in.
struct Runs<'a> {
    image: &'a str,
    command: Vec<String>,
    args: Vec<String>,
    env: Vec<EnvVar>,
    /// The volume, where it is mounted, and whether only to be read.
    volume: Option<(Volume, &'static str, bool)>,
    init: Option<Container>,
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
        init: runs.init.take().into_iter().collect(),
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
        init: None,
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
        Program::PythonPackage(package) => {
            let python = &config.images.python;
            let volume = Volume {
                name: "package".to_owned(),
                empty_dir: Some(EmptyDirVolumeSource::default()),
                ..Volume::default()
            };
            let module = package.module();
            Runs {
                command: python_words(
                    python,
                    &["-c", RUN_PACKAGE, PACKAGE_FOLDER, package.name, &module],
                ),
                init: Some(install(server, package, python)),
                volume: Some((volume, PACKAGE_FOLDER, false)),
                ..nothing(&python.image)
            }
        }
        Program::NodePackage(package) => {
            let node = &config.images.node;
            let mut command = vec!["npx".to_owned()];
            command.extend(node.args.iter().cloned());
            command.extend(["--yes", "--", package].map(ToOwned::to_owned));
            Runs {
                command,
                ..nothing(&node.image)
            }
        }
    }
}

fn python_words(python: &RoleImage, words: &[&str]) -> Vec<String> {
    let mut command = vec!["python".to_owned()];
    command.extend(python.args.iter().cloned());
    command.extend(words.iter().map(|&word| word.to_owned()));
    command
}

/// Installs the package, in the image that is to run it and with the user's environment: proxies and indexes
/// of pip are set there.
fn install(server: &ValidMcpServer<'_>, package: &PythonPackage<'_>, python: &RoleImage) -> Container {
    let container = server.spec.container.as_ref();
    let image = container.and_then(|container| container.image.as_deref());
    let env = merged(Vec::new(), server.env.clone(), Vec::new());
    let resources = container.and_then(|container| container.resources.clone());
    // A namespace with a quota takes no container without any.
    let requests = || {
        let quantity = |name: &str, amount: &str| (name.to_owned(), Quantity(amount.to_owned()));
        ResourceRequirements {
            requests: Some([quantity("cpu", REQUESTS.0), quantity("memory", REQUESTS.1)].into()),
            ..ResourceRequirements::default()
        }
    };
    let words = [
        "-m",
        "pip",
        "install",
        "--no-input",
        "--no-cache-dir",
        "--disable-pip-version-check",
        "--target",
        PACKAGE_FOLDER,
        "--",
        package.requirement,
    ];
    Container {
        name: INSTALL.to_owned(),
        image: Some(image.unwrap_or(&python.image).to_owned()),
        image_pull_policy: Some("IfNotPresent".to_owned()),
        command: Some(python_words(python, &words)),
        env: (!env.is_empty()).then_some(env),
        resources: Some(resources.unwrap_or_else(requests)),
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
        volume_mounts: Some(vec![VolumeMount {
            name: "package".to_owned(),
            mount_path: PACKAGE_FOLDER.to_owned(),
            ..VolumeMount::default()
        }]),
        ..Container::default()
    }
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
