//! The objects of an Agent. Pure.

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{EnvVar, Service},
};
use kaos_api::names::Kind;
use serde::Serialize;

use super::validate::ValidAgent;
use crate::{
    common::{
        env::{literal, merged},
        objects::{Check, Pods, deployment, service},
    },
    config::Config,
};

/// Everything an Agent is made of.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Objects {
    pub(crate) deployment: Deployment,
    /// Where it is exposed.
    pub(crate) service: Option<Service>,
}

/// The objects of `agent`.
pub(crate) fn build(agent: &ValidAgent<'_>, config: &Config) -> Objects {
    let pods = Pods {
        image: &config.images.agent.image,
        command: &[],
        args: config.images.agent.args.clone(),
        env: merged(who(agent), agent.container, with_what(agent, config)),
        check: Check::Http {
            live: "/health",
            ready: "/ready",
        },
        config: None,
        requests: ("10m", "32Mi"),
    };
    Objects {
        deployment: deployment(agent.owner, pods),
        service: agent.exposed.then(|| service(agent.owner)),
    }
}

fn who(agent: &ValidAgent<'_>) -> Vec<EnvVar> {
    let text = |text: fn(&kaos_api::v1alpha1::AgentConfig) -> Option<&String>| {
        agent.config.and_then(text).filter(|text| !text.is_empty())
    };
    let mut env = vec![literal("AGENT_NAME", &agent.owner.name)];
    env.extend(text(|config| config.description.as_ref()).map(|text| literal("AGENT_DESCRIPTION", text)));
    env.extend(text(|config| config.instructions.as_ref()).map(|text| literal("AGENT_INSTRUCTIONS", text)));
    env
}

fn with_what(agent: &ValidAgent<'_>, config: &Config) -> Vec<EnvVar> {
    let address =
        |kind: Kind, name: &str| kind.endpoint(name, &agent.owner.namespace, &config.cluster_domain);
    let mut env = vec![
        literal("MODEL_API_URL", &address(Kind::ModelApi, agent.model_api)),
        literal("MODEL_NAME", agent.model),
    ];
    if let Some(config) = agent.config {
        env.push(literal(
            "AGENTIC_LOOP_MAX_STEPS",
            &config.reasoning_loop_max_steps.to_string(),
        ));
    }
    if !agent.mcp_servers.is_empty() {
        env.push(literal("MCP_SERVERS", &agent.mcp_servers.join(",")));
        for name in &agent.mcp_servers {
            env.push(literal(
                format!("MCP_SERVER_{name}_URL"),
                &address(Kind::McpServer, name),
            ));
        }
    }
    env.push(literal("LOG_LEVEL", &config.log_level));
    env
}
