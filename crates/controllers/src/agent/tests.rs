//! Manifests in, objects out.

use std::sync::Arc;

use kaos_api::{
    names::Kind,
    v1alpha1::{Agent, MCPServer, MCPServerStatus, ModelAPI, ModelAPIStatus, Phase},
};

use super::{Agents, Peer, peers, resolve::Resolved};
use crate::{
    common::{
        driver::Workload,
        plan::Plan,
        testing::{config, gateway, owner, stored, yaml},
    },
    config::Config,
};

fn model_api(ready: bool) -> ModelAPI {
    let mut model_api: ModelAPI = stored(
        "models",
        "{mode: Proxy, proxyConfig: {models: [smart, openai/*], provider: openai}}",
    );
    model_api.status = Some(ModelAPIStatus {
        ready,
        observed_generation: Some(1),
        ..ModelAPIStatus::default()
    });
    model_api
}

fn server(name: &str, ready: bool) -> (String, Option<Arc<MCPServer>>) {
    let mut server: MCPServer = stored(name, "runtime: plain");
    server.status = Some(MCPServerStatus {
        ready,
        observed_generation: Some(1),
        ..MCPServerStatus::default()
    });
    (name.to_owned(), Some(server.into()))
}

fn resolved() -> Resolved {
    Resolved {
        model_api: Some(model_api(true).into()),
        mcp_servers: vec![server("a-tools", true), server("z", true)],
        peers: Vec::new(),
    }
}

fn nothing_but_models() -> Resolved {
    Resolved {
        mcp_servers: Vec::new(),
        ..resolved()
    }
}

fn plan_with(spec: &str, resolved: &Resolved, config: &Config) -> Plan {
    let agent: Agent = stored("sam", spec);
    Agents::plan(&owner(Kind::Agent, "sam"), &agent, resolved, config)
}

fn plan(spec: &str, resolved: &Resolved) -> Plan {
    plan_with(spec, resolved, &config())
}

/// The variables of the container, as `NAME=value`.
fn env(plan: &Plan) -> Vec<String> {
    let deployment = &plan.objects.as_ref().unwrap().deployment;
    let containers = &deployment.spec.template.spec.as_ref().unwrap().containers;
    let variables = containers[0].env.iter().flatten();
    variables
        .map(|variable| {
            format!(
                "{}={}",
                variable.name,
                variable.value.as_deref().unwrap_or_default()
            )
        })
        .collect()
}

