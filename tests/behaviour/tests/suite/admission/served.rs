//! How the kinds are served: their names and columns, their defaults, and that a pod's patch is kept as written.

use kaos_testkit::{TestApi, install_crds};
use serde_json::json;

use super::{collection, create};

#[tokio::test]
async fn what_is_not_given_has_its_default() {
    let api = TestApi::start().await;
    install_crds(&api).await;
    let spec = json!({"modelAPI": "m", "agentNetwork": {}, "config": {"memory": {}, "telemetry": {}}});
    let (code, agent) = create(&api, "Agent", "a", &spec).await;
    assert_eq!(code, 201, "{agent}");
    let expected = json!({
        "modelAPI": "m",
        "waitForDependencies": true,
        "agentNetwork": {"expose": true},
        "config": {
            "memory": {
                "enabled": true, "type": "local", "contextLimit": 6, "maxSessions": 1000, "maxSessionEvents": 500,
            },
            // Without a default, so that absent is told from false: the operator's holds.
            "telemetry": {},
        },
    });
    assert_eq!(agent["spec"], expected);

    let spec = json!({"mode": "Proxy", "proxyConfig": {"models": ["*"]}});
    let (code, models) = create(&api, "ModelAPI", "m", &spec).await;
    assert_eq!(code, 201, "{models}");
    assert_eq!(
        models["spec"]["proxyConfig"],
        json!({"models": ["*"], "runtime": "LiteLLM"})
    );
}

#[tokio::test]
async fn a_patch_of_a_pod_is_kept_as_it_was_written() {
    let api = TestApi::start().await;
    install_crds(&api).await;
    let pod = json!({
        "nodeSelector": null,
        "securityContext": {"runAsUser": null, "runAsGroup": 3},
        "tolerations": [{"$patch": "replace"}],
        "volumes": [{"name": "data", "emptyDir": null, "persistentVolumeClaim": {"claimName": "data"}}],
        "containers": [
            {"name": "agent", "livenessProbe": null, "ports": [{"containerPort": 8000, "$patch": "delete"}]},
            {"name": "other", "$patch": "delete"},
        ],
    });
    let spec = json!({"modelAPI": "m", "model": "m", "podSpec": pod});
    let (code, created) = create(&api, "Agent", "created", &spec).await;
    assert_eq!((code, &created["spec"]["podSpec"]), (201, &pod), "{created}");

    // By server-side apply, which has a schema of its own for lists and nulls.
    let object = json!({
        "apiVersion": "kaos.tools/v1alpha1", "kind": "Agent", "metadata": {"name": "applied"}, "spec": spec,
    });
    let path = format!(
        "{}/applied?fieldManager=kubectl&fieldValidation=Strict",
        collection(&api, "Agent")
    );
    for code in [201, 200] {
        let (answer, applied) = api
            .raw(
                "PATCH",
                &path,
                &[("content-type", "application/apply-patch+yaml")],
                &object,
            )
            .await;
        assert_eq!((answer, &applied["spec"]["podSpec"]), (code, &pod), "{applied}");
    }
}

#[tokio::test]
async fn a_typing_error_in_the_patch_of_a_pod_is_refused_by_server_side_apply_too() {
    let api = TestApi::start().await;
    install_crds(&api).await;
    let object = json!({
        "apiVersion": "kaos.tools/v1alpha1",
        "kind": "Agent",
        "metadata": {"name": "a"},
        "spec": {"modelAPI": "m", "podSpec": {"containers": [{"name": "agent", "livenesProbe": null}]}},
    });
    let path = format!("{}/a?fieldManager=kubectl", collection(&api, "Agent"));
    let (code, answer) = api
        .raw(
            "PATCH",
            &path,
            &[("content-type", "application/apply-patch+yaml")],
            &object,
        )
        .await;
    let message = answer["message"].as_str().unwrap_or_default();
    assert!(code >= 400, "{answer}");
    assert!(
        message.contains(".spec.podSpec.containers[0].livenesProbe"),
        "{message}"
    );
}

#[tokio::test]
async fn short_names_columns_and_the_category_are_those_of_kaos() {
    let api = TestApi::start().await;
    install_crds(&api).await;
    let (_, list) = api.raw("GET", "/apis/kaos.tools/v1alpha1", &[], ()).await;
    let resources = list["resources"].as_array().unwrap();
    for (kind, short, columns) in [
        (
            "Agent",
            json!(["agent", "agents"]),
            vec!["Name", "ModelAPI", "Model", "Ready", "Phase", "Age"],
        ),
        (
            "ModelAPI",
            json!(["api", "apis"]),
            vec!["Name", "Mode", "Ready", "Phase", "Age"],
        ),
        (
            "MCPServer",
            json!(["mcp", "mcps"]),
            vec!["Name", "Runtime", "Ready", "Phase", "Age"],
        ),
    ] {
        let is_it =
            |resource: &&serde_json::Value| resource["kind"] == kind && resource.get("shortNames").is_some();
        let resource = resources.iter().find(is_it).unwrap();
        assert_eq!(resource["shortNames"], short);
        assert_eq!(resource["categories"], json!(["kaos"]));
        let accept = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
        let (code, table) = api.raw("GET", &collection(&api, kind), &accept, ()).await;
        assert_eq!(code, 200, "{table}");
        let found: Vec<_> = table["columnDefinitions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|column| column["name"].as_str().unwrap())
            .collect();
        assert_eq!(found, columns);
    }
    let scale = resources
        .iter()
        .find(|resource| resource["name"] == "agents/scale");
    assert_eq!(scale.unwrap()["kind"], "Scale");
}
