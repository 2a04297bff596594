//! ModelAPI: a proxy before the models of a provider.

use std::{net::SocketAddr, sync::Arc};

use kaos_seams::FixedDialer;
use kaos_testkit::{PATIENCE, eventually};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

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
    assert_eq!(container["image"], "ghcr.io/berriai/litellm:main-stable");
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

fn hosted(model: &str) -> Value {
    json!({"mode": "Hosted", "hostedConfig": {"model": model}})
}

/// Answers every request with this JSON, as the step beside a hosted model would.
async fn telling(body: Value) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let body = body.to_string();
            let answer = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                body.len()
            );
            // A request of this client comes in one piece.
            let mut request = [0; 4096];
            let _ = stream.read(&mut request).await;
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    address
}

/// A world in which the step of the ModelAPI called `m` tells this.
async fn world_telling(progress: Value) -> World {
    let address = telling(progress).await;
    World::start_with_dialer(|namespace| {
        let host = format!("pull-m.{namespace}.svc.cluster.local");
        Arc::new(FixedDialer::default().with(&host, 11435, address))
    })
    .await
}

#[tokio::test]
async fn a_hosted_model_is_pulled_by_a_step_without_a_shell_and_its_progress_is_in_the_status() {
    let mut world = world_telling(json!({
        "model": "smollm2:135m", "state": "Pulling", "completed": 61_000_000, "total": 135_000_000, "percent": 45,
    }))
    .await;
    world.spec("modelapis", "m", hosted("smollm2:135m")).await;
    let deployment = world.until("made", "deployments", "modelapi-m", |_| true).await;
    let ollama = container(&deployment);
    assert_eq!(ollama["image"], "ollama/ollama:latest");
    assert_eq!(ollama["ports"][0]["containerPort"], 11434);
    assert_eq!(ollama["readinessProbe"]["httpGet"]["path"], "/");
    let pod = &deployment["spec"]["template"]["spec"];
    let step = &pod["initContainers"][0];
    assert_eq!(step["name"], "pull-model");
    assert_eq!(step["restartPolicy"], "Always", "it stays beside Ollama");
    assert_eq!(step["command"], Value::Null);
    assert_eq!(
        step["args"],
        json!([
            "serve",
            "model-pull",
            "--model",
            "smollm2:135m",
            "--ollama",
            "http://127.0.0.1:11434",
            "--port",
            "11435"
        ])
    );
    assert_eq!(
        step["readinessProbe"]["httpGet"]["path"], "/ready",
        "it holds the pod back"
    );
    let service = world.until("made", "services", "pull-m", |_| true).await;
    assert_eq!(service["spec"]["publishNotReadyAddresses"], true);

    let pulling = world
        .until("the progress is told", "modelapis", "m", |object| {
            condition(object, "ModelPulled")["reason"] == "Pulling"
        })
        .await;
    let told = condition(&pulling, "ModelPulled");
    assert_eq!(told["status"], "False");
    assert_eq!(told["message"], "pulled 45 % (61 of 135 MB)");
    assert_eq!(pulling["status"]["ready"], false);
    assert!(
        message(&pulling).ends_with("its model is being pulled"),
        "{pulling}"
    );

    world.start_node();
    let ready = world.ready("modelapis", "m").await;
    assert_eq!(condition(&ready, "ModelPulled")["status"], "True", "{ready}");
    let endpoint = format!(
        "http://modelapi-m.{}.svc.cluster.local:11434",
        world.api.namespace
    );
    assert_eq!(ready["status"]["endpoint"], endpoint);
}

#[tokio::test]
async fn a_pull_that_fails_is_told_in_ollamas_words() {
    let world = world_telling(json!({
        "model": "nothing", "state": "Failed", "completed": 0, "total": 0,
        "error": "pull model manifest: file does not exist",
    }))
    .await;
    world.spec("modelapis", "m", hosted("nothing")).await;
    let failed = world
        .until("it is told", "modelapis", "m", |object| {
            condition(object, "ModelPulled")["reason"] == "PullFailed"
        })
        .await;
    let said = condition(&failed, "ModelPulled")["message"].clone();
    let said = said.as_str().unwrap();
    assert!(
        said.starts_with("nothing: pull model manifest: file does not exist; check spec.hostedConfig.model"),
        "{said}"
    );
}

