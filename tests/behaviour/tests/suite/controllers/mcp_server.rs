//! MCPServer: tools of a runtime.

use std::sync::Arc;

use kaos_controllers::ConfigMapRef;
use kaos_mcp::server::{self, ToolServerConfig};
use kaos_seams::{FixedDialer, Seams};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::world::{World, condition, container, env, is_current, message};

#[tokio::test]
async fn it_becomes_a_deployment_and_a_service() {
    let world = World::start().await;
    world
        .spec(
            "mcpservers",
            "calc",
            json!({
                "runtime": "python-string",
                "params": "def f(): ...",
                "container": {"env": [{"name": "MINE", "value": "1"}]},
            }),
        )
        .await;
    let ready = world.ready("mcpservers", "calc").await;
    let endpoint = format!(
        "http://mcpserver-calc.{}.svc.cluster.local:8000",
        world.api.namespace
    );
    assert_eq!(ready["status"]["endpoint"], endpoint);

    let deployment = world.get("deployments", "mcpserver-calc").await.unwrap();
    let container = container(&deployment);
    assert_eq!(container["name"], "mcp-server");
    assert_eq!(container["image"], "example.com/tools:1");
    assert_eq!(container["args"], json!(["serve", "tools"]));
    for probe in ["startupProbe", "readinessProbe", "livenessProbe"] {
        assert!(
            container[probe]["tcpSocket"]["port"] == 8000 || container[probe]["tcpSocket"]["port"] == "http"
        );
    }
    let mut found = env(&deployment);
    // The names by which the server may be asked.
    found.retain(|variable| !variable.starts_with("KAOS_ALLOWED_HOSTS="));
    assert_eq!(
        found,
        ["MCP_TOOLS_STRING=def f(): ...", "MINE=1", "LOG_LEVEL=INFO"]
    );
    let service = world.get("services", "mcpserver-calc").await.unwrap();
    assert_eq!(
        service["spec"]["selector"],
        json!({"app": "mcpserver", "mcpserver": "calc"})
    );
}

#[tokio::test]
async fn a_runtime_without_parameters_has_its_own_command() {
    let world = World::start_without_node().await;
    world.spec("mcpservers", "p", json!({"runtime": "plain"})).await;
    let deployment = world.until("made", "deployments", "mcpserver-p", |_| true).await;
    assert_eq!(container(&deployment)["command"], json!(["/bin/plain"]));
    assert_eq!(container(&deployment)["args"], json!(["--port", "8000"]));
}

#[tokio::test]
async fn parameters_that_a_runtime_does_not_take_are_refused() {
    let world = World::start_without_node().await;
    world
        .spec("mcpservers", "p", json!({"runtime": "plain", "params": "x"}))
        .await;
    let failed = world.phase("mcpservers", "p", "Failed").await;
    assert!(message(&failed).contains("params"), "{failed}");
    assert!(message(&failed).contains("plain"), "{failed}");
    assert_eq!(world.names("deployments").await, [""; 0]);
}

#[tokio::test]
async fn an_unknown_runtime_is_named_with_the_known_ones() {
    let world = World::start().await;
    world
        .spec("mcpservers", "t", json!({"runtime": "ruby-string"}))
        .await;
    let failed = world.phase("mcpservers", "t", "Failed").await;
    for name in ["ruby-string", "python-string", "plain"] {
        assert!(message(&failed).contains(name), "{failed}");
    }
    assert_eq!(world.names("deployments").await, [""; 0]);

    world.spec("mcpservers", "t", json!({"runtime": "plain"})).await;
    world.ready("mcpservers", "t").await;
    // A server that ran does not hide that what is wanted now cannot be.
    world
        .spec("mcpservers", "t", json!({"runtime": "ruby-string"}))
        .await;
    world.phase("mcpservers", "t", "Failed").await;
}

#[tokio::test]
async fn changed_parameters_roll_the_pods() {
    let mut world = World::start().await;
    let spec = |source: &str| json!({"runtime": "python-string", "params": source});
    world.spec("mcpservers", "t", spec("one")).await;
    world.ready("mcpservers", "t").await;
    world.stop_node();
    world.spec("mcpservers", "t", spec("two")).await;
    let rolling = world.until("seen", "mcpservers", "t", is_current).await;
    assert_eq!(rolling["status"]["ready"], false, "{rolling}");
    let deployment = world.get("deployments", "mcpserver-t").await.unwrap();
    assert!(env(&deployment).contains(&"MCP_TOOLS_STRING=two".to_owned()));
    world.start_node();
    world.ready("mcpservers", "t").await;
}

