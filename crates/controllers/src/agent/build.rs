//! The objects of an Agent. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::EnvVar;
use kaos_api::{
    names::{self, Kind},
    v1alpha1::{AgentConfig, AgentMemory, MemoryType},
};

use super::{model::MODEL_NAME, validate::ValidAgent};
use crate::{
    common::{
        env::{literal, merged},
        objects::{Check, Pods, deployment, service},
        plan::Objects,
        route::route,
        status::Standing,
        telemetry,
    },
    config::Config,
};

/// The objects of `agent`.
///
/// # Errors
/// When the user's pod spec does not fit.
pub(crate) fn build(agent: &ValidAgent<'_>, config: &Config) -> Result<Objects, Standing> {
    let (owner, spec) = (agent.owner, &agent.agent.spec);
    let container = spec.container.as_ref();
    // An image of the user's is an agent by itself, as those of KAOS were; ours have to be told their role.
    let is_ours = container.is_none_or(|container| container.image.is_none());
    let pods = Pods {
        image: &config.images.agent.image,
        command: &[],
        args: config
            .images
            .agent
            .args
            .iter()
            .filter(|_| is_ours)
            .cloned()
            .collect(),
        env: merged(who(agent), agent.users.clone(), with_what(agent, config)),
        container,
        pod_spec: spec.pod_spec.as_ref(),
        service_account: None,
        init: Vec::new(),
        volumes: Vec::new(),
        mounts: Vec::new(),
        annotations: BTreeMap::new(),
        port: names::PORT,
        check: Check::Http {
            live: "/health",
            ready: "/ready",
        },
        requests: ("10m", "32Mi"),
        replicas: spec.replicas,
    };
    let gateway = config.gateway.as_ref().filter(|_| spec.exposed());
    Ok(Objects {
        config_maps: Vec::new(),
        services: spec
            .exposed()
            .then(|| service(owner, owner.child(), names::PORT))
            .into_iter()
            .collect(),
        deployment: deployment(owner, pods)?,
        route: gateway.map(|gateway| route(owner, gateway, spec.gateway_route.as_ref(), names::PORT)),
    })
}

fn who(agent: &ValidAgent<'_>) -> Vec<EnvVar> {
    let text = |text: fn(&AgentConfig) -> Option<&String>| {
        let config = agent.agent.spec.config.as_ref();
        config.and_then(text).filter(|text| !text.is_empty())
    };
    let mut env = vec![literal("AGENT_NAME", &agent.owner.name)];
    env.extend(text(|config| config.description.as_ref()).map(|text| literal("AGENT_DESCRIPTION", text)));
    env.extend(text(|config| config.instructions.as_ref()).map(|text| literal("AGENT_INSTRUCTIONS", text)));
    env
}

fn with_what(agent: &ValidAgent<'_>, config: &Config) -> Vec<EnvVar> {
    let address = |kind: Kind, name: &str, port: u16| {
        let host = kind.host(name, &agent.owner.namespace, &config.cluster_domain);
        format!("http://{host}:{port}")
    };
    let own = agent.agent.spec.config.as_ref();
    let model_api = address(Kind::ModelApi, agent.model_api, agent.model_api_port);
    let mut env = vec![literal("MODEL_API_URL", &model_api)];
    env.extend(agent.model.map(|model| literal(MODEL_NAME, model)));
    env.extend(agent_loop(agent.max_steps, own));
    env.extend(
        own.and_then(|own| own.memory.as_ref())
            .map(memory)
            .unwrap_or_default(),
    );
    env.push(literal("AGENT_DEBUG_MEMORY_ENDPOINTS", "true"));
    if !agent.mcp_servers.is_empty() {
        env.push(literal("MCP_SERVERS", &agent.mcp_servers.join(",")));
        env.extend(agent.mcp_servers.iter().map(|name| {
            let address = address(Kind::McpServer, name, names::PORT);
            literal(format!("MCP_SERVER_{name}_URL"), &address)
        }));
    }
    if !agent.peers.is_empty() {
        env.push(literal("PEER_AGENTS", &agent.peers.join(",")));
        env.extend(agent.peers.iter().map(|name| {
            let upper = name.to_ascii_uppercase().replace('-', "_");
            let address = address(Kind::Agent, name, names::PORT);
            literal(format!("PEER_AGENT_{upper}_CARD_URL"), &address)
        }));
    }
    env.extend(telemetry::env(agent.telemetry, agent.owner));
    env.push(literal("LOG_LEVEL", &config.log_level));
    env
}

fn agent_loop(max_steps: Option<i32>, config: Option<&AgentConfig>) -> Vec<EnvVar> {
    let older = config.and_then(|config| config.agentic_loop.as_ref());
    let switch = |name: &str, value: Option<bool>| value.map(|value| literal(name, &value.to_string()));
    [
        max_steps.map(|steps| literal("AGENTIC_LOOP_MAX_STEPS", &steps.to_string())),
        switch(
            "AGENTIC_LOOP_ENABLE_TOOLS",
            older.and_then(|older| older.enable_tools),
        ),
        switch(
            "AGENTIC_LOOP_ENABLE_DELEGATION",
            older.and_then(|older| older.enable_delegation),
        ),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn memory(memory: &AgentMemory) -> Vec<EnvVar> {
    let MemoryType::Local = memory.type_;
    vec![
        literal("MEMORY_ENABLED", &memory.enabled.to_string()),
        literal("MEMORY_TYPE", "local"),
        literal("MEMORY_CONTEXT_LIMIT", &memory.context_limit.to_string()),
        literal("MEMORY_MAX_SESSIONS", &memory.max_sessions.to_string()),
        literal(
            "MEMORY_MAX_SESSION_EVENTS",
            &memory.max_session_events.to_string(),
        ),
    ]
}
