//! ModelAPI: a proxy before the models of a provider.

use kaos_testkit::{PATIENCE, eventually};
use serde_json::{Value, json};

use super::world::{World, condition, container, env, is_current, is_ready, message, mock};

fn litellm() -> Value {
    json!({
        "mode": "Proxy",
        "proxyConfig": {
            "models": ["gpt-4o", "tricky\": \"name"],
            "provider": "openai",
            "apiBase": "http://upstream:9000/v1",
            "apiKey": {"valueFrom": {"secretKeyRef": {"name": "keys", "key": "openai"}}},
        },
    })
}

/// The configuration file of the ModelAPI called `name`.
async fn configuration(world: &World, name: &str) -> Value {
    let map = world
        .get("configmaps", &format!("litellm-config-{name}"))
        .await
        .unwrap();
    serde_saphyr::from_str(map["data"]["config.yaml"].as_str().unwrap()).unwrap()
}

#[tokio::test]
async fn it_becomes_a_deployment_a_service_and_a_configuration() {
    let mut world = World::start_without_node().await;
    let created = world.spec("modelapis", "gpt", litellm()).await;
    let pending = world.phase("modelapis", "gpt", "Pending").await;
    assert_eq!(condition(&pending, "Ready")["status"], "False", "{pending}");

    let deployment = world.until("made", "deployments", "modelapi-gpt", |_| true).await;
    let owner = &deployment["metadata"]["ownerReferences"][0];
    assert_eq!(
        (&owner["uid"], &owner["controller"]),
        (&created["metadata"]["uid"], &json!(true))
    );
    let labels = json!({"app": "modelapi", "modelapi": "gpt"});
    assert_eq!(deployment["spec"]["selector"]["matchLabels"], labels);
    let container = container(&deployment);
    assert_eq!(container["name"], "model-api");
    assert_eq!(container["image"], "example.com/litellm:1");
    assert_eq!(container["imagePullPolicy"], "IfNotPresent");
    assert_eq!(
        container["args"],
        json!(["--config", "/etc/litellm/config.yaml", "--port", "8000"])
    );
    assert_eq!(container["ports"][0]["name"], "http");
    assert_eq!(container["ports"][0]["containerPort"], 8000);
    assert!(
        container["resources"]["requests"]["memory"].is_string(),
        "{container}"
    );
    for probe in ["startupProbe", "readinessProbe", "livenessProbe"] {
        assert_eq!(
            container[probe]["httpGet"]["path"], "/health/liveliness",
            "{probe}"
        );
    }
    assert_eq!(
        env(&deployment),
        [
            "PROXY_API_BASE=http://upstream:9000/v1",
            "PROXY_API_KEY<-secretKeyRef/keys/openai",
            "LITELLM_LOG=INFO",
        ]
    );
    let service = world.until("made", "services", "modelapi-gpt", |_| true).await;
    let ports: Vec<_> = service["spec"]["ports"]
        .as_array()
        .unwrap()
        .iter()
        .map(|port| (port["name"].as_str().unwrap(), port["port"].as_i64().unwrap()))
        .collect();
    assert_eq!(ports, [("http", 8000), ("http-80", 80)]);
    assert_eq!(service["spec"]["selector"], labels);
    let model = |name: &str| {
        json!({
            "model_name": name,
            "litellm_params": {
                "model": format!("openai/{name}"),
                "api_base": "os.environ/PROXY_API_BASE",
                "api_key": "os.environ/PROXY_API_KEY",
            },
        })
    };
    assert_eq!(
        configuration(&world, "gpt").await,
        json!({
            "model_list": [model("gpt-4o"), model("tricky\": \"name")],
            "litellm_settings": {"drop_params": true},
        })
    );

    world.start_node();
    let ready = world.ready("modelapis", "gpt").await;
    let endpoint = format!(
        "http://modelapi-gpt.{}.svc.cluster.local:8000",
        world.api.namespace
    );
    assert_eq!(ready["status"]["endpoint"], endpoint);
    let counts = &ready["status"]["deployment"];
    assert_eq!(
        (&counts["replicas"], &counts["readyReplicas"]),
        (&json!(1), &json!(1))
    );
    // The key is for the pods. Whoever runs the controllers needs no right to read it.
    let calls = world.calls().all();
    assert!(
        calls.iter().all(|call| !call.path.contains("/secrets")),
        "{calls:?}"
    );
}

#[tokio::test]
async fn the_native_runtime_reads_the_same_file() {
    let world = World::start().await;
    world.spec("modelapis", "models", mock(&["m", "*"])).await;
    world.ready("modelapis", "models").await;
    let deployment = world.get("deployments", "modelapi-models").await.unwrap();
    let container = container(&deployment);
    assert_eq!(container["image"], "example.com/kaos:1");
    assert_eq!(
        container["args"],
        json!([
            "serve",
            "proxy",
            "--config",
            "/etc/litellm/config.yaml",
            "--port",
            "8000"
        ])
    );
    let model = |name: &str| json!({"model_name": name, "litellm_params": {"model": format!("mock/{name}")}});
    assert_eq!(
        configuration(&world, "models").await["model_list"],
        json!([model("m"), model("*")])
    );
}

