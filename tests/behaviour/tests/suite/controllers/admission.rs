//! What can never work is refused when it is written, with what to write instead.

use kaos_testkit::{TestApi, install_crds};
use serde_json::{Value, json};

/// Sends one new object. The code and the message of a refusal, or the stored object.
async fn create(api: &TestApi, plural: &str, name: &str, spec: Value) -> (u16, Value) {
    let kind = match plural {
        "agents" => "Agent",
        "modelapis" => "ModelAPI",
        _ => "MCPServer",
    };
    let path = format!(
        "/apis/kaos.tools/v1alpha1/namespaces/{}/{plural}?fieldValidation=Strict",
        api.namespace
    );
    let object = json!({
        "apiVersion": "kaos.tools/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec,
    });
    api.raw("POST", &path, &[], object).await
}

fn proxy(config: Value) -> Value {
    json!({"mode": "Proxy", "proxyConfig": config})
}

#[tokio::test]
async fn refusals_name_the_field_and_the_fix() {
    let api = TestApi::start().await;
    install_crds(&api).await;
    let long = "x".repeat(58);
    let cases = [
        ("agents", "a", json!({"model": "m"}), "spec.modelAPI"),
        (
            "agents",
            "a",
            json!({"modelAPI": "", "model": "m"}),
            "spec.modelAPI",
        ),
        ("agents", "a", json!({"modelAPI": "m"}), "spec.model"),
        (
            "agents",
            "a",
            json!({"modelAPI": "m", "model": "m", "config": {"reasoningLoopMaxSteps": 21}}),
            "spec.config.reasoningLoopMaxSteps",
        ),
        (
            "agents",
            "a",
            json!({"modelAPI": "m", "model": "m", "mcpServers": ["t", "t"]}),
            "spec.mcpServers[1]",
        ),
        (
            "agents",
            "a",
            json!({"modelAPI": "m", "model": "m", "memory": {}}),
            "unknown field \"spec.memory\"",
        ),
        (
            "agents",
            &long,
            json!({"modelAPI": "m", "model": "m"}),
            "at most 57 characters",
        ),
        ("agents", "a.b", json!({"modelAPI": "m", "model": "m"}), "no dot"),
        ("mcpservers", "t", json!({}), "spec.runtime"),
        (
            "mcpservers",
            "t",
            json!({"runtime": "r", "container": {"env": [{"name": "A"}, {"name": "A"}]}}),
            "spec.container.env[1]",
        ),
        ("modelapis", "m", json!({"mode": "Hosted"}), "spec.mode"),
        (
            "modelapis",
            "m",
            json!({"mode": "Proxy"}),
            "proxyConfig is required",
        ),
        (
            "modelapis",
            "m",
            proxy(json!({"models": []})),
            "spec.proxyConfig.models",
        ),
        (
            "modelapis",
            "m",
            proxy(json!({"models": ["m"], "provider": "mock"})),
            "runtime: Native",
        ),
        (
            "modelapis",
            "m",
            proxy(json!({"models": ["mock/m"]})),
            "runtime: Native",
        ),
        (
            "modelapis",
            "m",
            proxy(json!({"models": ["m"], "runtime": "Native", "provider": "anthropic"})),
            "runtime: LiteLLM",
        ),
        (
            "modelapis",
            "m",
            proxy(json!({"models": ["m"], "provider": "openai", "apiKey": {}})),
            "exactly one of value and valueFrom",
        ),
        (
            "modelapis",
            "m",
            proxy(json!({"models": ["m"], "provider": "openai", "apiKey": {"valueFrom": {}}})),
            "exactly one of secretKeyRef and configMapKeyRef",
        ),
    ];
    for (plural, name, spec, expected) in cases {
        let (code, answer) = create(&api, plural, name, spec.clone()).await;
        let message = answer["message"].as_str().unwrap_or_default();
        assert!(matches!(code, 400 | 422), "{spec}: {code} {answer}");
        assert!(message.contains(expected), "{spec}: {message}");
    }
}

#[tokio::test]
async fn what_is_not_given_has_its_default() {
    let api = TestApi::start().await;
    install_crds(&api).await;
    let spec = json!({"modelAPI": "m", "model": "m", "agentNetwork": {}, "config": {}});
    let (code, agent) = create(&api, "agents", "a", spec).await;
    assert_eq!(code, 201, "{agent}");
    assert_eq!(agent["spec"]["waitForDependencies"], true);
    assert_eq!(agent["spec"]["agentNetwork"]["expose"], true);
    assert_eq!(agent["spec"]["config"]["reasoningLoopMaxSteps"], 5);
    let (code, models) = create(&api, "modelapis", "m", proxy(json!({"models": ["*"]}))).await;
    assert_eq!(code, 201, "{models}");
    assert_eq!(models["spec"]["proxyConfig"]["runtime"], "LiteLLM");
}

#[tokio::test]
async fn short_names_columns_and_the_category_are_those_of_kaos() {
    let api = TestApi::start().await;
    install_crds(&api).await;
    let (_, list) = api.raw("GET", "/apis/kaos.tools/v1alpha1", &[], ()).await;
    let resources = list["resources"].as_array().unwrap();
    for (plural, short, columns) in [
        (
            "agents",
            json!(["agent", "agents"]),
            vec!["Name", "ModelAPI", "Model", "Ready", "Phase", "Age"],
        ),
        (
            "modelapis",
            json!(["api", "apis"]),
            vec!["Name", "Mode", "Ready", "Phase", "Age"],
        ),
        (
            "mcpservers",
            json!(["mcp", "mcps"]),
            vec!["Name", "Runtime", "Ready", "Phase", "Age"],
        ),
    ] {
        let resource = resources
            .iter()
            .find(|resource| resource["name"] == plural)
            .unwrap();
        assert_eq!(resource["shortNames"], short);
        assert_eq!(resource["categories"], json!(["kaos"]));
        let path = format!("/apis/kaos.tools/v1alpha1/namespaces/{}/{plural}", api.namespace);
        let accept = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
        let (code, table) = api.raw("GET", &path, &accept, ()).await;
        assert_eq!(code, 200, "{table}");
        let found: Vec<_> = table["columnDefinitions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|column| column["name"].as_str().unwrap())
            .collect();
        assert_eq!(found, columns);
    }
}