#[tokio::test]
async fn its_tools_are_those_that_the_running_server_lists() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut world = World::start_with_dialer(|namespace| {
        let host = format!("mcpserver-t.{namespace}.svc.cluster.local");
        Arc::new(FixedDialer::default().with(&host, 8000, address))
    })
    .await;
    world.start_node();
    let stop = CancellationToken::new();
    let serve = |source: &str, listener: TcpListener, stop: &CancellationToken| {
        let config = ToolServerConfig::new(source);
        tokio::spawn(server::serve(config, listener, Seams::system(), stop.clone()))
    };
    let source = "def add(a: int, b: int) -> int:\n    \"\"\"Add.\"\"\"\n    return a + b\n";
    let running = serve(source, listener, &stop);

    let spec = |source: &str| json!({"runtime": "python-string", "params": source});
    world.spec("mcpservers", "t", spec(source)).await;
    world.ready("mcpservers", "t").await;
    world
        .until("add is listed", "mcpservers", "t", |object| {
            object["status"]["availableTools"] == json!(["add"])
        })
        .await;

    // Another source, another server, at the same address.
    stop.cancel();
    running.await.unwrap().unwrap();
    let stop = CancellationToken::new();
    let other = "def multiply(a: int, b: int) -> int:\n    \"\"\"Multiply.\"\"\"\n    return a * b\n";
    let listener = TcpListener::bind(address).await.unwrap();
    let running = serve(other, listener, &stop);
    world.spec("mcpservers", "t", spec(other)).await;
    world
        .until("multiply is listed", "mcpservers", "t", |object| {
            is_current(object) && object["status"]["availableTools"] == json!(["multiply"])
        })
        .await;

    // Nobody answers after the next rollout: what was listed stays, and it is said that it may be old.
    stop.cancel();
    running.await.unwrap().unwrap();
    world.spec("mcpservers", "t", spec("def third(): ...")).await;
    let stale = world
        .until("the listing fails", "mcpservers", "t", |object| {
            is_current(object) && condition(object, "ToolsListed")["status"] == "False"
        })
        .await;
    assert_eq!(stale["status"]["availableTools"], json!(["multiply"]));
    assert_eq!(condition(&stale, "Ready")["status"], "True");
}

/// A world whose controllers read the runtimes of a ConfigMap in its namespace, with pods that become ready.
async fn world_with_registry() -> World {
    let mut world = World::start_with_config(|namespace, config| {
        config.runtimes_from = Some(ConfigMapRef {
            namespace: namespace.to_owned(),
            name: "kaos-mcp-runtimes".to_owned(),
        });
    })
    .await;
    world.start_node();
    world
}

async fn registry(world: &World, text: &str) {
    let data = json!({"data": {"runtimes.yaml": text}});
    world.apply("configmaps", "kaos-mcp-runtimes", data).await;
}

async fn image(world: &World, name: &str, image: &str) -> Value {
    let is = |deployment: &Value| container(deployment)["image"] == image;
    world.until(image, "deployments", name, is).await
}

