//! Manifests in, objects out.

use std::sync::Arc;

use kaos_api::{
    names::Kind,
    v1alpha1::{Agent, MCPServer, MCPServerStatus, ModelAPI, ModelAPIStatus, Phase},
};

use super::{build, resolve::Resolved, validate};
use crate::common::{
    status::Standing,
    testing::{config, owner, stored, yaml},
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
    }
}

/// What is built, and what keeps it from being ready.
fn built(spec: &str, resolved: &Resolved) -> Result<(build::Objects, Option<Standing>), Standing> {
    let agent: Agent = stored("sam", spec);
    let owner = owner(Kind::Agent, "sam");
    let valid = validate::validate(&owner, &agent, resolved)?;
    Ok((build::build(&valid, &config()), valid.lacks))
}

#[test]
fn everything_given() {
    let spec = "
modelAPI: models
model: smart
mcpServers: [z, a-tools]
config:
  description: Adds
  instructions: |
    Pay $(nobody).
    Be exact.
  reasoningLoopMaxSteps: 7
container:
  env:
    - {name: MINE, value: '1'}
    - {name: WHERE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
";
    let (objects, lacks) = built(spec, &resolved()).unwrap();
    assert_eq!(lacks, None);
    insta::assert_snapshot!(yaml(&objects));
}

#[test]
fn as_little_as_possible_and_not_exposed() {
    let spec = "{modelAPI: models, model: smart, agentNetwork: {expose: false}}";
    let only_models = Resolved {
        mcp_servers: Vec::new(),
        ..resolved()
    };
    insta::assert_snapshot!(yaml(&built(spec, &only_models).unwrap().0));
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
            "Failed to resolve ModelAPI: modelapis.kaos.tools \"models\" not found",
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
            "model \"clever\" not supported by ModelAPI \"models\" (supported: [smart openai/*])",
        ),
        (
            "no MCPServer",
            "smart",
            |it| it.mcp_servers[1].1 = None,
            Phase::Failed,
            "Failed to resolve MCPServer z: mcpservers.kaos.tools \"z\" not found",
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
        let standing = built(&spec(true), &resolved).unwrap_err();
        assert_eq!(
            (standing.phase, standing.message.as_str()),
            (phase, message),
            "{what}"
        );

        // Without waiting it is built, but not ready; what is missing is missing all the same.
        let started = built(&spec(false), &resolved);
        match phase {
            Phase::Waiting => assert_eq!(started.unwrap().1, Some(standing), "{what}"),
            _ => assert_eq!(started.unwrap_err(), standing, "{what}"),
        }
    }
}
