//! From an MCPServer to a tool server that can be built.

use k8s_openapi::api::core::v1::{EnvVar, SecretKeySelector};
use kaos_api::{
    names::CUSTOM_RUNTIME,
    v1alpha1::{MCPServer, MCPServerSpec, OlderServerType},
};

use super::{
    package::{PythonPackage, node_package},
    registry::{PYTHON, Unavailable},
    resolve::Resolved,
};
use crate::{
    common::{env, plan::Note, status::Standing, telemetry},
    config::{Config, Runtime},
};

/// What serves the tools.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Program<'a> {
    /// A runtime of the registry.
    Runtime {
        runtime: &'a Runtime,
        /// The variable that the runtime reads its parameters from, and they.
        params: Option<(&'a str, &'a str)>,
    },
    /// An image of the user's.
    Custom { image: &'a str },
    /// The tool server of this project, with Python source from a Secret. Only that one reads a file.
    Secret {
        runtime: &'a Runtime,
        key: &'a SecretKeySelector,
    },
    /// A package of PyPI that is a tool server.
    PythonPackage(PythonPackage<'a>),
    /// A package of npm that is a tool server.
    NodePackage(&'a str),
}

/// An MCPServer with everything it needs.
#[derive(Clone, Debug)]
pub(crate) struct ValidMcpServer<'a> {
    pub(crate) spec: &'a MCPServerSpec,
    /// What the messages call the runtime.
    pub(crate) runtime: &'a str,
    pub(crate) program: Program<'a>,
    /// The user's variables, of either spelling.
    pub(crate) env: Vec<EnvVar>,
    pub(crate) telemetry: Option<telemetry::Sent<'a>>,
}

/// Where the older spelling has the tools, and what it calls the place.
#[derive(Clone, Copy)]
enum Older<'a> {
    Text(&'static str, &'a str),
    Package(&'static str, &'a str),
    Secret(&'static str, &'a SecretKeySelector),
}

impl Older<'_> {
    fn path(&self) -> &'static str {
        match self {
            Self::Text(path, _) | Self::Package(path, _) | Self::Secret(path, _) => path,
        }
    }
}

const OLDER_ENV: &str = "spec.config.env";
const SOURCE_VARIABLES: [&str; 2] = ["MCP_TOOLS_STRING", "MCP_TOOLS_FILE"];

/// What of the spec cannot be built is told as the standing to report.
pub(crate) fn validate<'a>(
    server: &'a MCPServer,
    resolved: &'a Resolved,
    config: &'a Config,
    notes: &mut Vec<Note>,
) -> Result<ValidMcpServer<'a>, Standing> {
    let spec = &server.spec;
    let older_env = spec.config.as_ref().map(|config| config.env.as_slice());
    let env = env::users(
        spec.container.as_ref(),
        OLDER_ENV,
        older_env.unwrap_or_default(),
        notes,
    );
    let program = program(spec, resolved, config, &env, notes)?;
    Ok(ValidMcpServer {
        spec,
        runtime: spec.runtime.as_deref().unwrap_or(PYTHON),
        program,
        env,
        telemetry: telemetry::merged(
            "spec.telemetry",
            spec.telemetry.as_ref(),
            &config.telemetry,
            notes,
        ),
    })
}

fn program<'a>(
    spec: &'a MCPServerSpec,
    resolved: &'a Resolved,
    config: &'a Config,
    env: &[EnvVar],
    notes: &mut Vec<Note>,
) -> Result<Program<'a>, Standing> {
    let mut older = older_tools(spec, notes)?;
    if spec.params.is_some()
        && let Some(overridden) = older.take()
    {
        let path = overridden.path();
        notes.push(Note::older(format!(
            "{path} is an older spelling beside spec.params, which wins; remove {path}"
        )));
    }
    let Some(name) = spec.runtime.as_deref() else {
        return older_program(spec, older, resolved, config, env, notes);
    };
    if spec.type_.is_some() {
        notes.push(Note::older(
            "spec.type is an older spelling beside spec.runtime, which wins; remove spec.type",
        ));
    }
    let params = match older {
        None => spec.params.as_deref().map(|params| ("spec.params", params)),
        Some(Older::Text(path, text)) => Some((path, text)),
        Some(Older::Package(path, _) | Older::Secret(path, _)) => {
            notes.push(Note::without_effect(format!(
                "{path} has no effect beside spec.runtime; remove one of them"
            )));
            None
        }
    };
    if name == CUSTOM_RUNTIME {
        return custom(spec, params.map(|(path, _)| path));
    }
    named(name, "spec.runtime", params, resolved, env, notes)
}

