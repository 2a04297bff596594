//! What a request may carry, and in what form it is answered.

use kaos_testkit::TestApi;
use serde_json::json;

use super::fixtures::{MERGE, Widgets, names, refusal};

#[tokio::test]
async fn unknown_and_double_fields_are_refused_when_asked() {
    let widgets = Widgets::start().await;
    let body = format!(
        r#"{{"apiVersion":"{}","kind":"Widget","metadata":{{"name":"a"}},"spec":{{"foo":1,"size":2,"size":3,"bar":3}}}}"#,
        widgets.api_version
    );
    let json = [("content-type", "application/json")];
    let strict = format!("{}?fieldValidation=Strict", widgets.path);
    let expected = "Widget in version \"v1\" cannot be handled as a Widget: strict decoding error: duplicate field \
                    \"spec.size\", unknown field \"spec.bar\", unknown field \"spec.foo\"";
    let refused = widgets.api.raw("POST", &strict, &json, body.as_str()).await;
    assert_eq!(refusal(&refused), (400, "BadRequest", expected));
    let (code, stored) = widgets.api.raw("POST", &widgets.path, &json, body.as_str()).await;
    assert_eq!(
        (code, &stored["spec"]),
        (201, &json!({"size": 3, "color": "red"})),
        "the last one counts"
    );

    let patched = widgets
        .patch("a?fieldValidation=Strict", MERGE, json!({"spec": {"foo": 1}}))
        .await;
    let (code, _, message) = refusal(&patched);
    assert!(
        code == 422 && message.ends_with("strict decoding error: unknown field \"spec.foo\""),
        "{message}"
    );
    assert_eq!(
        widgets.patch("a", MERGE, json!({"spec": {"foo": 1}})).await,
        (200, stored)
    );
}

#[tokio::test]
async fn bodies_are_read_in_json_and_yaml_and_nothing_else() {
    let widgets = Widgets::start().await;
    let yaml = format!(
        "apiVersion: {}\nkind: Widget\nmetadata: {{name: from-yaml}}\nspec: {{size: 4}}\n",
        widgets.api_version
    );
    let api = &widgets.api;
    let (code, stored) = api
        .raw(
            "POST",
            &widgets.path,
            &[("content-type", "application/yaml")],
            yaml.as_str(),
        )
        .await;
    assert_eq!((code, &stored["spec"]["size"]), (201, &json!(4)), "{stored}");

    let (code, status) = api
        .raw("POST", &widgets.path, &[("content-type", "text/plain")], "x")
        .await;
    assert_eq!((code, &status["reason"]), (415, &json!("UnsupportedMediaType")));
    for broken in [r#"{"apiVersion":"#, "[]", "null"] {
        let headers = [("content-type", "application/json")];
        let answer = api.raw("POST", &widgets.path, &headers, broken).await;
        assert_eq!(refusal(&answer).0, 400, "{broken}: {}", answer.1);
    }
    let (code, status) = widgets
        .patch("from-yaml", "application/strategic-merge-patch+json", json!({}))
        .await;
    assert_eq!(
        (code, &status["reason"]),
        (415, &json!("UnsupportedMediaType")),
        "custom resources have no such patch"
    );
    let (code, _) = api
        .raw("GET", &widgets.path, &[("accept", "application/x-nothing")], ())
        .await;
    assert_eq!(code, 406);

    let huge = widgets.widget(
        "h",
        json!({"spec": {"size": 1, "color": "x".repeat(3 * 1024 * 1024)}}),
    );
    assert_eq!(widgets.post(&huge).await.0, 413);
}

/// A field of protobuf that is a text or a message. So short ones are texts themselves.
fn field(number: u8, content: &str) -> String {
    let length = u8::try_from(content.len()).unwrap();
    assert!(length < 0x80, "{content}");
    format!("{}{}{content}", char::from(number << 3 | 2), char::from(length))
}

/// An object in protobuf as typed Go clients send it.
fn protobuf(kind: &str, object: &str) -> String {
    let type_meta = field(1, "v1") + &field(2, kind);
    format!("k8s\0{}{}", field(1, &type_meta), field(2, object))
}

