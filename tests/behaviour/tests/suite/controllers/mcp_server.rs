//! MCPServer: tools of a runtime.

use std::sync::Arc;

use kaos_mcp::server::{self, ToolServerConfig};
use kaos_seams::{FixedDialer, Seams};
use serde_json::json;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::world::{World, container, env, is_current, message};

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
    let _running = serve(other, listener, &stop);
    world.spec("mcpservers", "t", spec(other)).await;
    world
        .until("multiply is listed", "mcpservers", "t", |object| {
            is_current(object) && object["status"]["availableTools"] == json!(["multiply"])
        })
        .await;
    stop.cancel();
}
