//! From an Agent and what it refers to, to an agent that can be built.

use kaos_api::v1alpha1::{Agent, AgentConfig, ContainerOverride, MCPServer, ModelAPI};

use super::resolve::Resolved;
use crate::common::{objects::Owner, status::Standing};

/// An Agent with everything it needs.
#[derive(Clone, Debug)]
pub(crate) struct ValidAgent<'a> {
    pub(crate) owner: &'a Owner,
    pub(crate) model_api: &'a str,
    pub(crate) model: &'a str,
    /// Names, each once, sorted.
    pub(crate) mcp_servers: Vec<&'a str>,
    pub(crate) config: Option<&'a AgentConfig>,
    pub(crate) container: Option<&'a ContainerOverride>,
    pub(crate) exposed: bool,
    /// What keeps it from being ready though its pods may start.
    pub(crate) lacks: Option<Standing>,
}

/// What cannot be built, or not yet, is told as the standing to report.
pub(crate) fn validate<'a>(
    owner: &'a Owner,
    agent: &'a Agent,
    resolved: &'a Resolved,
) -> Result<ValidAgent<'a>, Standing> {
    let spec = &agent.spec;
    let wait = spec.wait_for_dependencies;
    let mut lacks = None;
    let mut hold = |standing: Standing| {
        if wait {
            return Err(standing);
        }
        lacks.get_or_insert(standing);
        Ok(())
    };

    let Some(model_api) = &resolved.model_api else {
        return Err(not_found(format!(
            "Failed to resolve ModelAPI: modelapis.kaos.tools {:?} not found",
            spec.model_api
        )));
    };
    if !model_api_is_ready(model_api) {
        hold(Standing::waiting("DependencyNotReady", "ModelAPI is not ready"))?;
    }
    check_model(&spec.model, model_api)?;
    let mut mcp_servers = Vec::new();
    for (name, server) in &resolved.mcp_servers {
        let Some(server) = server else {
            return Err(not_found(format!(
                "Failed to resolve MCPServer {name}: mcpservers.kaos.tools {name:?} not found"
            )));
        };
        if !mcp_server_is_ready(server) {
            hold(Standing::waiting(
                "DependencyNotReady",
                format!("MCPServer {name} is not ready"),
            ))?;
        }
        mcp_servers.push(name.as_str());
    }
    Ok(ValidAgent {
        owner,
        model_api: &spec.model_api,
        model: &spec.model,
        mcp_servers,
        config: spec.config.as_ref(),
        container: spec.container.as_ref(),
        exposed: spec.exposed(),
        lacks,
    })
}

fn not_found(message: String) -> Standing {
    Standing::failed("DependencyNotFound", message)
}

/// A status of an older generation says nothing of the present spec.
fn model_api_is_ready(model_api: &ModelAPI) -> bool {
    let status = model_api.status.as_ref();
    status.is_some_and(|status| status.ready && status.observed_generation == model_api.metadata.generation)
}

fn mcp_server_is_ready(server: &MCPServer) -> bool {
    let status = server.status.as_ref();
    status.is_some_and(|status| status.ready && status.observed_generation == server.metadata.generation)
}

fn check_model(model: &str, model_api: &ModelAPI) -> Result<(), Standing> {
    let models = model_api
        .spec
        .proxy_config
        .as_ref()
        .map(|proxy| proxy.models.as_slice())
        .unwrap_or_default();
    if models.iter().any(|pattern| matches(pattern, model)) {
        return Ok(());
    }
    let name = model_api.metadata.name.as_deref().unwrap_or_default();
    Err(Standing::failed(
        "ModelNotSupported",
        format!(
            "model {model:?} not supported by ModelAPI {name:?} (supported: [{}])",
            models.join(" ")
        ),
    ))
}

/// `*` matches every model, `prefix/*` those that begin with `prefix/`, anything else itself.
fn matches(pattern: &str, model: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some("") => true,
        Some(prefix) if prefix.ends_with('/') => model.starts_with(prefix),
        _ => pattern == model,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_match_exactly_by_prefix_or_all() {
        for (pattern, model, expected) in [
            ("*", "anything", true),
            ("gpt-4o", "gpt-4o", true),
            ("gpt-4o", "gpt-4o-mini", false),
            ("openai/*", "openai/gpt-4o", true),
            ("openai/*", "openai", false),
            ("openai/*", "openai-like/x", false),
            ("gpt*", "gpt-4o", false),
        ] {
            assert_eq!(matches(pattern, model), expected, "{pattern} {model}");
        }
    }
}
