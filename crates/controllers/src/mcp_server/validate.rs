//! From an MCPServer to a tool server that can be built.

use kaos_api::v1alpha1::{ContainerOverride, MCPServer};

use crate::{
    common::{objects::Owner, status::Standing},
    config::Runtime,
};

/// An MCPServer with everything it needs.
#[derive(Clone, Debug)]
pub(crate) struct ValidMcpServer<'a> {
    pub(crate) owner: &'a Owner,
    pub(crate) runtime: &'a Runtime,
    /// The variable that the runtime reads its parameters from, and they.
    pub(crate) params: Option<(&'a str, &'a str)>,
    pub(crate) container: Option<&'a ContainerOverride>,
}

/// What of the spec cannot be built is told as the standing to report.
pub(crate) fn validate<'a>(
    owner: &'a Owner,
    server: &'a MCPServer,
    runtime: Result<&'a Runtime, Vec<&'a str>>,
) -> Result<ValidMcpServer<'a>, Standing> {
    let name = &server.spec.runtime;
    let runtime = runtime.map_err(|known| {
        let known = if known.is_empty() {
            "none is configured".to_owned()
        } else {
            known.join(", ")
        };
        Standing::failed(
            "UnknownRuntime",
            format!("unknown runtime: {name} (known: {known}); change spec.runtime"),
        )
    })?;
    let params = match (&server.spec.params, &runtime.params_env_var) {
        (None, _) => None,
        (Some(params), Some(variable)) => Some((variable.as_str(), params.as_str())),
        (Some(_), None) => {
            return Err(Standing::failed(
                "InvalidSpec",
                format!(
                    "runtime {name} takes no params; remove spec.params, or give what it needs in spec.container.env"
                ),
            ));
        }
    };
    Ok(ValidMcpServer {
        owner,
        runtime,
        params,
        container: server.spec.container.as_ref(),
    })
}