#[tokio::test]
async fn a_change_of_the_registry_reaches_the_pods_that_use_the_entry_and_no_others() {
    let world = world_with_registry().await;
    registry(
        &world,
        "runtimes:\n  one: {image: one:1, args: [--port, '8000']}\n  two: {image: two:1}\n",
    )
    .await;
    for runtime in ["one", "two", "plain"] {
        world
            .spec("mcpservers", runtime, json!({"runtime": runtime}))
            .await;
        world.ready("mcpservers", runtime).await;
    }
    let deployment = image(&world, "mcpserver-one", "one:1").await;
    assert_eq!(container(&deployment)["args"], json!(["--port", "8000"]));
    // The last thing that happens to each of them.
    for runtime in ["one", "two", "plain"] {
        world
            .until("nobody answers for the tools", "mcpservers", runtime, |object| {
                let conditions = object["status"]["deployment"]["conditions"].as_array();
                let complete = |condition: &Value| condition["reason"] == "NewReplicaSetAvailable";
                condition(object, "ToolsListed")["status"] == "False"
                    && conditions.into_iter().flatten().any(complete)
            })
            .await;
    }

    world.calls().clear();
    registry(
        &world,
        "runtimes:\n  one: {image: one:2}\n  two: {image: two:1}\n  three: {image: three:1}\n",
    )
    .await;
    let deployment = image(&world, "mcpserver-one", "one:2").await;
    assert_eq!(
        container(&deployment)["args"],
        Value::Null,
        "it is the entry's no longer"
    );
    world.ready("mcpservers", "one").await;
    let mut others = world.calls().all();
    others.retain(|call| call.path.contains("mcpserver-two") || call.path.contains("mcpserver-plain"));
    assert_eq!(others, [], "they are not even looked at");
}

#[tokio::test]
async fn the_registry_wins_over_the_built_in_runtime_of_a_name_until_it_goes() {
    let world = world_with_registry().await;
    registry(&world, "runtimes: {plain: {image: ours:1}}").await;
    world.spec("mcpservers", "t", json!({"runtime": "plain"})).await;
    image(&world, "mcpserver-t", "ours:1").await;
    world.delete("configmaps", "kaos-mcp-runtimes").await;
    image(&world, "mcpserver-t", "example.com/plain:1").await;
}

#[tokio::test]
async fn a_mistake_in_the_registry_is_told_to_those_who_need_the_entry() {
    let world = world_with_registry().await;
    registry(
        &world,
        "runtimes:\n  slack:\n    image: slack:1\n    command: [--transport, http]\n  good: {image: good:1}\n",
    )
    .await;
    world
        .spec("mcpservers", "slack", json!({"runtime": "slack"}))
        .await;
    world.spec("mcpservers", "good", json!({"runtime": "good"})).await;
    world.ready("mcpservers", "good").await;
    let failed = world.phase("mcpservers", "slack", "Failed").await;
    let place = format!(
        "ConfigMap {}/kaos-mcp-runtimes, runtimes.yaml, line 4: runtime slack: command begins with",
        world.api.namespace
    );
    for part in [place.as_str(), "write it under args"] {
        assert!(message(&failed).contains(part), "{failed}");
    }
    assert_eq!(condition(&failed, "ConfigurationValid")["status"], "False");

    registry(
        &world,
        "runtimes:\n  slack:\n    image: slack:1\n    args: [--transport, http]\n  good: {image: good:1}\n",
    )
    .await;
    world.ready("mcpservers", "slack").await;
}

#[tokio::test]
async fn a_runtime_waits_for_the_variables_that_it_requires() {
    let world = world_with_registry().await;
    registry(
        &world,
        "runtimes: {slack: {image: slack:1, requiredEnv: [SLACK_BOT_TOKEN]}}",
    )
    .await;
    world.spec("mcpservers", "t", json!({"runtime": "slack"})).await;
    let failed = world.phase("mcpservers", "t", "Failed").await;
    for part in ["SLACK_BOT_TOKEN", "spec.container.env"] {
        assert!(message(&failed).contains(part), "{failed}");
    }
    assert_eq!(world.names("deployments").await, [""; 0]);
    let token =
        json!({"name": "SLACK_BOT_TOKEN", "valueFrom": {"secretKeyRef": {"name": "slack", "key": "token"}}});
    let spec = json!({"runtime": "slack", "container": {"env": [token]}});
    world.spec("mcpservers", "t", spec).await;
    world.ready("mcpservers", "t").await;
}

