//! What the operator of KAOS in Go does wrong with MCPServers, each by the number under which the project counts it.

use kaos_controllers::ConfigMapRef;
use serde_json::{Value, json};

use super::world::{World, condition, container, env, is_current, message};

#[tokio::test]
async fn defect_03_source_from_a_secret_is_mounted_and_never_read_by_the_operator() {
    let world = World::start().await;
    let source = json!({"fromSecretKeyRef": {"name": "source", "key": "main.py"}});
    let spec = json!({"type": "python-runtime", "config": {"tools": source}});
    world.spec("mcpservers", "t", spec).await;
    world.ready("mcpservers", "t").await;
    let deployment = world.get("deployments", "mcpserver-t").await.unwrap();
    let pod = &deployment["spec"]["template"]["spec"];
    assert_eq!(pod["volumes"][0]["secret"]["secretName"], "source");
    assert_eq!(
        pod["volumes"][0]["secret"]["items"],
        json!([{"key": "main.py", "path": "tools.py"}])
    );
    let folder = container(&deployment)["volumeMounts"][0]["mountPath"]
        .as_str()
        .unwrap();
    assert!(env(&deployment).contains(&format!("MCP_TOOLS_FILE={folder}/tools.py")));
    let mut secrets = world.calls().all();
    secrets.retain(|call| call.path.contains("/secrets"));
    assert_eq!(secrets, []);
}

#[tokio::test]
async fn defect_04_a_service_and_a_deployment_that_somebody_changed_are_put_back() {
    let world = World::start().await;
    world.spec("mcpservers", "t", json!({"runtime": "plain"})).await;
    world.ready("mcpservers", "t").await;
    let service = world.get("services", "mcpserver-t").await.unwrap();

    let ports = json!([{"name": "http", "port": 9999, "targetPort": 9999}]);
    let selector = json!({"app": "other", "mcpserver": null});
    world
        .merge(
            "services",
            "mcpserver-t",
            json!({"spec": {"ports": ports, "selector": selector}}),
        )
        .await;
    world
        .until("put back", "services", "mcpserver-t", |now| {
            now["spec"]["ports"] == service["spec"]["ports"]
                && now["spec"]["selector"] == service["spec"]["selector"]
        })
        .await;

    let mut deployment = world.get("deployments", "mcpserver-t").await.unwrap();
    let containers = deployment["spec"]["template"]["spec"]["containers"].take();
    let mut other = containers.clone();
    other[0]["image"] = json!("somebody/elses:1");
    let patch = json!({"spec": {"template": {"spec": {"containers": other}}}});
    world.merge("deployments", "mcpserver-t", patch).await;
    world
        .until("put back", "deployments", "mcpserver-t", |now| {
            container(now)["image"] == containers[0]["image"]
        })
        .await;
}

#[tokio::test]
async fn defect_05_nothing_is_left_of_what_a_server_was_before() {
    let world = World::start().await;
    let package = json!({"type": "python-runtime", "config": {"tools": {"fromPackage": "my-server"}}});
    world.spec("mcpservers", "t", package).await;
    world.ready("mcpservers", "t").await;
    let current = world.get("mcpservers", "t").await.unwrap();
    assert!(current["status"]["endpoint"].is_string());
    world.spec("mcpservers", "t", json!({"runtime": "plain"})).await;
    world.ready("mcpservers", "t").await;
    let deployment = world.get("deployments", "mcpserver-t").await.unwrap();
    let pod = &deployment["spec"]["template"]["spec"];
    assert_eq!(pod["initContainers"], Value::Null);
    assert_eq!(pod["volumes"], Value::Null);
    assert_eq!(container(&deployment)["volumeMounts"], Value::Null);
    assert_eq!(container(&deployment)["command"], json!(["/bin/plain"]));
}

#[tokio::test]
async fn defect_06_a_server_that_has_failed_or_rolls_out_is_not_ready() {
    let mut world = World::start().await;
    world.spec("mcpservers", "t", json!({"runtime": "plain"})).await;
    world.ready("mcpservers", "t").await;

    // Its old pod runs on.
    world.spec("mcpservers", "t", json!({"runtime": "no-such"})).await;
    let failed = world.phase("mcpservers", "t", "Failed").await;
    assert_eq!(condition(&failed, "Ready")["status"], "False");
    assert_eq!(condition(&failed, "Stalled")["status"], "True");
    assert!(world.get("deployments", "mcpserver-t").await.is_some());

    world.stop_node();
    let broken = json!({"runtime": "plain", "container": {"image": "example.com/no-such:1"}});
    world.spec("mcpservers", "t", broken).await;
    let rolling = world
        .until("seen with its old pod", "mcpservers", "t", |object| {
            is_current(object) && object["status"]["deployment"]["readyReplicas"] == 1
        })
        .await;
    assert_eq!(rolling["status"]["ready"], false, "{rolling}");
    assert_eq!(condition(&rolling, "Ready")["status"], "False");
    assert_eq!(condition(&rolling, "Reconciling")["status"], "True");
}

