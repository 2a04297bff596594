//! Every text that a status can say of a spec, of what it refers to and of what was made of it, in tables that can be
//! read as a whole, and that no text of the sources is missing from them. And that every field makes a difference.

mod effects;
mod live;
mod source;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use kaos_api::{
    names::Kind,
    v1alpha1::{Agent, MCPServer, ModelAPI, Phase},
};
use kube::{
    Resource,
    runtime::{
        reflector::{self, Store},
        watcher::Event,
    },
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::{
    agent::{self, Agents, resolve::References},
    common::{
        driver::Workload,
        plan::Plan,
        status::Standing,
        testing::{config, gateway, owner, stored},
    },
    config::{Config, ConfigMapRef, TelemetryDefaults},
    mcp_server::{self, McpServers},
    model_api::ModelApis,
};

const AGENT: &str = include_str!("agent.yaml");
const MODEL_API: &str = include_str!("model_api.yaml");
const MCP_SERVER: &str = include_str!("mcp_server.yaml");
const LIVE: &str = include_str!("live.yaml");

/// A resource, what there is beside it, and what it is told.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    /// What it shows.
    case: String,
    spec: Value,
    /// Of what stands beside an Agent: what does not exist.
    #[serde(default)]
    missing: Vec<String>,
    /// What is not ready.
    #[serde(default)]
    unready: Vec<String>,
    /// What was ready before its spec changed.
    #[serde(default)]
    changed: Vec<String>,
    /// Another registry than the usual one.
    #[serde(default)]
    registry: Option<String>,
    /// The operator knows no runtime of its own.
    #[serde(default)]
    without_runtimes: bool,
    /// The operator has a Gateway.
    #[serde(default)]
    gateway: bool,
    /// The operator sends telemetry unless told otherwise.
    #[serde(default)]
    telemetry: bool,
    /// Nothing where it goes on.
    #[serde(default)]
    phase: Option<Phase>,
    #[serde(default)]
    reason: Option<String>,
    #[serde(default)]
    message: Option<String>,
    /// Each as `Reason: text`.
    #[serde(default)]
    notes: Vec<String>,
    /// Of those of its kind, some or all: each as `Status Reason: message`.
    #[serde(default)]
    conditions: BTreeMap<String, String>,
}

impl Row {
    fn config(&self) -> Config {
        let mut config = config();
        config.gateway = self.gateway.then(gateway);
        if self.telemetry {
            config.telemetry = TelemetryDefaults {
                enabled: true,
                endpoint: Some("http://collector:4317".to_owned()),
            };
        }
        if self.without_runtimes {
            config.runtimes = BTreeMap::new();
        }
        config
    }

    fn subject<K: DeserializeOwned + kube::ResourceExt>(&self) -> K {
        stored("subject", &self.spec.to_string())
    }

    /// Something beside an Agent, as the row wants it.
    fn beside<K>(&self, name: &str, spec: &str) -> Option<K>
    where
        K: DeserializeOwned + kube::ResourceExt + serde::Serialize,
    {
        let is = |names: &[String]| names.iter().any(|other| other == name);
        if is(&self.missing) {
            return None;
        }
        let mut object = serde_json::to_value(stored::<K>(name, spec)).unwrap();
        object["status"] = json!({"ready": !is(&self.unready), "observedGeneration": 1});
        if is(&self.changed) {
            object["metadata"]["generation"] = json!(2);
        }
        Some(serde_json::from_value(object).unwrap())
    }

