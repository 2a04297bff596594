//! Agent: waits for what it uses, and follows it.

use serde_json::{Value, json};

use super::world::{World, condition, container, env, message, mock};

fn agent(servers: &[&str]) -> Value {
    json!({"modelAPI": "models", "model": "m", "mcpServers": servers})
}

#[tokio::test]
async fn it_is_told_where_its_model_and_its_tools_are() {
    let world = World::start().await;
    world.mock_models().await;
    for name in ["z-tools", "a-tools"] {
        world.spec("mcpservers", name, json!({"runtime": "plain"})).await;
        world.ready("mcpservers", name).await;
    }
    let mut spec = agent(&["z-tools", "a-tools"]);
    spec["config"] = json!({"description": "Adds", "instructions": "Be exact.", "reasoningLoopMaxSteps": 7});
    spec["container"]["env"] = json!([{"name": "MINE", "value": "1"}]);
    world.spec("agents", "sam", spec).await;
    let ready = world.ready("agents", "sam").await;

    let host = |service: &str| format!("http://{service}.{}.svc.cluster.local:8000", world.api.namespace);
    assert_eq!(ready["status"]["endpoint"], host("agent-sam"));
    assert_eq!(ready["status"]["linkedResources"]["modelapi"], "models");
    let linked = ready["status"]["linkedResources"].to_string();
    assert!(
        linked.contains("a-tools") && linked.contains("z-tools"),
        "{linked}"
    );

    let deployment = world.get("deployments", "agent-sam").await.unwrap();
    assert_eq!(
        env(&deployment),
        [
            "AGENT_NAME=sam".to_owned(),
            "AGENT_DESCRIPTION=Adds".to_owned(),
            "AGENT_INSTRUCTIONS=Be exact.".to_owned(),
            "MINE=1".to_owned(),
            format!("MODEL_API_URL={}", host("modelapi-models")),
            "MODEL_NAME=m".to_owned(),
            "AGENTIC_LOOP_MAX_STEPS=7".to_owned(),
            "AGENT_DEBUG_MEMORY_ENDPOINTS=true".to_owned(),
            "MCP_SERVERS=a-tools,z-tools".to_owned(),
            format!("MCP_SERVER_a-tools_URL={}", host("mcpserver-a-tools")),
            format!("MCP_SERVER_z-tools_URL={}", host("mcpserver-z-tools")),
            "LOG_LEVEL=INFO".to_owned(),
        ]
    );
    let container = container(&deployment);
    assert_eq!(container["name"], "agent");
    assert_eq!(container["args"], json!(["serve", "agent"]));
    assert_eq!(container["readinessProbe"]["httpGet"]["path"], "/ready");
    assert_eq!(container["livenessProbe"]["httpGet"]["path"], "/health");
    let service = world.get("services", "agent-sam").await.unwrap();
    assert_eq!(
        service["spec"]["selector"],
        json!({"app": "agent", "agent": "sam"})
    );
}

#[tokio::test]
async fn it_waits_for_what_is_missing_and_goes_on_when_it_arrives() {
    let mut world = World::start_without_node().await;
    world.spec("agents", "sam", agent(&["tools"])).await;
    // Nobody but the user can change that it is not there.
    let missing = world.phase("agents", "sam", "Failed").await;
    assert!(message(&missing).contains("ModelAPI"), "{missing}");
    assert!(message(&missing).contains("\"models\""), "{missing}");
    assert!(
        message(&missing).contains("MCPServer tools"),
        "all that is missing is told at once: {missing}"
    );

    world.spec("modelapis", "models", mock(&["m"])).await;
    let told =
        |object: &Value| message(object).starts_with("ModelAPI is not ready. Failed to resolve MCPServer");
    let missing = world.until("misses its MCPServer", "agents", "sam", told).await;
    assert_eq!(missing["status"]["phase"], "Failed", "{missing}");
    world
        .spec("mcpservers", "tools", json!({"runtime": "plain"}))
        .await;
    let waiting = world.phase("agents", "sam", "Waiting").await;
    assert_eq!(
        message(&waiting),
        "ModelAPI is not ready. MCPServer tools is not ready"
    );
    assert_eq!(world.get("deployments", "agent-sam").await, None);

    world.start_node();
    world.ready("agents", "sam").await;
}

#[tokio::test]
async fn where_it_shall_not_wait_it_is_ready_with_its_pods_and_tells_what_it_lacks() {
    let world = World::start().await;
    world.mock_models().await;
    world
        .spec("mcpservers", "tools", json!({"runtime": "nonsense"}))
        .await;
    world.phase("mcpservers", "tools", "Failed").await;
    let mut spec = agent(&["tools"]);
    spec["waitForDependencies"] = json!(false);
    spec["agentNetwork"] = json!({"access": ["nobody"]});
    world.spec("agents", "sam", spec.clone()).await;
    let ready = world.ready("agents", "sam").await;
    for (lacks, message) in [
        ("DependenciesReady", "MCPServer tools"),
        ("PeersReady", "Agent nobody"),
    ] {
        let condition = condition(&ready, lacks);
        assert_eq!(condition["status"], "False", "{ready}");
        assert!(condition["message"].to_string().contains(message), "{condition}");
    }
    spec["waitForDependencies"] = json!(true);
    world.spec("agents", "sam", spec).await;
    world.phase("agents", "sam", "Waiting").await;
}