#[tokio::test]
async fn built_in_kinds_are_read_in_protobuf_as_well() {
    let api = TestApi::start().await;
    let path = format!("/api/v1/namespaces/{}/configmaps", api.namespace);
    let headers = [("content-type", "application/vnd.kubernetes.protobuf")];
    let send = async |method: &str, path: &str, body: &str| api.raw(method, path, &headers, body).await;
    let named = |name: &str, entry: &str| field(1, &field(1, name)) + &field(2, entry);

    let body = protobuf("ConfigMap", &named("a", &(field(1, "key") + &field(2, "value"))));
    let (code, stored) = send("POST", &path, &body).await;
    assert_eq!(
        (code, &stored["data"]),
        (201, &json!({"key": "value"})),
        "{stored}"
    );
    let one = format!("{path}/a");
    let body = protobuf("ConfigMap", &named("a", &field(1, "empty")));
    let (code, stored) = send("PUT", &one, &body).await;
    assert_eq!((code, &stored["data"]), (200, &json!({"empty": ""})), "{stored}");

    for (body, why) in [
        ("{}".to_owned(), "does not appear to be a protobuf message"),
        ("k8s\0\u{a}\u{5}v1".to_owned(), ""),
        (protobuf("ConfigMap", "\u{a}\u{5}x"), ""),
        (
            protobuf("ConfigMap", &named("A B", &field(1, "k"))),
            "metadata.name: Invalid value",
        ),
        (protobuf("Secret", &named("b", "")), ""),
    ] {
        let (code, status) = send("POST", &path, &body).await;
        let message = status["message"].as_str().unwrap_or_default();
        assert!(
            (400..=422).contains(&code) && message.contains(why),
            "{code} {status}"
        );
    }

    let options = |uid: &str| protobuf("DeleteOptions", &field(2, &field(1, uid)));
    assert_eq!(send("DELETE", &one, &options("another")).await.0, 409);
    let uid = stored["metadata"]["uid"].as_str().unwrap();
    assert_eq!(send("DELETE", &one, &options(uid)).await.0, 200);
    assert_eq!(api.raw("GET", &one, &[], ()).await.0, 404);
}

#[tokio::test]
async fn what_nests_too_deep_is_refused() {
    let api = TestApi::start().await;
    let path = format!("/api/v1/namespaces/{}/configmaps", api.namespace);
    let deep = format!("{}1{}", r#"{"a":"#.repeat(20_000), "}".repeat(20_000));
    let (code, status) = api
        .raw(
            "POST",
            &path,
            &[("content-type", "application/json")],
            deep.as_str(),
        )
        .await;
    assert_eq!((code, &status["reason"]), (400, &json!("BadRequest")), "{status}");
}

#[tokio::test]
async fn wrong_kinds_and_methods_are_refused() {
    let widgets = Widgets::start().await;
    let mut wrong = widgets.widget("a", json!({"spec": {"size": 1}}));
    wrong["kind"] = json!("Gadget");
    let (code, reason, message) = {
        let answer = widgets.post(&wrong).await;
        let (code, reason, message) = refusal(&answer);
        (code, reason.to_owned(), message.to_owned())
    };
    assert_eq!((code, reason.as_str()), (422, "Invalid"));
    assert!(
        message.ends_with("kind: Invalid value: \"Gadget\": must be Widget"),
        "{message}"
    );
    wrong["kind"] = json!("Widget");
    wrong["apiVersion"] = json!("example.com/v9");
    let expected = format!(
        "the API version in the data (example.com/v9) does not match the expected API version ({})",
        widgets.api_version
    );
    assert_eq!(
        refusal(&widgets.post(&wrong).await),
        (400, "BadRequest", expected.as_str())
    );

    let put = widgets.api.raw("PUT", &widgets.path, &[], json!({})).await;
    assert_eq!(refusal(&put), (400, "BadRequest", "name must be provided"));
    let expected = "the server does not allow this method on the requested resource";
    let post = widgets
        .api
        .raw(
            "POST",
            "/api/v1/configmaps",
            &[],
            json!({"metadata": {"name": "a"}}),
        )
        .await;
    assert_eq!(refusal(&post), (405, "MethodNotAllowed", expected));
}

#[tokio::test]
async fn only_the_metadata_is_sent_when_asked() {
    let widgets = Widgets::start().await;
    widgets.create("a", 1).await;
    let accept = [(
        "accept",
        "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
    )];
    let (_, one) = widgets
        .api
        .raw("GET", &format!("{}/a", widgets.path), &accept, ())
        .await;
    assert_eq!(
        (&one["kind"], one.get("spec")),
        (&json!("PartialObjectMetadata"), None)
    );
    let accept = [(
        "accept",
        "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
    )];
    let (_, list) = widgets.api.raw("GET", &widgets.path, &accept, ()).await;
    assert_eq!(list["kind"], "PartialObjectMetadataList");
    assert_eq!(
        (names(&list), list["items"][0].get("spec")),
        (vec!["a".to_owned()], None)
    );
}
