//! CustomResourceDefinitions: established, changed and removed.

use kaos_testkit::{PATIENCE, TestApi, eventually};
use serde_json::{Value, json};

use super::fixtures::{MERGE, Widgets, refusal, version};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

fn gadgets(group: &str) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("gadgets.{group}")},
        "spec": {
            "group": group,
            "scope": "Cluster",
            "names": {"kind": "Gadget", "plural": "gadgets"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"size": {"type": "integer"}}}},
            }],
        },
    })
}

#[tokio::test]
async fn names_are_filled_in_and_accepted() {
    let api = TestApi::start().await;
    let group = api.group();
    let (code, created) = api.raw("POST", DEFINITIONS, &[], gadgets(&group)).await;
    assert_eq!(code, 201, "{created}");
    assert_eq!(created["spec"]["names"]["listKind"], "GadgetList");
    assert_eq!(created["spec"]["names"]["singular"], "gadget");
    assert_eq!(created["spec"]["conversion"]["strategy"], "None");
    let path = format!("{DEFINITIONS}/gadgets.{group}");
    let established = eventually("it is established", PATIENCE, async || {
        let (_, definition) = api.raw("GET", &path, &[], ()).await;
        let conditions = definition["status"]["conditions"].as_array()?.clone();
        conditions
            .iter()
            .any(|condition| condition["type"] == "Established" && condition["status"] == "True")
            .then_some(definition)
    })
    .await;
    assert_eq!(established["status"]["acceptedNames"]["kind"], "Gadget");
    assert_eq!(established["status"]["storedVersions"], json!(["v1"]));
    assert_eq!(api.raw("DELETE", &path, &[], ()).await.0, 200);
}

#[tokio::test]
async fn what_is_wrong_with_a_definition_is_named() {
    let api = TestApi::start().await;
    let mut wrong = gadgets(&api.group());
    wrong["metadata"]["name"] = json!("gizmos.example.com");
    wrong["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["size"] = json!({});
    let answer = api.raw("POST", DEFINITIONS, &[], wrong).await;
    let (code, reason, message) = refusal(&answer);
    assert_eq!((code, reason), (422, "Invalid"));
    for part in [
        "metadata.name: Invalid value: \"gizmos.example.com\": must be spec.names.plural+\".\"+spec.group",
        "spec.validation.openAPIV3Schema.properties[size].type: Required value: must not be empty for specified object fields",
    ] {
        assert!(message.contains(part), "{part} in {message}");
    }
}

#[tokio::test]
async fn a_changed_schema_holds_for_the_next_write() {
    let widgets = Widgets::start_with_own_definition().await;
    widgets.create("a", 5).await;
    let path = format!("{DEFINITIONS}/{}", widgets.resource);
    let headers = [("content-type", "application/json-patch+json")];
    let maximum = json!([{
        "op": "add", "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/size/maximum", "value": 7,
    }]);
    let (code, changed) = widgets.api.raw("PATCH", &path, &headers, maximum).await;
    assert_eq!(code, 200, "{changed}");
    let too_large = widgets.widget("b", json!({"spec": {"size": 8}}));
    // A cluster takes a moment to notice.
    let answer = eventually("the new schema holds", PATIENCE, async || {
        let answer = widgets
            .api
            .raw("POST", &format!("{}?dryRun=All", widgets.path), &[], &too_large)
            .await;
        (answer.0 == 422).then_some(answer)
    })
    .await;
    let expected = format!(
        "{} \"b\" is invalid: spec.size: Invalid value: 8: spec.size in body should be less than or equal to 7",
        widgets.kind
    );
    assert_eq!(refusal(&answer).2, expected);
    assert_eq!(
        widgets.patch("a", MERGE, json!({"spec": {"size": 7}})).await.0,
        200
    );
}

#[tokio::test]
async fn a_deleted_definition_takes_its_objects_along() {
    let widgets = Widgets::start_with_own_definition().await;
    let first = widgets.create("a", 1).await;
    let mut watch = widgets
        .api
        .watch(&format!(
            "{}?resourceVersion={}&fieldSelector=metadata.name%3Da",
            widgets.path,
            version(&first)
        ))
        .await;
    let held = widgets.widget(
        "b",
        json!({"metadata": {"finalizers": ["example.com/f"]}, "spec": {"size": 1}}),
    );
    assert_eq!(widgets.post(&held).await.0, 201);
    let path = format!("{DEFINITIONS}/{}", widgets.resource);
    assert_eq!(widgets.api.raw("DELETE", &path, &[], ()).await.0, 200);
    eventually("the free widget is gone", PATIENCE, async || {
        widgets.get("a").await.0 == 404
    })
    .await;
    let (code, definition) = widgets.api.raw("GET", &path, &[], ()).await;
    assert_eq!(code, 200, "the held widget holds its definition");
    assert_eq!(
        definition["metadata"]["finalizers"],
        json!(["customresourcecleanup.apiextensions.k8s.io"])
    );
    assert_eq!(
        widgets
            .patch("b", MERGE, json!({"metadata": {"finalizers": null}}))
            .await
            .0,
        200
    );
    eventually("the definition is gone", PATIENCE, async || {
        widgets.api.raw("GET", &path, &[], ()).await.0 == 404
    })
    .await;
    assert_eq!(watch.next().await.unwrap()["type"], "DELETED");
    assert_eq!(watch.next().await, None, "there is nothing left to watch");
    eventually("the kind is served no longer", PATIENCE, async || {
        widgets.get("b").await.1 == json!("404 page not found\n")
    })
    .await;
}