    /// What was planned, and what holds back an agent beyond that.
    fn agent(&self) -> (Plan, Option<Standing>) {
        let agent: Agent = self.subject();
        let models = "{mode: Proxy, proxyConfig: {models: [smart, openai/*], provider: openai}}";
        let others = [
            ("helper", "{modelAPI: models, model: smart}"),
            (
                "hidden",
                "{modelAPI: models, model: smart, agentNetwork: {expose: false}}",
            ),
            ("writer", "{modelAPI: models, model: smart}"),
        ];
        let references = References {
            model_apis: store(self.beside::<ModelAPI>("models", models)),
            mcp_servers: store(
                ["more", "tools"]
                    .into_iter()
                    .filter_map(|name| self.beside::<MCPServer>(name, "runtime: plain")),
            ),
            agents: store(
                others
                    .into_iter()
                    .filter_map(|(name, spec)| self.beside::<Agent>(name, spec)),
            ),
        };
        let resolved = agent::resolve::resolve(&agent, &references);
        let plan = Agents::plan(&owner(Kind::Agent, "subject"), &agent, &resolved, &self.config());
        let peers = agent::peers::standing(&resolved.peers);
        (plan, peers)
    }

    fn model_api(&self) -> (Plan, Option<Standing>) {
        let model_api: ModelAPI = self.subject();
        let owner = owner(Kind::ModelApi, "subject");
        (ModelApis::plan(&owner, &model_api, &(), &self.config()), None)
    }

    fn mcp_server(&self) -> (Plan, Option<Standing>) {
        let server: MCPServer = self.subject();
        let config = self.config();
        let place = ConfigMapRef {
            namespace: "system".to_owned(),
            name: "kaos-mcp-runtimes".to_owned(),
        };
        let registry = self.registry.as_deref().unwrap_or(REGISTRY);
        let config_map = ConfigMap {
            data: Some([("runtimes.yaml".to_owned(), registry.to_owned())].into()),
            ..ConfigMap::default()
        };
        let runtimes = mcp_server::registry::Runtimes::read(&config, Some((&place, &config_map)));
        let resolved = mcp_server::resolve::resolve(&server, &runtimes);
        let owner = owner(Kind::McpServer, "subject");
        (McpServers::plan(&owner, &server, &resolved, &config), None)
    }
}

const REGISTRY: &str = r#"runtimes:
  slack:
    image: example.com/slack:1
    args: [--port, "8000"]
    requiredEnv: [SLACK_BOT_TOKEN, SLACK_TEAM_ID]
  broken:
    image: example.com/broken:1
    transport: stdio
"#;

fn store<K>(objects: impl IntoIterator<Item = K>) -> Store<K>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    let (reader, mut writer) = reflector::store();
    for object in objects {
        writer.apply_watcher_event(&Event::Apply(object));
    }
    reader
}

fn rows(table: &str) -> Vec<Row> {
    serde_saphyr::from_str(table).unwrap()
}

