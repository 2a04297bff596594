//! Discovery of a small registry: a built-in kind and a custom one.

use http::Request;
use http_body_util::BodyExt;

use super::*;
use crate::schema::Schema;

fn widget(version: &str) -> ResourceType {
    let schema = json!({
        "type": "object",
        "properties": { "spec": { "type": "object", "properties": { "size": { "type": "integer" } } } },
    });
    ResourceType {
        group: "example.com".to_owned(),
        version: version.to_owned(),
        kind: "Widget".to_owned(),
        list_kind: "WidgetList".to_owned(),
        plural: "widgets".to_owned(),
        singular: "widget".to_owned(),
        short_names: vec!["wd".to_owned()],
        categories: Vec::new(),
        namespaced: true,
        status: true,
        scale: None,
        schema: Arc::new(Schema::from_crd(&schema).unwrap()),
        columns: Vec::new(),
        builtin: false,
    }
}

fn pods() -> ResourceType {
    ResourceType {
        group: String::new(),
        version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        list_kind: "PodList".to_owned(),
        plural: "pods".to_owned(),
        singular: "pod".to_owned(),
        builtin: true,
        ..widget("v1")
    }
}

fn registry() -> Registry {
    let registry = Registry::new(vec![pods()]);
    registry.set_custom("widgets.example.com", vec![widget("v1alpha1"), widget("v1")]);
    registry
}