#[tokio::test]
async fn a_changed_model_list_reaches_the_pods_and_is_not_ready_before() {
    let mut world = World::start().await;
    world.spec("modelapis", "models", mock(&["one"])).await;
    world.ready("modelapis", "models").await;
    let before = world.get("deployments", "modelapi-models").await.unwrap();
    world.stop_node();

    world.spec("modelapis", "models", mock(&["one", "two"])).await;
    let rolling = world
        .until("the change is seen", "modelapis", "models", is_current)
        .await;
    assert_eq!(
        rolling["status"]["ready"], false,
        "the new pods are not: {rolling}"
    );
    let after = world.get("deployments", "modelapi-models").await.unwrap();
    assert_ne!(
        before["spec"]["template"], after["spec"]["template"],
        "the pods are replaced"
    );
    assert_eq!(env(&before), env(&after), "only the configuration has changed");

    world.start_node();
    world.ready("modelapis", "models").await;
}

#[tokio::test]
async fn variables_of_the_user_win_and_none_is_there_twice() {
    let world = World::start_without_node().await;
    let mut spec = litellm();
    spec["container"]["env"] = json!([
        {"name": "FIRST", "value": "1"},
        {"name": "LITELLM_LOG", "value": "DEBUG"},
        {"name": "EMPTY", "value": ""},
        {"name": "PROXY_API_BASE", "value": "http://mine/v1"},
    ]);
    world.spec("modelapis", "gpt", spec).await;
    let deployment = world.until("made", "deployments", "modelapi-gpt", |_| true).await;
    let mut found = env(&deployment);
    found.retain(|variable| !variable.starts_with("PROXY_API_KEY"));
    found.sort();
    assert_eq!(
        found,
        [
            "EMPTY=",
            "FIRST=1",
            "LITELLM_LOG=DEBUG",
            "PROXY_API_BASE=http://mine/v1"
        ]
    );
}

#[tokio::test]
async fn what_was_deleted_or_edited_is_healed_and_the_scale_is_left_alone() {
    let world = World::start().await;
    world.mock_models().await;

    world.delete("services", "modelapi-models").await;
    world
        .until("made again", "services", "modelapi-models", |_| true)
        .await;
    world.delete("configmaps", "litellm-config-models").await;
    world
        .until("made again", "configmaps", "litellm-config-models", |_| true)
        .await;

    let image = json!([{"name": "model-api", "image": "example.com/other"}]);
    let edit = json!({"spec": {"template": {"spec": {"containers": image}}}});
    world
        .api
        .raw(
            "PATCH",
            &world.path("deployments", "modelapi-models"),
            &[("content-type", "application/strategic-merge-patch+json")],
            edit,
        )
        .await;
    world
        .until("healed", "deployments", "modelapi-models", |deployment| {
            container(deployment)["image"] == "example.com/kaos:1"
        })
        .await;
    world
        .merge(
            "services",
            "modelapi-models",
            json!({"spec": {"selector": {"modelapi": "other"}}}),
        )
        .await;
    world
        .until("healed", "services", "modelapi-models", |service| {
            service["spec"]["selector"]["modelapi"] == "models"
        })
        .await;

    world
        .merge("deployments", "modelapi-models", json!({"spec": {"replicas": 2}}))
        .await;
    let ready = world
        .until("two pods", "modelapis", "models", |object| {
            is_ready(object) && object["status"]["deployment"]["readyReplicas"] == 2
        })
        .await;
    assert!(is_current(&ready));
    let deployment = world.get("deployments", "modelapi-models").await.unwrap();
    assert_eq!(deployment["spec"]["replicas"], 2);
}

#[tokio::test]
async fn an_object_of_somebody_else_is_reported_and_left_alone() {
    let world = World::start().await;
    let foreign = json!({"data": {"config.yaml": "mine"}});
    world
        .apply("configmaps", "litellm-config-models", foreign.clone())
        .await;
    world.spec("modelapis", "models", mock(&["m"])).await;
    let failed = world.phase("modelapis", "models", "Failed").await;
    assert!(
        message(&failed).contains("ConfigMap litellm-config-models"),
        "{failed}"
    );
    let map = world.get("configmaps", "litellm-config-models").await.unwrap();
    assert_eq!(map["data"], foreign["data"], "it is not ours to change");
    assert_eq!(map["metadata"]["ownerReferences"], Value::Null);

    world.delete("configmaps", "litellm-config-models").await;
    world.ready("modelapis", "models").await;
}

#[tokio::test]
async fn its_deletion_leaves_nothing() {
    let world = World::start().await;
    world.mock_models().await;
    world.delete("modelapis", "models").await;
    for plural in ["modelapis", "deployments", "services", "configmaps", "pods"] {
        eventually(&format!("no {plural} are left"), PATIENCE, async || {
            let left = world.names(plural).await;
            if left.is_empty() { Ok(()) } else { Err(left) }
        })
        .await;
    }
}