#[tokio::test]
async fn defect_10_the_users_variables_win_and_no_name_is_twice() {
    let world = World::start().await;
    let variable = |name: &str| json!({"name": name, "value": "mine"});
    let spec = json!({
        "runtime": "python-string",
        "params": "generated",
        "telemetry": {"enabled": true, "endpoint": "http://collector:4317"},
        "container": {"env": [
            variable("LOG_LEVEL"), variable("MCP_TOOLS_STRING"), variable("OTEL_RESOURCE_ATTRIBUTES"),
        ]},
    });
    world.spec("mcpservers", "t", spec).await;
    let ready = world.ready("mcpservers", "t").await;
    let deployment = world.get("deployments", "mcpserver-t").await.unwrap();
    let found = env(&deployment);
    for name in ["LOG_LEVEL", "MCP_TOOLS_STRING", "OTEL_RESOURCE_ATTRIBUTES"] {
        let of_name: Vec<_> = found
            .iter()
            .filter(|found| found.starts_with(&format!("{name}=")))
            .collect();
        assert_eq!(of_name, [&format!("{name}=mine")], "{found:?}");
    }
    // What that leaves without effect is not passed over in silence.
    let valid = condition(&ready, "ConfigurationValid");
    assert_eq!(valid["reason"], "WithoutEffect");
    assert!(
        valid["message"].as_str().unwrap().contains("spec.params"),
        "{valid}"
    );
}

#[tokio::test]
async fn defect_13_of_the_config_maps_only_the_registry_and_our_own_are_watched() {
    let world = World::start_with_config(|namespace, config| {
        config.runtimes_from = Some(ConfigMapRef {
            namespace: namespace.to_owned(),
            name: "kaos-mcp-runtimes".to_owned(),
        });
    })
    .await;
    world.spec("mcpservers", "t", json!({"runtime": "plain"})).await;
    world.until("made", "deployments", "mcpserver-t", |_| true).await;
    let calls = world.calls().all();
    let of_config_maps: Vec<_> = calls
        .iter()
        .filter(|call| call.path.contains("/configmaps"))
        .collect();
    assert!(of_config_maps.len() >= 2, "{calls:?}");
    for call in of_config_maps {
        let is_narrow =
            call.path.contains("fieldSelector=metadata.name") || call.path.contains("labelSelector=");
        assert!(is_narrow, "{call:?}");
    }
}

#[tokio::test]
async fn defect_16_an_unknown_runtime_waits_for_a_change_and_the_registry_is_one() {
    let mut world = World::start_with_config(|namespace, config| {
        config.runtimes_from = Some(ConfigMapRef {
            namespace: namespace.to_owned(),
            name: "kaos-mcp-runtimes".to_owned(),
        });
    })
    .await;
    world.start_node();
    world.spec("mcpservers", "t", json!({"runtime": "mine"})).await;
    let failed = world.phase("mcpservers", "t", "Failed").await;
    assert!(
        message(&failed).starts_with("unknown runtime: mine (not found in registry); write one of "),
        "{failed}"
    );
    // Whoever comes after it is served, and it has not been tried again meanwhile.
    world.calls().clear();
    world
        .spec("mcpservers", "barrier", json!({"runtime": "plain"}))
        .await;
    world.ready("mcpservers", "barrier").await;
    let mut tries = world.calls().all();
    tries.retain(|call| call.path.contains("/mcpservers/t") || call.path.contains("mcpserver-t"));
    assert_eq!(tries, []);

    let data = json!({"data": {"runtimes.yaml": "runtimes: {mine: {image: 'mine:1'}}"}});
    world.apply("configmaps", "kaos-mcp-runtimes", data).await;
    world.ready("mcpservers", "t").await;
    // And back: the pods stay, and the status says what is wrong.
    let data = json!({"data": {"runtimes.yaml": "runtimes: {}"}});
    world.apply("configmaps", "kaos-mcp-runtimes", data).await;
    world.phase("mcpservers", "t", "Failed").await;
    assert!(world.get("deployments", "mcpserver-t").await.is_some());
}
