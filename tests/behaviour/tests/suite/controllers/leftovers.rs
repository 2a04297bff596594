//! What the operator of KAOS in Go has left: its objects lack the label by which ours are watched.

use serde_json::{Value, json};

use super::world::{World, mock};

/// Writes an object as that operator did: by a plain update, controlled by `owner` or by nobody.
async fn leave(world: &World, plural: &str, name: &str, owner: Option<&Value>, mut object: Value) {
    let (version, kind) = match plural {
        "deployments" => ("apps/v1", "Deployment"),
        "services" => ("v1", "Service"),
        "configmaps" => ("v1", "ConfigMap"),
        other => panic!("{other} is not known here"),
    };
    object["apiVersion"] = json!(version);
    object["kind"] = json!(kind);
    object["metadata"] = json!({"name": name});
    if let Some(owner) = owner {
        object["metadata"]["ownerReferences"] = json!([{
            "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true,
        }]);
    }
    let path = format!("{}?fieldManager=manager", world.path(plural, ""));
    let (code, answer) = world.api.raw("POST", &path, &[], object).await;
    assert_eq!(code, 201, "{answer}");
}

fn service() -> Value {
    json!({"spec": {"selector": {"app": "agent"}, "ports": [{"port": 8000, "name": "http"}]}})
}

#[tokio::test]
async fn what_is_no_longer_wanted_goes_though_it_has_no_label() {
    let mut world = World::start().await;
    world.mock_models().await;
    let hidden = json!({"modelAPI": "models", "model": "m", "agentNetwork": {"expose": false}});
    world.spec("agents", "sam", hidden).await;
    let sam = world.ready("agents", "sam").await;
    let hosted = json!({"mode": "Hosted", "hostedConfig": {"model": "tiny"}});
    let hosted = world.spec("modelapis", "hosted", hosted).await;
    world
        .until("it is made", "deployments", "modelapi-hosted", |_| true)
        .await;
    leave(&world, "services", "agent-sam", Some(&sam), service()).await;
    let file = json!({"data": {"config.yaml": ""}});
    let was_a_proxy = "litellm-config-hosted";
    leave(&world, "configmaps", was_a_proxy, Some(&hosted), file.clone()).await;
    // Of a name like ours, and somebody else's.
    leave(&world, "configmaps", "litellm-config-other", None, file.clone()).await;
    leave(&world, "services", "agent-max", None, service()).await;
    let max = json!({"modelAPI": "models", "model": "m", "agentNetwork": {"expose": false}});
    world.spec("agents", "max", max).await;

    world.restart_controllers().await;
    world.until_gone("services", "agent-sam").await;
    world.until_gone("configmaps", was_a_proxy).await;
    world.ready("agents", "max").await;
    assert!(world.get("services", "agent-max").await.is_some());
    assert!(world.get("configmaps", "litellm-config-other").await.is_some());

    // Looked for once, not on every pass.
    world.calls().clear();
    let touch = json!({"metadata": {"labels": {"example.com/touched": "yes"}}});
    world.merge("deployments", "agent-sam", touch).await;
    let agent = json!({"modelAPI": "models", "model": "m"});
    world.spec("agents", "barrier", agent).await;
    world.ready("agents", "barrier").await;
    let calls = world.calls().all();
    let looks: Vec<_> = calls
        .iter()
        .filter(|call| call.path.contains("/services/agent-sam"))
        .collect();
    assert!(looks.is_empty(), "{looks:#?}");
}

#[tokio::test]
async fn an_agent_that_waits_has_what_was_made_for_it_before() {
    let mut world = World::start_without_node().await;
    world.spec("modelapis", "models", mock(&["m"])).await;
    let waits = json!({"modelAPI": "models", "model": "m"});
    world.spec("agents", "sam", waits).await;
    let sam = world
        .until("it waits", "agents", "sam", |object| {
            object["status"]["phase"] == "Waiting" || object["status"]["phase"] == "Pending"
        })
        .await;
    assert!(
        sam["status"]["endpoint"].as_str().is_none_or(str::is_empty),
        "{sam}"
    );
    let labels = json!({"app": "agent", "agent": "sam"});
    let deployment = json!({"spec": {
        "selector": {"matchLabels": labels},
        "template": {
            "metadata": {"labels": labels},
            "spec": {"containers": [{"name": "agent", "image": "example.com/old:1"}]},
        },
    }});
    leave(&world, "deployments", "agent-sam", Some(&sam), deployment).await;
    leave(&world, "services", "agent-sam", Some(&sam), service()).await;

    world.restart_controllers().await;
    let sam = world
        .until("it tells of both", "agents", "sam", |object| {
            let status = &object["status"];
            status["endpoint"].as_str().is_some_and(|url| !url.is_empty()) && status["deployment"].is_object()
        })
        .await;
    assert_eq!(sam["status"]["ready"], false, "{sam}");
    world
        .until("it is ours now", "deployments", "agent-sam", |object| {
            object["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "kaos"
        })
        .await;
}
