//! What the operator of KAOS in Go did wrong with ModelAPIs, one test for each.

use serde_json::{Value, json};

use super::world::{World, condition, container, env, message, mock};

async fn template(world: &World, name: &str) -> Value {
    let deployment = world.until("made", "deployments", name, |_| true).await;
    deployment["spec"]["template"].clone()
}

#[tokio::test]
async fn defect_01_a_changed_configuration_reaches_the_pods() {
    let world = World::start().await;
    let given = |text: &str| json!({"mode": "Proxy", "proxyConfig": {"configYaml": {"fromString": text}}});
    for (name, one, other) in [
        ("listed", mock(&["a"]), mock(&["a", "b"])),
        (
            "given",
            given("model_list: []"),
            given("model_list: [] # changed"),
        ),
    ] {
        world.spec("modelapis", name, one).await;
        world.ready("modelapis", name).await;
        let before = template(&world, &format!("modelapi-{name}")).await;
        world.spec("modelapis", name, other).await;
        world.ready("modelapis", name).await;
        assert_ne!(
            before,
            template(&world, &format!("modelapi-{name}")).await,
            "{name}"
        );
    }
}

#[tokio::test]
async fn defect_02_every_field_of_container_takes_effect() {
    let world = World::start_without_node().await;
    let mut spec = mock(&["a"]);
    spec["container"] = json!({
        "image": "example.com/mine:1", "command": ["run"], "args": ["x"],
        "resources": {"limits": {"memory": "1Gi"}},
    });
    world.spec("modelapis", "m", spec).await;
    let deployment = world.until("made", "deployments", "modelapi-m", |_| true).await;
    let container = container(&deployment);
    assert_eq!(container["image"], "example.com/mine:1");
    assert_eq!(
        (&container["command"], &container["args"]),
        (&json!(["run"]), &json!(["x"]))
    );
    assert_eq!(container["resources"], json!({"limits": {"memory": "1Gi"}}));
}

#[tokio::test]
async fn defect_03_a_configuration_in_a_secret_is_mounted_and_never_read_here() {
    let world = World::start().await;
    let source = json!({"name": "file", "key": "proxy.yml", "optional": true});
    let spec = json!({"mode": "Proxy", "proxyConfig": {"configYaml": {"fromSecretKeyRef": source}}});
    world.spec("modelapis", "m", spec).await;
    let ready = world.ready("modelapis", "m").await;
    let volume = template(&world, "modelapi-m").await["spec"]["volumes"][0].clone();
    assert_eq!(volume["secret"]["secretName"], "file");
    assert_eq!(
        volume["secret"]["items"],
        json!([{"key": "proxy.yml", "path": "config.yaml"}])
    );
    assert_eq!(volume["secret"]["optional"], true);
    assert_eq!(
        world.get("configmaps", "litellm-config-m").await,
        None,
        "nothing is generated instead"
    );
    assert_eq!(
        condition(&ready, "ConfigurationValid")["reason"],
        "NotChecked",
        "{ready}"
    );
    let calls = world.calls().all();
    assert!(
        calls.iter().all(|call| !call.path.contains("/secrets")),
        "{calls:?}"
    );
}

#[tokio::test]
async fn defect_09_a_name_is_never_part_of_a_command_or_of_another_value() {
    let world = World::start_without_node().await;
    for (name, model) in [
        ("a", "x; touch /tmp/x"),
        ("b", "$(id)"),
        ("c", "`id`"),
        ("d", "x\nFROM y"),
        ("e", "-x"),
    ] {
        let spec = json!({"mode": "Hosted", "hostedConfig": {"model": model}});
        let (code, answer) = world.try_apply("modelapis", name, json!({"spec": spec})).await;
        if code >= 400 {
            assert!(
                answer["message"].as_str().unwrap().contains("hostedConfig.model"),
                "{answer}"
            );
            continue;
        }
        let failed = world.phase("modelapis", name, "Failed").await;
        assert!(
            message(&failed).starts_with("spec.hostedConfig.model "),
            "{failed}"
        );
        assert_eq!(world.get("deployments", &format!("modelapi-{name}")).await, None);
    }
    let tricky = "a\"\n  - model_name: \"b";
    world.spec("modelapis", "proxy", mock(&[tricky])).await;
    let map = world
        .until("made", "configmaps", "litellm-config-proxy", |_| true)
        .await;
    let file: Value = serde_saphyr::from_str(map["data"]["config.yaml"].as_str().unwrap()).unwrap();
    let list = file["model_list"].as_array().unwrap();
    assert_eq!((list.len(), &list[0]["model_name"]), (1, &json!(tricky)));
}

#[tokio::test]
async fn defect_10_the_users_variables_win_and_none_is_there_twice() {
    let world = World::start_without_node().await;
    let spec = json!({
        "mode": "Proxy",
        "proxyConfig": {"models": ["m"], "apiBase": "http://ours", "env": [{"name": "A", "value": "older"}]},
        "telemetry": {"enabled": true, "endpoint": "http://ours:4317"},
        "container": {"env": [
            {"name": "A", "value": "mine"},
            {"name": "PROXY_API_BASE", "value": "http://mine"},
            {"name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": "http://mine:4317"},
        ]},
    });
    world.spec("modelapis", "m", spec).await;
    let deployment = world.until("made", "deployments", "modelapi-m", |_| true).await;
    assert_eq!(
        env(&deployment),
        [
            "A=mine",
            "PROXY_API_BASE=http://mine",
            "OTEL_EXPORTER_OTLP_ENDPOINT=http://mine:4317",
            "LITELLM_LOG=INFO",
            "OTEL_EXPORTER=otlp_grpc",
            "OTEL_SERVICE_NAME=m",
            "OTEL_PYTHON_EXCLUDED_URLS=/health",
        ]
    );
}

#[tokio::test]
async fn defect_11_telemetry_that_has_no_effect_stays_in_the_status() {
    let world = World::start().await;
    let spec = json!({"mode": "Hosted", "hostedConfig": {"model": "m"}, "telemetry": {"enabled": true}});
    world.spec("modelapis", "m", spec).await;
    let ready = world.ready("modelapis", "m").await;
    let valid = condition(&ready, "ConfigurationValid");
    assert_eq!(valid["reason"], "WithoutEffect");
    assert!(
        valid["message"].as_str().unwrap().contains("Ollama sends none"),
        "{valid}"
    );
}

#[tokio::test]
async fn defect_15_the_models_may_be_kept_on_a_volume_of_the_users() {
    let world = World::start_without_node().await;
    let spec = json!({
        "mode": "Hosted",
        "hostedConfig": {"model": "m"},
        "podSpec": {"volumes": [{"name": "ollama-data", "persistentVolumeClaim": {"claimName": "models"}}]},
    });
    world.spec("modelapis", "m", spec).await;
    let volumes = template(&world, "modelapi-m").await["spec"]["volumes"].clone();
    assert_eq!(
        volumes,
        json!([{"name": "ollama-data", "persistentVolumeClaim": {"claimName": "models"}}])
    );
}