#[tokio::test]
async fn a_change_of_the_mode_leaves_nothing_of_the_other() {
    let world = World::start().await;
    world.spec("modelapis", "m", mock(&["a"])).await;
    world.ready("modelapis", "m").await;
    let both =
        json!({"mode": "Hosted", "hostedConfig": {"model": "a"}, "proxyConfig": mock(&["a"])["proxyConfig"]});
    world.spec("modelapis", "m", both).await;
    world.until_gone("configmaps", "litellm-config-m").await;
    let hosted = world.ready("modelapis", "m").await;
    assert!(hosted["status"]["endpoint"].as_str().unwrap().ends_with(":11434"));
    let valid = condition(&hosted, "ConfigurationValid");
    assert_eq!(
        (&valid["status"], &valid["reason"]),
        (&json!("True"), &json!("WithoutEffect"))
    );
    let deployment = world.get("deployments", "modelapi-m").await.unwrap();
    let pod = &deployment["spec"]["template"]["spec"];
    assert_eq!(pod["volumes"].as_array().unwrap().len(), 1, "{pod}");
    assert_eq!(container(&deployment)["args"], Value::Null);
    let service = world.get("services", "modelapi-m").await.unwrap();
    assert_eq!(service["spec"]["ports"][0]["port"], 11434);
    assert_eq!(service["spec"]["ports"].as_array().unwrap().len(), 2);

    world.spec("modelapis", "m", mock(&["a"])).await;
    world.until_gone("services", "pull-m").await;
    let back = world.ready("modelapis", "m").await;
    assert_eq!(condition(&back, "ModelPulled"), Value::Null);
    let deployment = world.get("deployments", "modelapi-m").await.unwrap();
    let pod = &deployment["spec"]["template"]["spec"];
    assert_eq!(pod["initContainers"], Value::Null);
    assert_eq!(pod["volumes"][0]["configMap"]["name"], "litellm-config-m");
}

#[tokio::test]
async fn a_change_of_the_runtime_changes_how_the_key_arrives() {
    let world = World::start_without_node().await;
    let mut spec = litellm();
    spec["proxyConfig"]["models"] = json!(["gpt-4o"]);
    world.spec("modelapis", "gpt", spec.clone()).await;
    world.until("made", "deployments", "modelapi-gpt", |_| true).await;
    spec["proxyConfig"]["runtime"] = json!("Native");
    world.spec("modelapis", "gpt", spec).await;
    let deployment = world
        .until("changed", "deployments", "modelapi-gpt", |deployment| {
            container(deployment)["image"] == "example.com/kaos:1"
        })
        .await;
    assert_eq!(
        env(&deployment),
        [
            "PROXY_API_BASE=http://upstream:9000/v1",
            "PROXY_API_KEY_FILE=/etc/kaos/api-key/api-key",
            "LOG_LEVEL=INFO",
        ]
    );
    let volumes = &deployment["spec"]["template"]["spec"]["volumes"];
    assert_eq!(volumes[1]["secret"]["secretName"], "keys");
    assert_eq!(
        volumes[1]["secret"]["items"],
        json!([{"key": "openai", "path": "api-key"}])
    );
}

#[tokio::test]
async fn a_file_of_the_user_is_checked_against_the_models_and_used_to_the_letter() {
    let world = World::start().await;
    let spec = |text: &str| json!({"mode": "Proxy", "proxyConfig": {"models": ["a", "b/*"], "configYaml": {"fromString": text}}});
    world
        .spec("modelapis", "m", spec("model_list: [{model_name: c}]"))
        .await;
    let failed = world.phase("modelapis", "m", "Failed").await;
    assert!(
        message(&failed).starts_with("model_name \"c\" in configYaml not found in models list [a b/*]"),
        "{failed}"
    );
    assert_eq!(condition(&failed, "ConfigurationValid")["status"], "False");
    assert_eq!(
        world.get("configmaps", "litellm-config-m").await,
        None,
        "nothing is half applied"
    );

    let text = "# mine\nmodel_list: [{model_name: a}, {model_name: b/c}]\n";
    world.spec("modelapis", "m", spec(text)).await;
    world.ready("modelapis", "m").await;
    let map = world.get("configmaps", "litellm-config-m").await.unwrap();
    assert_eq!(map["data"]["config.yaml"], text);
}

#[tokio::test]
async fn a_mode_that_cannot_be_built_leaves_the_address_as_it_was() {
    let world = World::start().await;
    world.mock_models().await;
    let spec = json!({
        "mode": "Hosted", "hostedConfig": {"model": "m"},
        "podSpec": {"containers": [{"name": "model-api", "$patch": "delete"}, {"name": "b", "image": "b"}]},
    });
    world.spec("modelapis", "models", spec).await;
    let failed = world.phase("modelapis", "models", "Failed").await;
    let endpoint = failed["status"]["endpoint"].as_str().unwrap_or_default();
    assert!(endpoint.ends_with(":8000"), "{failed}");
}