#[tokio::test]
async fn pods_that_run_follow_their_spec_while_it_waits() {
    let world = World::start().await;
    world.mock_models().await;
    world
        .spec("mcpservers", "tools", json!({"runtime": "plain"}))
        .await;
    world.spec("agents", "sam", agent(&["tools"])).await;
    world.ready("agents", "sam").await;
    world
        .spec("mcpservers", "tools", json!({"runtime": "nonsense"}))
        .await;
    world.phase("agents", "sam", "Waiting").await;

    let mut changed = agent(&["tools"]);
    changed["replicas"] = json!(2);
    changed["container"] = json!({"env": [{"name": "NEW", "value": "1"}]});
    world.spec("agents", "sam", changed).await;
    let follows = |deployment: &Value| {
        deployment["spec"]["replicas"] == 2 && env(deployment).contains(&"NEW=1".to_owned())
    };
    world.until("follows", "deployments", "agent-sam", follows).await;
    let stray = json!({"spec": {"selector": {"agent": "other"}}});
    world.merge("services", "agent-sam", stray).await;
    let healed = |service: &Value| service["spec"]["selector"]["agent"] == "sam";
    world.until("healed", "services", "agent-sam", healed).await;
    world.phase("agents", "sam", "Waiting").await;

    world.spec("agents", "late", agent(&["tools"])).await;
    world.phase("agents", "late", "Waiting").await;
    assert_eq!(world.get("deployments", "agent-late").await, None);
}

#[tokio::test]
async fn replicas_that_the_spec_no_longer_gives_stay_as_they_are() {
    let world = World::start().await;
    world.mock_models().await;
    let mut three = agent(&[]);
    three["replicas"] = json!(3);
    world.spec("agents", "sam", three).await;
    world.ready("agents", "sam").await;
    // With a change of the template, so that the Deployment is known to have been applied.
    let mut unsaid = agent(&[]);
    unsaid["container"] = json!({"env": [{"name": "NEW", "value": "1"}]});
    world.spec("agents", "sam", unsaid).await;
    let applied = |deployment: &Value| env(deployment).contains(&"NEW=1".to_owned());
    let deployment = world.until("applied", "deployments", "agent-sam", applied).await;
    assert_eq!(deployment["spec"]["replicas"], 3);
    let ready = world.ready("agents", "sam").await;
    assert_eq!(ready["status"]["replicas"], 3);
}

#[tokio::test]
async fn pods_that_claim_a_volume_leave_it_before_new_ones_come() {
    let world = World::start().await;
    world.mock_models().await;
    world.spec("agents", "sam", agent(&[])).await;
    world.ready("agents", "sam").await;
    let rolls =
        |type_: &'static str| move |deployment: &Value| deployment["spec"]["strategy"]["type"] == type_;
    world
        .until("rolls", "deployments", "agent-sam", rolls("RollingUpdate"))
        .await;
    let mut claims = agent(&[]);
    claims["podSpec"] =
        json!({"volumes": [{"name": "notes", "persistentVolumeClaim": {"claimName": "notes"}}]});
    world.spec("agents", "sam", claims).await;
    world.ready("agents", "sam").await;
    let deployment = world
        .until("waits", "deployments", "agent-sam", rolls("Recreate"))
        .await;
    assert_eq!(deployment["spec"]["strategy"], json!({"type": "Recreate"}));
    world.spec("agents", "sam", agent(&[])).await;
    world
        .until("rolls again", "deployments", "agent-sam", rolls("RollingUpdate"))
        .await;
}

#[tokio::test]
async fn a_model_that_is_not_served_is_named_and_may_arrive() {
    let world = World::start().await;
    world.mock_models().await;
    world
        .spec("agents", "sam", json!({"modelAPI": "models", "model": "gpt/4"}))
        .await;
    let failed = world.phase("agents", "sam", "Failed").await;
    for part in ["\"gpt/4\"", "\"models\"", "m"] {
        assert!(message(&failed).contains(part), "{failed}");
    }
    assert_eq!(world.get("deployments", "agent-sam").await, None);

    world.spec("modelapis", "models", mock(&["m", "gpt/*"])).await;
    world.ready("agents", "sam").await;
    // What is taken away again is missed, though the pods still run.
    world.spec("modelapis", "models", mock(&["m"])).await;
    world.phase("agents", "sam", "Failed").await;
}