async fn get(
    discovery: &Discovery,
    registry: &Registry,
    path: &str,
    headers: &[(&str, &str)],
) -> (u16, Parsed) {
    let mut request = Request::get(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let parts = request.body(()).unwrap().into_parts().0;
    let response = discovery.respond(registry, &parts).expect("discovery answers");
    let (head, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    (
        head.status.as_u16(),
        Parsed {
            value: serde_json::from_slice(&body).unwrap_or_default(),
            head,
            body,
        },
    )
}

struct Parsed {
    head: http::response::Parts,
    value: Value,
    body: bytes::Bytes,
}

#[tokio::test]
async fn groups_name_their_best_version() {
    let (discovery, registry) = (Discovery::default(), registry());
    let (status, answer) = get(&discovery, &registry, "/apis", &[]).await;
    assert_eq!(status, 200);
    assert_eq!(answer.value["groups"][0]["name"], "example.com");
    assert_eq!(answer.value["groups"][0]["preferredVersion"]["version"], "v1");
    let (_, answer) = get(&discovery, &registry, "/apis/example.com/", &[]).await;
    assert_eq!(
        answer.value["versions"][1]["groupVersion"],
        "example.com/v1alpha1"
    );
    let parts = Request::get("/apis/other.example")
        .body(())
        .unwrap()
        .into_parts()
        .0;
    assert!(discovery.respond(&registry, &parts).is_none());
}

#[tokio::test]
async fn resources_are_listed_with_their_subresources() {
    let (_, answer) = get(&Discovery::default(), &registry(), "/api/v1", &[]).await;
    let names: Vec<&str> = answer.value["resources"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|r| r["name"].as_str())
        .collect();
    assert_eq!(
        names,
        ["pods", "pods/binding", "pods/log", "pods/proxy", "pods/status"]
    );
    let (_, answer) = get(&Discovery::default(), &registry(), "/apis/example.com/v1", &[]).await;
    assert_eq!(answer.value["groupVersion"], "example.com/v1");
    assert_eq!(answer.value["resources"][0]["shortNames"], json!(["wd"]));
    assert_eq!(answer.value["resources"][1]["name"], "widgets/status");
}

#[tokio::test]
async fn one_document_holds_all_groups_and_is_not_sent_twice() {
    let (discovery, registry) = (Discovery::default(), registry());
    let accept = ("accept", accept::AGGREGATED);
    let (_, answer) = get(&discovery, &registry, "/apis", &[accept]).await;
    assert_eq!(answer.head.headers["content-type"], accept::AGGREGATED);
    assert_eq!(answer.value["items"][0]["versions"][0]["version"], "v1");
    let resource = &answer.value["items"][0]["versions"][0]["resources"][0];
    assert_eq!(resource["responseKind"]["kind"], "Widget");
    assert_eq!(resource["subresources"][0]["subresource"], "status");
    let etag = answer.head.headers["etag"].to_str().unwrap().to_owned();
    let (status, _) = get(
        &discovery,
        &registry,
        "/apis",
        &[accept, ("if-none-match", &etag)],
    )
    .await;
    assert_eq!(status, 304);
    registry.set_custom("widgets.example.com", vec![widget("v1")]);
    let (status, _) = get(
        &discovery,
        &registry,
        "/apis",
        &[accept, ("if-none-match", &etag)],
    )
    .await;
    assert_eq!(status, 200);
}

#[tokio::test]
async fn schemas_are_found_by_kind_and_kept_until_they_change() {
    let (discovery, registry) = (Discovery::default(), registry());
    let (_, index) = get(&discovery, &registry, "/openapi/v3", &[]).await;
    let address = index.value["paths"]["apis/example.com/v1"]["serverRelativeURL"]
        .as_str()
        .unwrap()
        .to_owned();
    let (status, answer) = get(&discovery, &registry, &address, &[]).await;
    assert_eq!(status, 200);
    assert!(
        answer.head.headers["cache-control"]
            .to_str()
            .unwrap()
            .contains("immutable")
    );
    let schema = &answer.value["components"]["schemas"]["com.example.v1.Widget"];
    assert_eq!(schema["x-kubernetes-group-version-kind"][0]["kind"], "Widget");
    assert_eq!(
        schema["properties"]["spec"]["properties"]["size"]["type"],
        "integer"
    );
    let patch = &answer.value["paths"]["/apis/example.com/v1/namespaces/{namespace}/widgets/{name}"]["patch"];
    assert_eq!(patch["x-kubernetes-group-version-kind"]["kind"], "Widget");
    let names: Vec<&str> = patch["parameters"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|p| p["name"].as_str())
        .collect();
    assert_eq!(names, ["dryRun", "fieldManager", "fieldValidation", "force"]);
    assert!(
        patch["requestBody"]["content"]
            .get("application/strategic-merge-patch+json")
            .is_none()
    );
    let (status, moved) = get(
        &discovery,
        &registry,
        "/openapi/v3/apis/example.com/v1?hash=OLD",
        &[],
    )
    .await;
    assert_eq!(
        (status, moved.head.headers["location"].to_str().unwrap()),
        (301, address.as_str())
    );
}

/// Every reference of every document leads to a schema in it.
#[tokio::test]
async fn documents_are_complete() {
    let registry = Registry::new(crate::builtin::resource_types());
    registry.set_custom("widgets.example.com", vec![widget("v1")]);
    let discovery = Discovery::default();
    let (_, index) = get(&discovery, &registry, "/openapi/v3", &[]).await;
    for (path, _) in index.value["paths"].as_object().unwrap() {
        let (_, document) = get(&discovery, &registry, &format!("/openapi/v3/{path}"), &[]).await;
        let mut references = Vec::new();
        collect(&document.value, &mut references);
        assert!(!references.is_empty(), "{path}");
        for reference in references {
            let pointer = reference.strip_prefix('#').unwrap();
            assert!(document.value.pointer(pointer).is_some(), "{path}: {reference}");
        }
    }
}

fn collect(value: &Value, references: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                match value.as_str() {
                    Some(reference) if key == "$ref" => references.push(reference.to_owned()),
                    _ => collect(value, references),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, references)),
        _ => {}
    }
}

#[tokio::test]
async fn the_server_says_its_version_and_that_it_is_well() {
    let (_, answer) = get(&Discovery::default(), &registry(), "/version", &[]).await;
    assert_eq!(
        (&answer.value["major"], &answer.value["minor"]),
        (&json!("1"), &json!("36"))
    );
    let (_, answer) = get(&Discovery::default(), &registry(), "/readyz", &[]).await;
    assert_eq!(&answer.body[..], b"ok");
    let (_, answer) = get(&Discovery::default(), &registry(), "/livez?verbose", &[]).await;
    assert_eq!(&answer.body[..], b"[+]ping ok\nlivez check passed\n");
    let (_, answer) = get(&Discovery::default(), &registry(), "/", &[]).await;
    assert!(
        answer.value["paths"]
            .as_array()
            .unwrap()
            .contains(&json!("/apis/example.com/v1"))
    );
}

#[test]
fn discovery_is_only_read() {
    let parts = Request::post("/apis").body(()).unwrap().into_parts().0;
    assert_eq!(
        Discovery::default()
            .respond(&registry(), &parts)
            .unwrap()
            .status(),
        405
    );
}