fn check(table: &str, plan: impl Fn(&Row) -> (Plan, Option<Standing>)) {
    let mut wrong = Vec::new();
    for row in rows(table) {
        let (plan, more) = plan(&row);
        let standing = plan.objects.err().or(plan.lacks).or(more);
        let told = standing.map(|standing| (standing.phase, standing.reason.to_owned(), standing.message));
        let expected = row
            .phase
            .zip(row.reason)
            .zip(row.message)
            .map(|((phase, reason), message)| (phase, reason, message));
        let notes: Vec<String> = plan
            .notes
            .into_iter()
            .map(|note| format!("{}: {}", note.reason, note.text))
            .collect();
        let conditions: BTreeMap<String, String> = plan
            .conditions
            .iter()
            .filter(|(type_, _)| row.conditions.contains_key(*type_))
            .map(|(type_, observed)| ((*type_).to_owned(), live::in_words(observed)))
            .collect();
        if (&told, &notes, &conditions) != (&expected, &row.notes, &row.conditions) {
            wrong.push(format!("{}: {told:#?} {notes:#?} {conditions:#?}", row.case));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_agents_are_told() {
    check(AGENT, Row::agent);
}

#[test]
fn what_model_apis_are_told() {
    check(MODEL_API, Row::model_api);
}

#[test]
fn what_mcp_servers_are_told() {
    check(MCP_SERVER, Row::mcp_server);
}

/// The sources of these texts.
const SOURCES: [(&str, &str); 24] = [
    ("agent/mod.rs", include_str!("../agent/mod.rs")),
    ("agent/validate.rs", include_str!("../agent/validate.rs")),
    ("agent/model.rs", include_str!("../agent/model.rs")),
    ("agent/peers.rs", include_str!("../agent/peers.rs")),
    ("agent/build.rs", include_str!("../agent/build.rs")),
    ("common/driver.rs", include_str!("../common/driver.rs")),
    ("common/env.rs", include_str!("../common/env.rs")),
    ("common/failing.rs", include_str!("../common/failing.rs")),
    ("common/failure.rs", include_str!("../common/failure.rs")),
    ("common/objects.rs", include_str!("../common/objects.rs")),
    ("common/route.rs", include_str!("../common/route.rs")),
    ("common/status.rs", include_str!("../common/status.rs")),
    ("common/telemetry.rs", include_str!("../common/telemetry.rs")),
    ("mcp_server/build.rs", include_str!("../mcp_server/build.rs")),
    ("mcp_server/mod.rs", include_str!("../mcp_server/mod.rs")),
    ("mcp_server/tools.rs", include_str!("../mcp_server/tools.rs")),
    ("mcp_server/package.rs", include_str!("../mcp_server/package.rs")),
    (
        "mcp_server/validate.rs",
        include_str!("../mcp_server/validate.rs"),
    ),
    (
        "mcp_server/registry/parse.rs",
        include_str!("../mcp_server/registry/parse.rs"),
    ),
    ("model_api/given.rs", include_str!("../model_api/given.rs")),
    ("model_api/hosted.rs", include_str!("../model_api/hosted.rs")),
    ("model_api/proxy.rs", include_str!("../model_api/proxy.rs")),
    ("model_api/pulls.rs", include_str!("../model_api/pulls.rs")),
    ("model_api/validate.rs", include_str!("../model_api/validate.rs")),
];

/// What no status says, and why.
const NEVER_TOLD: [(&str, &str); 6] = [
    (
        "the configuration of spec.proxyConfig cannot be written",
        "the YAML of texts alone can always be written",
    ),
    (
        "the resource has no uid or no namespace",
        "every resource that is stored has both",
    ),
    (
        "its objects cannot be applied",
        "the others are no failures that pass, and are told in full",
    ),
    (
        "failed to write the status",
        "it is the status that would have to say it",
    ),
    ("its tools could not be listed, trying again", "it is logged"),
    ("its pull does not tell how far it is", "it is logged"),
];

#[test]
fn no_text_of_the_sources_is_missing() {
    let told: Vec<String> = [AGENT, MODEL_API, MCP_SERVER]
        .into_iter()
        .flat_map(rows)
        .flat_map(|row| row.notes.into_iter().chain(row.message))
        .chain(live::told(LIVE))
        .collect();
    let (mut missing, mut count) = (Vec::new(), 0);
    for (file, text) in SOURCES {
        let (code, tests) = text.split_once("#[cfg(test)]\nmod tests {").unwrap_or((text, ""));
        // What a file tests itself, beside its code, can be read there.
        let own = source::texts(tests);
        for text in source::texts(code) {
            let is_never = NEVER_TOLD.iter().any(|(never, _)| text.starts_with(never));
            let fixed = source::fixed_parts(&text);
            // Names and single words stand for themselves.
            if text.split_whitespace().count() < 4 || text.contains('\n') || is_never {
                continue;
            }
            count += 1;
            let says = |told: &String| fixed.iter().all(|part| told.contains(part));
            if !told.iter().chain(&own).any(says) {
                missing.push(format!("{file}: {text}"));
            }
        }
    }
    assert!(count > 60, "only {count} texts were found");
    assert!(missing.is_empty(), "texts in no table:\n{}", missing.join("\n"));
}