#[tokio::test]
async fn it_is_not_ready_while_what_it_uses_is_not() {
    let mut world = World::start().await;
    world.mock_models().await;
    world.spec("agents", "sam", agent(&[])).await;
    world.ready("agents", "sam").await;
    world.stop_node();
    world.spec("modelapis", "models", mock(&["m", "n"])).await;
    let waiting = world.phase("agents", "sam", "Waiting").await;
    assert_eq!(condition(&waiting, "Ready")["status"], "False", "{waiting}");
    assert!(
        world.get("deployments", "agent-sam").await.is_some(),
        "its pods are left running"
    );
    world.start_node();
    world.ready("agents", "sam").await;
}

#[tokio::test]
async fn without_expose_it_has_no_service_and_no_endpoint() {
    let world = World::start().await;
    world.mock_models().await;
    world.spec("agents", "sam", agent(&[])).await;
    world.ready("agents", "sam").await;
    world.until("made", "services", "agent-sam", |_| true).await;

    let mut hidden = agent(&[]);
    hidden["agentNetwork"] = json!({"expose": false});
    world.spec("agents", "sam", hidden).await;
    world.until_gone("services", "agent-sam").await;
    let ready = world.ready("agents", "sam").await;
    assert_eq!(ready["status"]["endpoint"], Value::Null);

    world.spec("agents", "sam", agent(&[])).await;
    world.until("made again", "services", "agent-sam", |_| true).await;
    world
        .until("has an endpoint", "agents", "sam", |object| {
            object["status"]["endpoint"].is_string()
        })
        .await;
}

#[tokio::test]
async fn it_is_hidden_at_once_whatever_else_is_wrong_with_it() {
    let world = World::start().await;
    world.mock_models().await;
    world.spec("agents", "sam", agent(&[])).await;
    world.ready("agents", "sam").await;
    let mut hidden = agent(&["missing"]);
    hidden["agentNetwork"] = json!({"expose": false});
    world.spec("agents", "sam", hidden).await;
    world.until_gone("services", "agent-sam").await;
    let failed = world.phase("agents", "sam", "Failed").await;
    assert_eq!(failed["status"]["endpoint"], Value::Null);
}

#[tokio::test]
async fn a_reference_that_is_removed_leaves_the_pods_and_the_status() {
    let world = World::start().await;
    world.mock_models().await;
    world
        .spec("mcpservers", "tools", json!({"runtime": "plain"}))
        .await;
    world.spec("agents", "sam", agent(&["tools"])).await;
    world.ready("agents", "sam").await;
    world.spec("agents", "sam", agent(&[])).await;
    let ready = world.ready("agents", "sam").await;
    let linked = ready["status"]["linkedResources"].to_string();
    assert!(!linked.contains("tools"), "{linked}");
    let deployment = world.get("deployments", "agent-sam").await.unwrap();
    let found = env(&deployment);
    assert!(
        found.iter().all(|variable| !variable.starts_with("MCP_SERVER")),
        "{found:?}"
    );
    // What it does not use does not hold it back.
    world.delete("mcpservers", "tools").await;
    world.until_gone("mcpservers", "tools").await;
    world.ready("agents", "sam").await;
}

#[tokio::test]
async fn variables_of_the_user_win_and_none_is_there_twice() {
    let world = World::start_without_node().await;
    world.spec("modelapis", "models", mock(&["m"])).await;
    let mut spec = agent(&[]);
    spec["waitForDependencies"] = json!(false);
    spec["container"]["env"] = json!([
        {"name": "LOG_LEVEL", "value": "DEBUG"},
        {"name": "AGENT_NAME", "value": "other"},
        {"name": "MODEL_API_URL", "value": "http://elsewhere"},
    ]);
    world.spec("agents", "sam", spec).await;
    let deployment = world.until("made", "deployments", "agent-sam", |_| true).await;
    let mut found = env(&deployment);
    found.sort();
    assert_eq!(
        found,
        [
            "AGENT_DEBUG_MEMORY_ENDPOINTS=true",
            "AGENT_NAME=other",
            "LOG_LEVEL=DEBUG",
            "MODEL_API_URL=http://elsewhere",
            "MODEL_NAME=m"
        ]
    );
}

#[tokio::test]
async fn a_service_of_somebody_else_is_reported_and_left_alone() {
    let world = World::start().await;
    world.mock_models().await;
    let foreign =
        json!({"spec": {"ports": [{"port": 1234, "protocol": "TCP"}], "selector": {"app": "theirs"}}});
    world.apply("services", "agent-sam", foreign).await;
    world.spec("agents", "sam", agent(&[])).await;
    let failed = world.phase("agents", "sam", "Failed").await;
    assert!(message(&failed).contains("Service agent-sam"), "{failed}");
    let service = world.get("services", "agent-sam").await.unwrap();
    assert_eq!(service["spec"]["selector"], json!({"app": "theirs"}));
    world.delete("services", "agent-sam").await;
    world.ready("agents", "sam").await;
}