#[tokio::test]
async fn an_image_of_the_users_own_is_a_runtime_too() {
    let world = World::start().await;
    let spec = json!({
        "runtime": "custom",
        "serviceAccountName": "reader",
        "telemetry": {"enabled": true, "endpoint": "http://collector:4317"},
        "container": {"image": "example.com/mine:1", "args": ["--all"]},
        "podSpec": {"nodeSelector": null, "terminationGracePeriodSeconds": 7},
    });
    world.spec("mcpservers", "t", spec).await;
    let deployment = world.until("made", "deployments", "mcpserver-t", |_| true).await;
    assert_eq!(container(&deployment)["image"], "example.com/mine:1");
    assert_eq!(container(&deployment)["args"], json!(["--all"]));
    let pod = &deployment["spec"]["template"]["spec"];
    assert_eq!(pod["serviceAccountName"], "reader");
    assert_eq!(pod["terminationGracePeriodSeconds"], 7);
    let attributes = format!(
        "OTEL_RESOURCE_ATTRIBUTES=service.namespace={},kaos.resource.name=t",
        world.api.namespace
    );
    assert_eq!(
        env(&deployment),
        [
            "OTEL_SDK_DISABLED=false",
            "OTEL_SERVICE_NAME=t",
            "OTEL_EXPORTER_OTLP_ENDPOINT=http://collector:4317",
            &attributes,
            "OTEL_PYTHON_FASTAPI_EXCLUDED_URLS=/health,/ready",
            "LOG_LEVEL=INFO"
        ]
    );
}

#[tokio::test]
async fn the_older_forms_are_served() {
    let world = World::start().await;
    let typed = |type_: &str, config: Value| json!({"type": type_, "config": config});
    let source = json!({"toolsString": "def f(): ...", "env": [{"name": "A", "value": "b"}]});
    world
        .spec("mcpservers", "source", typed("python-runtime", source))
        .await;
    let package = json!({"tools": {"fromPackage": "my-server==1.2"}});
    world
        .spec("mcpservers", "package", typed("python-runtime", package))
        .await;
    world
        .spec(
            "mcpservers",
            "node",
            typed("node-runtime", json!({"mcp": "@a/server"})),
        )
        .await;
    for name in ["source", "package", "node"] {
        world.ready("mcpservers", name).await;
    }

    let deployment = world.get("deployments", "mcpserver-source").await.unwrap();
    assert_eq!(
        env(&deployment),
        ["MCP_TOOLS_STRING=def f(): ...", "A=b", "LOG_LEVEL=INFO"]
    );
    let deployment = world.get("deployments", "mcpserver-package").await.unwrap();
    assert_eq!(
        container(&deployment)["command"],
        json!([
            "kaos",
            "serve",
            "bridge",
            "--",
            "uvx",
            "--from",
            "my-server==1.2",
            "my-server"
        ])
    );
    let deployment = world.get("deployments", "mcpserver-node").await.unwrap();
    assert_eq!(
        container(&deployment)["command"],
        json!(["kaos", "serve", "bridge", "--", "npx", "--yes", "--", "@a/server"])
    );
}

#[tokio::test]
async fn a_newer_spelling_wins_and_the_status_says_so() {
    let world = World::start().await;
    let spec = json!({
        "runtime": "python-string", "params": "newer",
        "type": "python-runtime", "config": {"toolsString": "older"},
    });
    world.spec("mcpservers", "t", spec).await;
    let ready = world.ready("mcpservers", "t").await;
    let deployment = world.get("deployments", "mcpserver-t").await.unwrap();
    assert_eq!(env(&deployment), ["MCP_TOOLS_STRING=newer", "LOG_LEVEL=INFO"]);
    let valid = condition(&ready, "ConfigurationValid");
    assert_eq!(
        (&valid["status"], &valid["reason"]),
        (&json!("True"), &json!("OlderSpelling"))
    );
    for part in ["spec.type", "spec.config.toolsString"] {
        assert!(valid["message"].as_str().unwrap().contains(part), "{valid}");
    }
}

#[tokio::test]
async fn what_was_said_of_the_tools_outlives_the_program_where_the_spec_is_refused() {
    let mut world = World::start().await;
    world
        .spec("mcpservers", "tools", json!({"runtime": "plain"}))
        .await;
    let asked = |server: &Value| condition(server, "ToolsListed")["status"] == "False";
    world.until("asked", "mcpservers", "tools", asked).await;
    for runtime in ["nonsense", "more-nonsense"] {
        world
            .spec("mcpservers", "tools", json!({"runtime": runtime}))
            .await;
        let failed = world.phase("mcpservers", "tools", "Failed").await;
        let said = condition(&failed, "ToolsListed");
        assert_eq!(said["reason"], "ListingFailed", "{runtime}: {failed}");
        world.restart_controllers().await;
    }
}