fn custom<'a>(spec: &'a MCPServerSpec, params: Option<&str>) -> Result<Program<'a>, Standing> {
    if let Some(path) = params {
        return Err(invalid(format!(
            "runtime custom takes no params; remove {path}, and give the image what it needs in spec.container.env"
        )));
    }
    let image = spec
        .container
        .as_ref()
        .and_then(|container| container.image.as_deref())
        .filter(|image| !image.is_empty());
    image.map(|image| Program::Custom { image }).ok_or_else(|| {
        invalid(
            "custom runtime requires container.image to be set; name the image that serves the tools on port 8000 \
             in spec.container.image"
                .to_owned(),
        )
    })
}

/// A runtime of the registry with these parameters, and where they are from.
fn named<'a>(
    name: &str,
    path: &str,
    params: Option<(&'static str, &'a str)>,
    resolved: &'a Resolved,
    env: &[EnvVar],
    notes: &mut Vec<Note>,
) -> Result<Program<'a>, Standing> {
    let runtime = match &resolved.runtime {
        Some(Ok(runtime)) => runtime,
        Some(Err(Unavailable::Broken(problem))) => {
            return Err(Standing::failed(
                "RuntimeBroken",
                format!("the runtime registry has a mistake: {problem}"),
            ));
        }
        Some(Err(Unavailable::Unknown { known, problem })) => {
            return Err(Standing::failed(
                "UnknownRuntime",
                unknown(name, path, known, problem.as_deref()),
            ));
        }
        // The two sides of one decision, in resolve.rs and here, have come apart.
        None => return Err(Standing::failed("UnknownRuntime", unknown(name, path, &[], None))),
    };
    let params = match (params, runtime.params_env_var.as_deref()) {
        (None, _) => None,
        (Some((path, _)), None) => {
            return Err(invalid(format!(
                "runtime {name} takes no params; remove {path}, or give what it needs in spec.container.env"
            )));
        }
        (Some((path, params)), Some(variable)) => {
            if env.iter().any(|given| given.name == variable) {
                notes.push(Note::without_effect(format!(
                    "{path} has no effect: spec.container.env sets {variable} and wins; remove one of them"
                )));
            }
            Some((variable, params))
        }
    };
    Ok(Program::Runtime { runtime, params })
}

fn unknown(name: &str, path: &str, known: &[String], problem: Option<&str>) -> String {
    let known = known.join(", ");
    let problem = problem
        .map(|problem| format!("; it may be missing for a mistake: {problem}"))
        .unwrap_or_default();
    format!("unknown runtime: {name} (not found in registry); write one of {known} in {path}{problem}")
}

fn invalid(message: String) -> Standing {
    Standing::failed("InvalidSpec", message)
}

