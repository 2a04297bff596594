//! The defects of the operator of KAOS in Go, and what is wanted instead. Each test (here and in the files beside)
//! has the number of its defect:
//!
//! 1. A changed LiteLLM configuration did not reach the pods.
//! 2. `container.image`, `command`, `args` and `resources` were ignored, except for MCPServers.
//! 3. `configYaml.fromSecretKeyRef` was ignored.
//! 4. Edited Services and Deployments were not healed.
//! 5. What was toggled off stayed: Services, routes, configuration, the endpoint.
//! 6. `ready` stayed true while waiting, failed, or in a broken rollout.
//! 7. A peer that arrived later was not noticed.
//! 8. Finalizers did nothing but hold up deletion.
//! 9. Model names reached a shell, and YAML by concatenation.
//! 10. Generated variables won over the user's, and names were there twice.
//! 11. Telemetry with only an endpoint was off; a warning was lost.
//! 12. Routes were written with every pass, and their errors swallowed.
//! 13. All ConfigMaps, Services and Deployments of the cluster were kept in memory.
//! 14. Names too long or dotted failed late; variables of peers collided.
//! 15. A hosted model was pulled again by every pod, with a race.
//! 16. Mistakes of the user were retried for ever.
//! 17. Somebody else's objects were overwritten, or held everything up in silence.
//! 18. Rights were broader than what was done.

use std::collections::BTreeSet;

use kaos_testkit::Sent;
use serde_json::{Value, json};

use super::world::{World, condition, container, env, is_current, message, mock};

fn agent() -> Value {
    json!({"modelAPI": "models", "model": "m"})
}

fn with(mut spec: Value, field: &str, value: Value) -> Value {
    spec[field] = value;
    spec
}

/// A world with a ready ModelAPI and a ready Agent.
async fn with_an_agent() -> World {
    let world = World::start().await;
    world.mock_models().await;
    world.spec("agents", "sam", agent()).await;
    world.ready("agents", "sam").await;
    world
}

#[tokio::test]
async fn defect_02_image_command_arguments_and_resources_of_an_agent_take_effect() {
    let world = World::start().await;
    world.mock_models().await;
    let override_ = json!({
        "image": "example.com/mine:2", "command": ["/bin/mine"], "args": ["--fast"],
        "resources": {"requests": {"memory": "64Mi"}, "limits": {"memory": "128Mi"}},
    });
    world
        .spec("agents", "sam", with(agent(), "container", override_))
        .await;
    world.ready("agents", "sam").await;
    let deployment = world.get("deployments", "agent-sam").await.unwrap();
    let made = container(&deployment);
    assert_eq!(made["image"], "example.com/mine:2");
    assert_eq!(
        (&made["command"], &made["args"]),
        (&json!(["/bin/mine"]), &json!(["--fast"]))
    );
    assert_eq!(
        made["resources"],
        json!({"requests": {"memory": "64Mi"}, "limits": {"memory": "128Mi"}})
    );
}

