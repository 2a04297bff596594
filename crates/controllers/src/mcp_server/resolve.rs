//! What an MCPServer refers to: a runtime by name.

use kaos_api::{
    names::CUSTOM_RUNTIME,
    v1alpha1::{MCPServer, MCPServerSpec, OlderServerType},
};

use super::registry::{PYTHON, Runtimes, Unavailable};
use crate::config::Runtime;

/// What the MCPServer's runtime is, where it is one of those that have names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Resolved {
    pub(crate) runtime: Option<Result<Runtime, Unavailable>>,
}

/// Looks up what `server` names.
pub(crate) fn resolve(server: &MCPServer, runtimes: &Runtimes) -> Resolved {
    Resolved {
        runtime: runtime_of(server).map(|name| runtimes.find(name)),
    }
}

/// The name of the runtime, unless it is `custom` or none is needed.
fn runtime_of(server: &MCPServer) -> Option<&str> {
    let spec = &server.spec;
    match &spec.runtime {
        Some(name) if name == CUSTOM_RUNTIME => None,
        Some(name) => Some(name),
        None => is_python_source(spec).then_some(PYTHON),
    }
}

/// Whether the older spelling gives Python source, which the same runtime serves as in the newer one.
fn is_python_source(spec: &MCPServerSpec) -> bool {
    let config = spec.config.as_ref();
    let tools = config.and_then(|config| config.tools.as_ref());
    let has_source = match tools {
        Some(tools) => tools.from_string.is_some(),
        None => config.is_some_and(|config| config.tools_string.is_some()),
    };
    spec.type_ == Some(OlderServerType::Python) && (has_source || spec.params.is_some())
}