/// The tools as the older spellings have them.
fn older_tools<'a>(spec: &'a MCPServerSpec, notes: &mut Vec<Note>) -> Result<Option<Older<'a>>, Standing> {
    let Some(config) = &spec.config else {
        return Ok(None);
    };
    let oldest = match (&config.tools_string, &config.mcp) {
        (Some(_), Some(_)) => {
            return Err(invalid(
                "spec.config.toolsString and spec.config.mcp are both given; remove one of them".to_owned(),
            ));
        }
        (Some(text), None) => Some(Older::Text("spec.config.toolsString", text)),
        (None, Some(package)) => Some(Older::Package("spec.config.mcp", package)),
        (None, None) => None,
    };
    let Some(tools) = &config.tools else {
        return Ok(oldest);
    };
    let given = (
        &tools.from_package,
        &tools.from_string,
        &tools.from_secret_key_ref,
    );
    let tools = match given {
        (Some(package), None, None) => Older::Package("spec.config.tools.fromPackage", package),
        (None, Some(text), None) => Older::Text("spec.config.tools.fromString", text),
        (None, None, Some(key)) => Older::Secret("spec.config.tools.fromSecretKeyRef", key),
        _ => {
            return Err(invalid(
                "spec.config.tools needs exactly one of fromPackage, fromString and fromSecretKeyRef"
                    .to_owned(),
            ));
        }
    };
    if let Some(oldest) = oldest {
        let path = oldest.path();
        notes.push(Note::older(format!(
            "{path} is an older spelling beside spec.config.tools, which wins; remove {path}"
        )));
    }
    if let Older::Secret(path, key) = tools
        && key.optional == Some(true)
    {
        notes.push(Note::without_effect(format!(
            "{path}.optional has no effect: without its Secret the server has no tools, and its pods wait for it; \
             remove it"
        )));
    }
    Ok(Some(tools))
}

/// What a spec without a runtime runs.
fn older_program<'a>(
    spec: &'a MCPServerSpec,
    older: Option<Older<'a>>,
    resolved: &'a Resolved,
    config: &'a Config,
    env: &[EnvVar],
    notes: &mut Vec<Note>,
) -> Result<Program<'a>, Standing> {
    let Some(type_) = spec.type_ else {
        return Err(invalid(
            "spec.runtime is missing; name the runtime that serves the tools, such as python-string, or custom with \
             spec.container.image"
                .to_owned(),
        ));
    };
    let source = match (older, spec.params.as_deref()) {
        (None, Some(params)) => Some(Older::Text("spec.params", params)),
        (older, _) => older,
    };
    let Some(source) = source else {
        return Err(invalid(
            "spec.type says in which language the tools are, and nothing says which; write spec.runtime: \
             python-string and spec.params, or spec.config.tools"
                .to_owned(),
        ));
    };
    match (type_, source) {
        (OlderServerType::Python, Older::Text(path, text)) => {
            named(PYTHON, "spec.runtime", Some((path, text)), resolved, env, notes)
        }
        (OlderServerType::Python, Older::Secret(path, key)) => secret(path, key, config, env),
        (OlderServerType::Python, Older::Package(path, package)) => PythonPackage::parse(package)
            .map(Program::PythonPackage)
            .map_err(|problem| invalid(format!("{path} is {problem}"))),
        (OlderServerType::Node, Older::Package(path, package)) => node_package(package)
            .map(Program::NodePackage)
            .map_err(|problem| invalid(format!("{path} is {problem}"))),
        (OlderServerType::Node, Older::Text(path, _) | Older::Secret(path, _)) => Err(invalid(format!(
            "spec.type node-runtime serves a package and {path} is Python source; write spec.runtime: python-string, \
             or name a package in spec.config.tools.fromPackage"
        ))),
    }
}

fn secret<'a>(
    path: &str,
    key: &'a SecretKeySelector,
    config: &'a Config,
    env: &[EnvVar],
) -> Result<Program<'a>, Standing> {
    if key.name.is_empty() || key.key.is_empty() {
        return Err(invalid(format!(
            "{path} needs the name of a Secret and one of its keys"
        )));
    }
    if let Some(given) = env
        .iter()
        .find(|variable| SOURCE_VARIABLES.contains(&variable.name.as_str()))
    {
        return Err(invalid(format!(
            "{path} and the environment variable {} both give the tools; remove one of them",
            given.name
        )));
    }
    let runtime = config.runtimes.get(PYTHON).ok_or_else(|| {
        Standing::failed(
            "UnknownRuntime",
            format!(
                "{path} needs the tool server of this operator, and none is configured; write spec.params"
            ),
        )
    })?;
    Ok(Program::Secret { runtime, key })
}
