//! What a server says about itself.

use kaos_testkit::TestApi;
use serde_json::Value;

/// The resource of a discovery document with this name.
fn resource<'a>(document: &'a Value, name: &str) -> &'a Value {
    let resources = document["resources"].as_array().expect("a list of resources");
    resources
        .iter()
        .find(|resource| resource["name"] == name)
        .unwrap_or_else(|| panic!("{name} is listed"))
}

#[tokio::test]
async fn health_and_version_are_answered() {
    let api = TestApi::start().await;
    for path in ["/healthz", "/livez", "/readyz"] {
        assert_eq!(
            api.raw("GET", path, &[], ()).await,
            (200, Value::from("ok")),
            "{path}"
        );
    }
    let (code, version) = api.raw("GET", "/version", &[], ()).await;
    assert_eq!(
        (code, &version["major"], &version["minor"]),
        (200, &Value::from("1"), &Value::from("36"))
    );
}

#[tokio::test]
async fn a_group_version_lists_its_resources() {
    let api = TestApi::start().await;
    let (code, apps) = api.raw("GET", "/apis/apps/v1", &[], ()).await;
    assert_eq!((code, &apps["kind"]), (200, &Value::from("APIResourceList")));
    let deployments = resource(&apps, "deployments");
    assert_eq!(deployments["kind"], "Deployment");
    assert_eq!(deployments["namespaced"], true);
    assert_eq!(deployments["shortNames"], serde_json::json!(["deploy"]));
    assert_eq!(resource(&apps, "deployments/status")["kind"], "Deployment");

    let (_, core) = api.raw("GET", "/api/v1", &[], ()).await;
    assert_eq!(resource(&core, "namespaces")["namespaced"], false);
    let verbs = resource(&core, "configmaps")["verbs"]
        .as_array()
        .expect("verbs")
        .clone();
    for verb in [
        "create",
        "delete",
        "deletecollection",
        "get",
        "list",
        "patch",
        "update",
        "watch",
    ] {
        assert!(verbs.contains(&Value::from(verb)), "configmaps can {verb}");
    }
}

#[tokio::test]
async fn aggregated_discovery_is_one_document() {
    let api = TestApi::start().await;
    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let (code, groups) = api.raw("GET", "/apis", &[("accept", accept)], ()).await;
    assert_eq!(
        (code, &groups["kind"]),
        (200, &Value::from("APIGroupDiscoveryList"))
    );
    let items = groups["items"].as_array().expect("groups");
    let apps = items
        .iter()
        .find(|group| group["metadata"]["name"] == "apps")
        .expect("apps is served");
    let resources = apps["versions"][0]["resources"].as_array().expect("resources");
    let deployments = resources
        .iter()
        .find(|resource| resource["resource"] == "deployments")
        .expect("deployments");
    assert_eq!(deployments["scope"], "Namespaced");
    assert_eq!(deployments["responseKind"]["kind"], "Deployment");
}

#[tokio::test]
async fn a_path_nobody_serves_is_not_found() {
    let api = TestApi::start().await;
    assert_eq!(
        api.raw("GET", "/apis/nobody.example.com/v1", &[], ()).await.0,
        404
    );
    assert_eq!(
        api.raw("GET", "/api/v1/namespaces/default/gizmos", &[], ())
            .await
            .0,
        404
    );
}