#[test]
fn everything_given() {
    let spec = "
modelAPI: models
model: smart
mcpServers: [z, a-tools]
agentNetwork: {access: [writer, fact-checker]}
replicas: 3
config:
  description: Adds
  instructions: |
    Pay $(nobody).
    Be exact.
  reasoningLoopMaxSteps: 7
  agenticLoop: {enableTools: true, enableDelegation: false}
  memory: {contextLimit: 3}
  telemetry: {enabled: true, endpoint: 'http://collector:4317'}
container:
  image: mine:2
  args: [run]
  resources: {limits: {memory: 64Mi}}
  env:
    - {name: MINE, value: '1'}
    - {name: WHERE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
podSpec:
  nodeSelector: {disk: fast}
  containers:
    - {name: agent, securityContext: {readOnlyRootFilesystem: true}}
    - {name: sidecar, image: side:1}
gatewayRoute: {timeout: 10m}
";
    let peers = ["fact-checker", "writer"].map(|name| (name.to_owned(), Peer::Missing));
    let resolved = Resolved {
        peers: peers.to_vec(),
        ..resolved()
    };
    let config = Config {
        gateway: Some(gateway()),
        ..config()
    };
    let plan = plan_with(spec, &resolved, &config);
    assert_eq!((plan.lacks, plan.notes), (None, Vec::new()));
    insta::assert_snapshot!(yaml(&plan.objects.unwrap()));
}

#[test]
fn as_little_as_possible_and_not_exposed() {
    let spec = "{modelAPI: models, model: smart, agentNetwork: {expose: false}}";
    let config = Config {
        gateway: Some(gateway()),
        ..config()
    };
    let plan = plan_with(spec, &nothing_but_models(), &config);
    assert_eq!((plan.keep.services, plan.keep.routes), (false, false));
    insta::assert_snapshot!(yaml(&plan.objects.unwrap()));
}

/// The image, and the arguments that it is given.
fn runs(container: &str) -> (String, Option<Vec<String>>) {
    let spec = format!("{{modelAPI: models, model: smart, container: {container}}}");
    let deployment = plan(&spec, &nothing_but_models()).objects.unwrap().deployment;
    let mut containers = deployment.spec.template.spec.unwrap().containers;
    let container = containers.remove(0);
    (container.image.unwrap(), container.args)
}

#[test]
fn an_image_of_the_users_runs_as_it_is() {
    let words = |words: &[&str]| Some(words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>());
    for (container, image, args) in [
        ("{}", "kaos:1", words(&["serve", "agent"])),
        ("{image: 'mine:2'}", "mine:2", None),
        ("{image: 'mine:2', args: [run]}", "mine:2", words(&["run"])),
        ("{args: [run]}", "kaos:1", words(&["run"])),
        ("{command: [/kaos]}", "kaos:1", words(&["serve", "agent"])),
    ] {
        assert_eq!(runs(container), (image.to_owned(), args), "{container}");
    }
}

#[test]
fn a_hosted_model_is_asked_at_its_own_port() {
    let hosted: ModelAPI = stored("models", "{mode: Hosted, hostedConfig: {model: 'smollm2:135m'}}");
    let resolved = Resolved {
        model_api: Some(hosted.into()),
        ..Resolved::default()
    };
    let found = env(&plan("{modelAPI: models, waitForDependencies: false}", &resolved));
    assert_eq!(
        found[1..3],
        [
            "MODEL_API_URL=http://modelapi-models.team.svc.cluster.local:11434",
            "MODEL_NAME=smollm2:135m"
        ]
    );
}

#[test]
fn the_older_spellings_count_where_there_is_no_newer_one() {
    let spec = "
modelAPI: models
config:
  agenticLoop: {maxSteps: 9}
  env: [{name: MODEL_NAME, value: openai/x}, {name: A, value: '1'}]
";
    let older = plan(spec, &nothing_but_models());
    assert_eq!(older.notes, []);
    assert_eq!(
        env(&older)[1..],
        [
            "MODEL_NAME=openai/x",
            "A=1",
            "MODEL_API_URL=http://modelapi-models.team.svc.cluster.local:8000",
            "AGENTIC_LOOP_MAX_STEPS=9",
            "AGENT_DEBUG_MEMORY_ENDPOINTS=true",
            "LOG_LEVEL=INFO"
        ]
    );

    let both = format!(
        "{}\n  reasoningLoopMaxSteps: 4\nmodel: smart\ncontainer: {{env: [{{name: A, value: '2'}}]}}",
        spec.trim_end()
    );
    let both = plan(&both, &nothing_but_models());
    let found = env(&both);
    assert!(
        found.contains(&"AGENTIC_LOOP_MAX_STEPS=4".to_owned()),
        "{found:?}"
    );
    assert!(
        found.contains(&"A=2".to_owned()) && !found.contains(&"A=1".to_owned()),
        "{found:?}"
    );
    assert_eq!(both.notes.len(), 3, "{:?}", both.notes);
}

#[test]
fn peers_hold_back_readiness_and_nothing_else() {
    let resolved = Resolved {
        peers: vec![
            ("a".to_owned(), Peer::Missing),
            ("b".to_owned(), Peer::NotReady),
            ("c".to_owned(), Peer::Ready),
            ("d".to_owned(), Peer::Unexposed),
        ],
        ..nothing_but_models()
    };
    let plan = plan(
        "{modelAPI: models, model: smart, agentNetwork: {access: [a, b, c, d]}}",
        &resolved,
    );
    assert_eq!(plan.lacks, None);
    let found = env(&plan);
    assert!(found.contains(&"PEER_AGENTS=a,b,c,d".to_owned()), "{found:?}");
    let standing = peers::standing(&resolved.peers).unwrap();
    assert_eq!(standing.phase, Phase::Waiting);
}

#[test]
fn what_it_waits_for_and_fails_with() {
    type Change = fn(&mut Resolved);
    let cases: [(&str, &str, Change, Phase, &str); 7] = [
        (
            "no ModelAPI",
            "smart",
            |it| it.model_api = None,
            Phase::Failed,
            "Failed to resolve ModelAPI: modelapis.kaos.tools \"models\" not found; create it, or change \
             spec.modelAPI",
        ),
        (
            "a ModelAPI that is not ready",
            "smart",
            |it| it.model_api = Some(model_api(false).into()),
            Phase::Waiting,
            "ModelAPI is not ready",
        ),
        (
            "a ModelAPI that was ready before its spec changed",
            "smart",
            |it| {
                let mut changed = model_api(true);
                changed.metadata.generation = Some(2);
                it.model_api = Some(changed.into());
            },
            Phase::Waiting,
            "ModelAPI is not ready",
        ),
        (
            "a model that nobody serves",
            "clever",
            |_| (),
            Phase::Failed,
            "model \"clever\" not supported by ModelAPI \"models\" (supported: [smart openai/*]); change \
             spec.model, or have the ModelAPI serve it",
        ),
        (
            "no MCPServer",
            "smart",
            |it| it.mcp_servers[1].1 = None,
            Phase::Failed,
            "Failed to resolve MCPServer z: mcpservers.kaos.tools \"z\" not found; create it, or remove it from \
             spec.mcpServers",
        ),
        (
            "an MCPServer that is not ready",
            "openai/x",
            |it| it.mcp_servers[0] = server("a-tools", false),
            Phase::Waiting,
            "MCPServer a-tools is not ready",
        ),
        (
            "an MCPServer without a status",
            "openai/x",
            |it| {
                it.mcp_servers[1] = (
                    "z".to_owned(),
                    Some(stored::<MCPServer>("z", "runtime: plain").into()),
                )
            },
            Phase::Waiting,
            "MCPServer z is not ready",
        ),
    ];
    for (what, model, change, phase, message) in cases {
        let mut resolved = resolved();
        change(&mut resolved);
        let spec = |wait: bool| {
            format!(
                "{{modelAPI: models, model: {model}, mcpServers: [z, a-tools], waitForDependencies: {wait}}}"
            )
        };
        let waiting = plan(&spec(true), &resolved);
        let started = plan(&spec(false), &resolved);
        let standing = match phase {
            // Pods that are there follow their spec; without waiting there is nothing to wait for.
            Phase::Waiting => {
                assert!(waiting.objects.is_ok() && started.objects.is_ok(), "{what}");
                assert_eq!(started.lacks, None, "{what}");
                waiting.lacks.unwrap()
            }
            // What is missing is missing all the same.
            _ => {
                let standing = waiting.objects.unwrap_err();
                assert_eq!(started.objects.unwrap_err(), standing, "{what}");
                standing
            }
        };
        assert_eq!(
            (standing.phase, standing.message.as_str()),
            (phase, message),
            "{what}"
        );
    }
}