#[tokio::test]
async fn defect_04_what_somebody_changes_in_a_service_or_deployment_is_changed_back() {
    let world = with_an_agent().await;
    let stray = json!({
        "metadata": {"labels": {"app": "stray"}},
        "spec": {"selector": {"agent": "other"}, "ports": [{"name": "http", "port": 9, "protocol": "TCP"}]},
    });
    world.merge("services", "agent-sam", stray).await;
    world
        .until("healed", "services", "agent-sam", |service| {
            service["spec"]["selector"]["agent"] == "sam"
                && service["metadata"]["labels"]["app"] == "agent"
                && service["spec"]["ports"]
                    .as_array()
                    .is_some_and(|ports| ports.iter().any(|port| port["port"] == 8000))
        })
        .await;
    let image = json!([
        {"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "example.com/evil:1"},
    ]);
    world.json_patch("deployments", "agent-sam", image).await;
    world
        .until("healed", "deployments", "agent-sam", |deployment| {
            container(deployment)["image"] == "example.com/kaos:1"
        })
        .await;
    // How many pods there are is for whoever scales them, as long as the spec does not say.
    world
        .merge("deployments", "agent-sam", json!({"spec": {"replicas": 2}}))
        .await;
    let scaled = world
        .until("scaled", "agents", "sam", |agent| {
            agent["status"]["replicas"] == 2
        })
        .await;
    assert_eq!(scaled["status"]["selector"], "agent=sam,app=agent");
    let deployment = world.get("deployments", "agent-sam").await.unwrap();
    assert_eq!(deployment["spec"]["replicas"], 2);
}

#[tokio::test]
async fn defect_06_ready_is_false_while_waiting_after_a_failure_and_during_a_broken_rollout() {
    let mut world = with_an_agent().await;
    world.stop_node();
    // The old pods still run.
    let broken = with(agent(), "container", json!({"image": "example.com/broken:1"}));
    world.spec("agents", "sam", broken).await;
    let pending = world.phase("agents", "sam", "Pending").await;
    assert_eq!(condition(&pending, "Ready")["status"], "False", "{pending}");
    assert_eq!(condition(&pending, "Reconciling")["status"], "True", "{pending}");

    world
        .spec("agents", "sam", with(agent(), "model", json!("other")))
        .await;
    let failed = world.phase("agents", "sam", "Failed").await;
    assert_eq!(condition(&failed, "Ready")["status"], "False", "{failed}");
    assert_eq!(condition(&failed, "Stalled")["status"], "True", "{failed}");
    assert_eq!(condition(&failed, "Reconciling"), Value::Null, "{failed}");
    assert_eq!(
        condition(&failed, "ConfigurationValid")["status"],
        "False",
        "{failed}"
    );

    world.spec("agents", "sam", agent()).await;
    world.start_node();
    let ready = world.ready("agents", "sam").await;
    for gone in ["Reconciling", "Stalled"] {
        assert_eq!(condition(&ready, gone), Value::Null, "{ready}");
    }
    for type_ in ["Ready", "ConfigurationValid", "DependenciesReady"] {
        let condition = condition(&ready, type_);
        assert_eq!(condition["status"], "True", "{ready}");
        assert_eq!(
            condition["observedGeneration"], ready["metadata"]["generation"],
            "{ready}"
        );
    }
}

#[tokio::test]
async fn defect_07_a_peer_that_arrives_or_leaves_is_noticed_and_rolls_no_pods() {
    let world = World::start().await;
    world.mock_models().await;
    let lead = with(agent(), "agentNetwork", json!({"access": ["fact-checker"]}));
    world.spec("agents", "lead", lead).await;
    let waiting = world.phase("agents", "lead", "Waiting").await;
    assert!(
        message(&waiting).contains("Agent fact-checker not found"),
        "{waiting}"
    );
    assert_eq!(
        condition(&waiting, "PeersReady")["reason"],
        "PeerNotFound",
        "{waiting}"
    );
    let before = world.get("deployments", "agent-lead").await.unwrap();
    let address = format!(
        "PEER_AGENT_FACT_CHECKER_CARD_URL=http://agent-fact-checker.{}.svc.cluster.local:8000",
        world.api.namespace
    );
    let found = env(&before);
    assert!(
        found.contains(&"PEER_AGENTS=fact-checker".to_owned()) && found.contains(&address),
        "{found:?}"
    );

    world.spec("agents", "fact-checker", agent()).await;
    let ready = world.ready("agents", "lead").await;
    assert_eq!(
        ready["status"]["linkedResources"]["agent.fact-checker"],
        "fact-checker"
    );
    let after = world.get("deployments", "agent-lead").await.unwrap();
    assert_eq!(before["metadata"]["generation"], after["metadata"]["generation"]);

    let hidden = with(agent(), "agentNetwork", json!({"expose": false}));
    world.spec("agents", "fact-checker", hidden).await;
    let waiting = world.phase("agents", "lead", "Waiting").await;
    assert!(
        message(&waiting).contains("Agent fact-checker is not exposed"),
        "{waiting}"
    );
    world.delete("agents", "fact-checker").await;
    world
        .until("misses it", "agents", "lead", |agent| {
            message(agent).contains("Agent fact-checker not found")
        })
        .await;
}

#[tokio::test]
async fn defect_07_agents_that_name_each_other_do_not_wait_for_ever() {
    let world = World::start().await;
    world.mock_models().await;
    for (name, peer) in [("a", "b"), ("b", "a")] {
        let spec = with(agent(), "agentNetwork", json!({"access": [peer]}));
        world.spec("agents", name, spec).await;
    }
    world.ready("agents", "a").await;
    world.ready("agents", "b").await;
}

#[tokio::test]
async fn defect_08_finalizers_of_the_former_operator_are_removed_and_those_of_others_stay() {
    let world = with_an_agent().await;
    let finalizers =
        json!({"metadata": {"finalizers": ["kaos.tools/agent-finalizer", "example.com/theirs"]}});
    world.merge("agents", "sam", finalizers).await;
    let kept = |agent: &Value| agent["metadata"]["finalizers"] == json!(["example.com/theirs"]);
    world.until("has only theirs", "agents", "sam", kept).await;

    // One that comes while it is being deleted is removed, too.
    world.delete("agents", "sam").await;
    world
        .merge("agents", "sam", json!({"metadata": {"finalizers": null}}))
        .await;
    world.until_gone("agents", "sam").await;
}

#[tokio::test]
async fn defect_10_the_users_variables_win_and_no_name_is_there_twice() {
    let world = World::start().await;
    world.mock_models().await;
    let mut spec = agent();
    spec["config"] = json!({"env": [{"name": "LOG_LEVEL", "value": "ERROR"}, {"name": "OLD", "value": "1"}]});
    spec["container"] = json!({"env": [
        {"name": "LOG_LEVEL", "value": "DEBUG"},
        {"name": "MODEL_API_URL", "value": "http://mine"},
    ]});
    world.spec("agents", "sam", spec).await;
    let ready = world.ready("agents", "sam").await;
    assert_eq!(
        env(&world.get("deployments", "agent-sam").await.unwrap()),
        [
            "AGENT_NAME=sam",
            "OLD=1",
            "LOG_LEVEL=DEBUG",
            "MODEL_API_URL=http://mine",
            "MODEL_NAME=m",
            "AGENT_DEBUG_MEMORY_ENDPOINTS=true",
        ]
    );
    let valid = condition(&ready, "ConfigurationValid");
    assert_eq!(
        (&valid["status"], &valid["reason"]),
        (&json!("True"), &json!("OlderSpelling"))
    );
    assert!(valid["message"].to_string().contains("LOG_LEVEL"), "{valid}");
}

#[tokio::test]
async fn defect_11_telemetry_with_an_endpoint_only_inherits_the_switch() {
    let mut world = World::start_with_config(|_, config| {
        config.telemetry.enabled = true;
        config.telemetry.endpoint = Some("http://default:4317".to_owned());
    })
    .await;
    world.start_node();
    world.mock_models().await;
    let spec = with(
        agent(),
        "config",
        json!({"telemetry": {"endpoint": "http://own:4317"}}),
    );
    world.spec("agents", "sam", spec).await;
    world.ready("agents", "sam").await;
    let found = env(&world.get("deployments", "agent-sam").await.unwrap());
    for variable in [
        "OTEL_SDK_DISABLED=false",
        "OTEL_EXPORTER_OTLP_ENDPOINT=http://own:4317",
    ] {
        assert!(found.contains(&variable.to_owned()), "{found:?}");
    }
}

#[tokio::test]
async fn defect_14_a_name_that_no_service_can_have_is_refused_and_so_is_such_a_peer() {
    let world = World::start().await;
    world.mock_models().await;
    for name in ["a.b".to_owned(), "x".repeat(58)] {
        let (code, answer) = world.try_apply("agents", &name, json!({"spec": agent()})).await;
        assert_eq!(code, 422, "{answer}");
        assert!(
            answer["message"].to_string().contains("57 characters and no dot"),
            "{answer}"
        );
    }
    let longest = "x".repeat(57);
    world.spec("agents", &longest, agent()).await;
    world.ready("agents", &longest).await;

    let lead = with(agent(), "agentNetwork", json!({"access": ["a.b"]}));
    let (code, answer) = world.try_apply("agents", "lead", json!({"spec": lead})).await;
    assert_eq!(code, 422, "{answer}");
    let told = "spec.agentNetwork.access[0]: Invalid value: \"a.b\": no Agent can have this name";
    assert!(
        answer["message"]
            .as_str()
            .is_some_and(|message| message.contains(told)),
        "{answer}"
    );
}

#[tokio::test]
async fn defect_16_an_error_of_the_user_waits_for_the_user() {
    let world = with_an_agent().await;
    world
        .spec("agents", "bad", with(agent(), "model", json!("other")))
        .await;
    world.phase("agents", "bad", "Failed").await;
    world.calls().clear();
    world.spec("agents", "barrier", agent()).await;
    world.ready("agents", "barrier").await;
    let calls = world.calls().all();
    let about: Vec<_> = calls.iter().filter(|call| call.path.contains("bad")).collect();
    assert!(about.is_empty(), "{about:#?}");
}

#[tokio::test]
async fn defect_17_a_deployment_of_somebody_else_is_reported_and_left_alone() {
    let world = World::start().await;
    world.mock_models().await;
    let labels = json!({"app": "agent", "agent": "sam"});
    let foreign = json!({"spec": {
        "selector": {"matchLabels": labels},
        "template": {
            "metadata": {"labels": labels},
            "spec": {"containers": [{"name": "theirs", "image": "example.com/theirs:1"}]},
        },
    }});
    world.apply("deployments", "agent-sam", foreign).await;
    world.spec("agents", "sam", agent()).await;
    let failed = world.phase("agents", "sam", "Failed").await;
    assert_eq!(condition(&failed, "Ready")["reason"], "NameTaken", "{failed}");
    assert!(message(&failed).contains("Deployment agent-sam"), "{failed}");
    let deployment = world.get("deployments", "agent-sam").await.unwrap();
    assert_eq!(container(&deployment)["name"], "theirs");
    assert_eq!(deployment["metadata"]["ownerReferences"], Value::Null);

    world.delete("deployments", "agent-sam").await;
    world.ready("agents", "sam").await;
}

#[tokio::test]
async fn defect_06_a_pod_spec_that_does_not_fit_is_told_and_the_pods_go_on() {
    let world = with_an_agent().await;
    let before = world.get("deployments", "agent-sam").await.unwrap();
    let patch = json!({"containers": [{"name": "agent", "$patch": "delete"}, {"name": "b", "image": "b"}]});
    world.spec("agents", "sam", with(agent(), "podSpec", patch)).await;
    let failed = world.phase("agents", "sam", "Failed").await;
    assert!(
        is_current(&failed) && message(&failed).contains("spec.podSpec.containers"),
        "{failed}"
    );
    let after = world.get("deployments", "agent-sam").await.unwrap();
    assert_eq!(before["spec"], after["spec"]);
    // A mock has other models: what was wrong of the ModelAPI is not what is wrong here.
    world.spec("modelapis", "models", mock(&["m", "n"])).await;
    world.ready("modelapis", "models").await;
    let patch = json!({"nodeSelector": {"disk": "fast"}});
    world.spec("agents", "sam", with(agent(), "podSpec", patch)).await;
    world.ready("agents", "sam").await;
    let deployment = world.get("deployments", "agent-sam").await.unwrap();
    assert_eq!(
        deployment["spec"]["template"]["spec"]["nodeSelector"],
        json!({"disk": "fast"})
    );
}

/// What the operator's user may do, as its documentation lists it: verbs, group and resource.
fn rights() -> BTreeSet<(String, String, String)> {
    let table = include_str!("../../../../../docs/operator.md");
    let mut rights = BTreeSet::new();
    for row in table
        .lines()
        .filter(|line| line.starts_with("| `") || line.starts_with("| core |"))
    {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [group, resources, verbs] = cells[..] else {
            continue;
        };
        let group = match group {
            "core" => "",
            group => group.trim_matches('`'),
        };
        let resources = resources.split('`').skip(1).step_by(2);
        for resource in resources {
            for verb in verbs.split(", ").filter(|verb| !verb.contains(' ')) {
                rights.insert((verb.to_owned(), group.to_owned(), resource.to_owned()));
            }
        }
    }
    rights
}

/// What a request needs the right to.
fn needed(call: &Sent) -> (String, String, String) {
    let (path, query) = call.path.split_once('?').unwrap_or((&call.path, ""));
    let mut parts = path.split('/').skip(1);
    let group = match parts.next() {
        Some("api") => "",
        _ => parts.next().unwrap_or_default(),
    };
    let mut rest: Vec<&str> = parts.skip(1).collect();
    if rest.first() == Some(&"namespaces") && rest.len() > 2 {
        rest.drain(..2);
    }
    let resource = match rest[..] {
        [plural, _, sub] => format!("{plural}/{sub}"),
        [plural, ..] => plural.to_owned(),
        [] => String::new(),
    };
    let verb = match (call.method.as_str(), rest.len()) {
        ("GET", 1) if query.contains("watch=true") => "watch",
        ("GET", 1) => "list",
        ("GET", _) => "get",
        ("POST", _) => "create",
        ("PUT", _) => "update",
        ("PATCH", _) => "patch",
        ("DELETE", 1) => "deletecollection",
        ("DELETE", _) => "delete",
        (other, _) => other,
    };
    (verb.to_owned(), group.to_owned(), resource)
}

#[tokio::test]
async fn defect_18_nothing_is_asked_of_the_api_server_beyond_the_documented_rights() {
    let rights = rights();
    assert!(rights.len() > 20, "{rights:?}");
    let secretive = ["secrets", "pods", "namespaces"];
    assert!(
        rights
            .iter()
            .all(|(_, _, resource)| !secretive.contains(&resource.as_str())),
        "{rights:?}"
    );

    let mut world = World::start_with_gateway().await;
    world.start_node();
    let keyed = json!({"mode": "Proxy", "proxyConfig": {
        "runtime": "LiteLLM", "provider": "openai", "models": ["m"],
        "apiKey": {"valueFrom": {"secretKeyRef": {"name": "keys", "key": "openai"}}},
    }});
    world.spec("modelapis", "models", keyed).await;
    world
        .spec(
            "modelapis",
            "hosted",
            json!({"mode": "Hosted", "hostedConfig": {"model": "m"}}),
        )
        .await;
    world
        .spec("mcpservers", "tools", json!({"runtime": "plain"}))
        .await;
    let spec = with(agent(), "mcpServers", json!(["tools"]));
    world
        .spec("agents", "sam", with(spec, "replicas", json!(2)))
        .await;
    world.ready("agents", "sam").await;
    world.ready("modelapis", "hosted").await;
    world.until("made", "httproutes", "agent-sam", |_| true).await;
    let finalizers = json!({"metadata": {"finalizers": ["kaos.tools/agent-finalizer"]}});
    world.merge("agents", "sam", finalizers).await;
    let hidden = with(agent(), "agentNetwork", json!({"expose": false}));
    world.spec("agents", "sam", hidden).await;
    world.until_gone("httproutes", "agent-sam").await;
    world.until_gone("services", "agent-sam").await;
    world.delete("agents", "sam").await;
    world.until_gone("agents", "sam").await;

    let asked: BTreeSet<_> = world
        .calls()
        .all()
        .iter()
        .map(needed)
        // Every user may ask what is served.
        .filter(|(_, _, resource)| !resource.is_empty())
        // An apply creates what is not there yet.
        .flat_map(|(verb, group, resource)| {
            let creates = verb == "patch" && group != "kaos.tools";
            let create = creates.then(|| ("create".to_owned(), group.clone(), resource.clone()));
            [(verb, group, resource)].into_iter().chain(create)
        })
        .collect();
    assert!(asked.len() > 15, "{asked:?}");
    let beyond: Vec<_> = asked.difference(&rights).collect();
    assert!(beyond.is_empty(), "{beyond:?} of {asked:#?}");
}
