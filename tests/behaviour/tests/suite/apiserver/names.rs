//! What objects are called: names that are checked, generated, unique, and the same in body and path.

use serde_json::{Value, json};

use super::fixtures::{MERGE, Widgets, refusal};

#[tokio::test]
async fn names_are_generated_checked_and_unique() {
    let widgets = Widgets::start().await;
    let generated = json!({
        "apiVersion": widgets.api_version, "kind": "Widget",
        "metadata": {"generateName": "g-"}, "spec": {"size": 1},
    });
    let (one, other) = (widgets.post(&generated).await.1, widgets.post(&generated).await.1);
    let name = |widget: &Value| widget["metadata"]["name"].as_str().unwrap().to_owned();
    assert!(name(&one).starts_with("g-") && name(&one).len() == 7, "{one}");
    assert_ne!(name(&one), name(&other));

    widgets.create("a", 1).await;
    let again = widgets
        .post(&widgets.widget("a", json!({"spec": {"size": 1}})))
        .await;
    let expected = format!("{} \"a\" already exists", widgets.resource);
    assert_eq!(refusal(&again), (409, "AlreadyExists", expected.as_str()));
    assert_eq!(again.1["details"]["kind"], "widgets");

    let bad = widgets
        .post(&widgets.widget("A_b", json!({"spec": {"size": 1}})))
        .await;
    let (code, reason, message) = refusal(&bad);
    assert_eq!((code, reason), (422, "Invalid"));
    let start = format!(
        "{} \"A_b\" is invalid: metadata.name: Invalid value: \"A_b\": a lowercase RFC 1123",
        widgets.kind
    );
    assert!(message.starts_with(&start), "{message}");
    assert_eq!(bad.1["details"]["causes"][0]["field"], "metadata.name");

    let nameless =
        json!({"apiVersion": widgets.api_version, "kind": "Widget", "metadata": {}, "spec": {"size": 1}});
    let expected = format!(
        "{} \"\" is invalid: metadata.name: Required value: name or generateName is required",
        widgets.kind
    );
    assert_eq!(
        refusal(&widgets.post(&nameless).await),
        (422, "Invalid", expected.as_str())
    );
}

#[tokio::test]
async fn what_is_not_there_is_not_found() {
    let widgets = Widgets::start().await;
    let expected = format!("{} \"x\" not found", widgets.resource);
    let missing = widgets.get("x").await;
    assert_eq!(refusal(&missing), (404, "NotFound", expected.as_str()));
    assert_eq!(missing.1["details"]["name"], "x");
    assert_eq!(
        refusal(&widgets.delete("x").await),
        (404, "NotFound", expected.as_str())
    );
    assert_eq!(
        refusal(&widgets.patch("x", MERGE, json!({})).await),
        (404, "NotFound", expected.as_str())
    );

    let api = &widgets.api;
    let unknown = api
        .raw(
            "GET",
            &format!("/api/v1/namespaces/{}/gadgets", api.namespace),
            &[],
            (),
        )
        .await;
    assert_eq!(
        refusal(&unknown),
        (
            404,
            "NotFound",
            "the server could not find the requested resource"
        )
    );
    let (code, page) = api
        .raw("GET", "/apis/nobody.example.com/v1/things", &[], ())
        .await;
    assert_eq!((code, page), (404, json!("404 page not found\n")));

    let nowhere = widgets.path.replace(
        &format!("/namespaces/{}/", api.namespace),
        "/namespaces/no-such-namespace/",
    );
    let lost = api
        .raw(
            "POST",
            &nowhere,
            &[],
            widgets.widget("a", json!({"spec": {"size": 1}})),
        )
        .await;
    assert_eq!(
        refusal(&lost),
        (404, "NotFound", "namespaces \"no-such-namespace\" not found")
    );
}

#[tokio::test]
async fn names_in_body_and_path_agree() {
    let widgets = Widgets::start().await;
    let stored = widgets.create("a", 1).await;
    let mut renamed = stored.clone();
    renamed["metadata"]["name"] = json!("b");
    let expected = "the name of the object (b) does not match the name on the URL (a)";
    assert_eq!(
        refusal(&widgets.put("a", &renamed).await),
        (400, "BadRequest", expected)
    );
    let patched = widgets
        .patch("a", MERGE, json!({"metadata": {"name": "b"}}))
        .await;
    assert_eq!(refusal(&patched), (400, "BadRequest", expected));
    let elsewhere = widgets.widget(
        "c",
        json!({"metadata": {"namespace": "other"}, "spec": {"size": 1}}),
    );
    let expected = "the namespace of the provided object does not match the namespace sent on the request";
    assert_eq!(
        refusal(&widgets.post(&elsewhere).await),
        (400, "BadRequest", expected)
    );

    let uid = widgets
        .patch("a", MERGE, json!({"metadata": {"uid": "other"}}))
        .await;
    let expected = format!(
        "{} \"a\" is invalid: metadata.uid: Invalid value: \"other\": field is immutable",
        widgets.kind
    );
    assert_eq!(refusal(&uid), (422, "Invalid", expected.as_str()));
}
