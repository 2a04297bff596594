//! Creating, reading and changing objects, and what the server says when it refuses.

use kaos_testkit::TestApi;
use serde_json::{Value, json};

use super::fixtures::{APPLY, JSON_PATCH, MERGE, Widgets, names, refusal, version};

#[tokio::test]
async fn a_new_object_gets_what_only_the_server_sets() {
    let widgets = Widgets::start().await;
    let sent = widgets.widget(
        "a",
        json!({
            "metadata": {"uid": "mine", "creationTimestamp": "2001-01-01T00:00:00Z", "generation": 7},
            "spec": {"size": 1},
            "status": {"phase": "Done"},
        }),
    );
    let (code, stored) = widgets.post(&sent).await;
    assert_eq!(code, 201, "{stored}");
    let metadata = &stored["metadata"];
    assert_eq!(metadata["namespace"], *widgets.api.namespace);
    assert_eq!(metadata["generation"], 1);
    assert_ne!(metadata["uid"], "mine");
    assert_ne!(metadata["creationTimestamp"], "2001-01-01T00:00:00Z");
    assert!(version(&stored).parse::<u64>().unwrap() > 0);
    assert_eq!(
        stored["spec"],
        json!({"size": 1, "color": "red"}),
        "the default is filled in"
    );
    assert_eq!(stored.get("status"), None, "the status has a door of its own");
    assert_eq!(widgets.get("a").await, (200, stored));
}

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
async fn a_write_that_changes_nothing_writes_nothing() {
    let widgets = Widgets::start().await;
    let stored = widgets.create("a", 1).await;
    assert_eq!(widgets.put("a", &stored).await, (200, stored.clone()));
    assert_eq!(
        widgets.patch("a", MERGE, json!({"spec": {"size": 1}})).await,
        (200, stored.clone())
    );
    assert_eq!(widgets.patch("a", MERGE, json!({})).await, (200, stored.clone()));
    assert_eq!(widgets.get("a").await, (200, stored));
}

#[tokio::test]
async fn the_generation_counts_changes_of_the_spec_only() {
    let widgets = Widgets::start().await;
    let generation = |answer: &(u16, Value)| answer.1["metadata"]["generation"].as_i64().unwrap();
    let created = widgets.create("a", 1).await;
    let labelled = widgets
        .patch("a", MERGE, json!({"metadata": {"labels": {"x": "y"}}}))
        .await;
    assert_eq!(generation(&labelled), 1);
    assert_ne!(version(&labelled.1), version(&created));
    assert_eq!(
        generation(&widgets.patch("a", MERGE, json!({"spec": {"size": 2}})).await),
        2
    );
    assert_eq!(
        generation(
            &widgets
                .patch("a/status", MERGE, json!({"status": {"phase": "x"}}))
                .await
        ),
        2
    );
    let forced = widgets
        .patch("a", MERGE, json!({"metadata": {"generation": 9}}))
        .await;
    assert_eq!(generation(&forced), 2, "it is the server's");
}

#[tokio::test]
async fn status_and_the_rest_do_not_reach_into_each_other() {
    let widgets = Widgets::start().await;
    widgets.create("a", 1).await;
    let both = json!({
        "metadata": {"labels": {"x": "y"}, "finalizers": ["example.com/f"]},
        "spec": {"size": 5},
        "status": {"phase": "Ready"},
    });
    let (code, after) = widgets.patch("a/status", MERGE, both.clone()).await;
    assert_eq!(code, 200, "{after}");
    assert_eq!(
        (&after["spec"]["size"], &after["status"]["phase"]),
        (&json!(1), &json!("Ready"))
    );
    assert_eq!(
        (
            after["metadata"].get("labels"),
            after["metadata"].get("finalizers")
        ),
        (None, None)
    );

    let other =
        json!({"metadata": {"labels": {"x": "y"}}, "spec": {"size": 5}, "status": {"phase": "Broken"}});
    let after = widgets.patch("a", MERGE, other).await.1;
    assert_eq!(
        (&after["spec"]["size"], &after["status"]["phase"]),
        (&json!(5), &json!("Ready"))
    );

    let mut whole = after.clone();
    whole["status"] = json!({"phase": "Put"});
    whole["spec"]["size"] = json!(9);
    let after = widgets.put("a/status", &whole).await.1;
    assert_eq!(
        (&after["spec"]["size"], &after["status"]["phase"]),
        (&json!(5), &json!("Put"))
    );
    let (_, seen) = widgets
        .api
        .raw("GET", &format!("{}/a/status", widgets.path), &[], ())
        .await;
    assert_eq!(seen, after);
}

#[tokio::test]
async fn of_two_writers_of_one_version_the_second_is_told() {
    let widgets = Widgets::start().await;
    let first = widgets.create("a", 1).await;
    let mut changed = first.clone();
    changed["spec"]["size"] = json!(2);
    assert_eq!(widgets.put("a", &changed).await.0, 200);
    let expected = format!(
        "Operation cannot be fulfilled on {} \"a\": the object has been modified; please apply your changes to the \
         latest version and try again",
        widgets.resource
    );
    assert_eq!(
        refusal(&widgets.put("a", &changed).await),
        (409, "Conflict", expected.as_str())
    );
    let stale = json!({"metadata": {"resourceVersion": version(&first)}, "spec": {"size": 3}});
    assert_eq!(
        refusal(&widgets.patch("a", MERGE, stale).await),
        (409, "Conflict", expected.as_str())
    );

    changed["metadata"]
        .as_object_mut()
        .unwrap()
        .remove("resourceVersion");
    let expected = format!(
        "{} \"a\" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update",
        widgets.resource
    );
    assert_eq!(
        refusal(&widgets.put("a", &changed).await),
        (422, "Invalid", expected.as_str())
    );
}

#[tokio::test]
async fn built_in_kinds_are_replaced_without_a_version() {
    let api = TestApi::start().await;
    let path = format!("/api/v1/namespaces/{}/configmaps", api.namespace);
    let map = |value: &str| json!({"metadata": {"name": "a"}, "data": {"k": value}});
    let (code, created) = api.raw("POST", &path, &[], map("1")).await;
    assert_eq!(
        (code, &created["kind"], &created["apiVersion"]),
        (201, &json!("ConfigMap"), &json!("v1"))
    );
    let (code, replaced) = api.raw("PUT", &format!("{path}/a"), &[], map("2")).await;
    assert_eq!((code, &replaced["data"]["k"]), (200, &json!("2")));
    assert_eq!(replaced["metadata"]["uid"], created["metadata"]["uid"]);

    let mut other = map("3");
    other["metadata"]["uid"] = json!("00000000-0000-0000-0000-000000000000");
    let (code, reason, message) = {
        let answer = api.raw("PUT", &format!("{path}/a"), &[], &other).await;
        let (code, reason, message) = refusal(&answer);
        (code, reason.to_owned(), message.to_owned())
    };
    assert_eq!((code, reason.as_str()), (409, "Conflict"));
    assert!(
        message.contains("Precondition failed: UID in precondition: 0000"),
        "{message}"
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

#[tokio::test]
async fn a_dry_run_answers_and_stores_nothing() {
    let widgets = Widgets::start().await;
    let path = format!("{}?dryRun=All", widgets.path);
    let (code, would) = widgets
        .api
        .raw(
            "POST",
            &path,
            &[],
            widgets.widget("a", json!({"spec": {"size": 1}})),
        )
        .await;
    assert_eq!((code, &would["spec"]["color"]), (201, &json!("red")));
    assert_eq!(widgets.get("a").await.0, 404);

    let stored = widgets.create("a", 1).await;
    let (code, would) = widgets
        .patch("a?dryRun=All", MERGE, json!({"spec": {"size": 2}}))
        .await;
    assert_eq!((code, &would["spec"]["size"]), (200, &json!(2)));
    let (code, _) = widgets
        .api
        .raw("DELETE", &format!("{}/a?dryRun=All", widgets.path), &[], ())
        .await;
    assert_eq!(code, 200);
    assert_eq!(widgets.get("a").await, (200, stored));

    let refused = widgets.patch("a?dryRun=Some", MERGE, json!({})).await;
    let expected = "PatchOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [\"Some\"]: supported values: \"All\"";
    assert_eq!(refusal(&refused), (422, "Invalid", expected));
}

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
async fn json_patches_apply_whole_or_not_at_all() {
    let widgets = Widgets::start().await;
    let stored = widgets.create("a", 1).await;
    let good = json!([{"op": "test", "path": "/spec/size", "value": 1}, {"op": "replace", "path": "/spec/size", "value": 2}]);
    let (code, patched) = widgets.patch("a", JSON_PATCH, good.clone()).await;
    assert_eq!((code, &patched["spec"]["size"]), (200, &json!(2)));
    assert_ne!(version(&patched), version(&stored));
    let (code, _) = widgets.patch("a", JSON_PATCH, good).await;
    assert_eq!(code, 422, "the test fails now");
    assert_eq!(widgets.patch("a", JSON_PATCH, json!({"a": 1})).await.0, 400);
    assert_eq!(widgets.get("a").await, (200, patched));
}

#[tokio::test]
async fn apply_creates_and_is_quiet_when_nothing_changes() {
    let widgets = Widgets::start().await;
    let intent = widgets.widget("a", json!({"spec": {"size": 1}}));
    let (code, created) = widgets.patch("a?fieldManager=m", APPLY, intent.clone()).await;
    assert_eq!(
        (code, &created["spec"]["color"]),
        (201, &json!("red")),
        "{created}"
    );
    assert_eq!(
        widgets.patch("a?fieldManager=m", APPLY, intent.clone()).await,
        (200, created.clone())
    );
    assert_eq!(created["metadata"]["managedFields"][0]["operation"], "Apply");

    let nobody = widgets.patch("a", APPLY, intent.clone()).await;
    let expected =
        "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch";
    assert_eq!(refusal(&nobody), (422, "Invalid", expected));
    let lost = widgets
        .patch(
            "b/status?fieldManager=m",
            APPLY,
            widgets.widget("b", json!({"status": {"phase": "x"}})),
        )
        .await;
    assert_eq!(refusal(&lost).0, 404, "a status needs an object");
    let unknown = widgets.widget("a", json!({"spec": {"size": 1, "foo": 1}}));
    let (code, _, message) = {
        let answer = widgets.patch("a?fieldManager=m", APPLY, unknown).await;
        (answer.0, (), answer.1["message"].as_str().unwrap().to_owned())
    };
    assert!(
        code == 500 && message.ends_with(".spec.foo: field not declared in schema"),
        "{code} {message}"
    );
}

#[tokio::test]
async fn scale_is_a_view_of_the_replicas() {
    let widgets = Widgets::start().await;
    let (_, widget) = widgets
        .post(&widgets.widget("a", json!({"spec": {"size": 1, "replicas": 3}})))
        .await;
    let (code, scale) = widgets.get("a/scale").await;
    assert_eq!(
        (code, &scale["kind"], &scale["apiVersion"]),
        (200, &json!("Scale"), &json!("autoscaling/v1"))
    );
    assert_eq!(scale["spec"]["replicas"], 3);
    assert_eq!(version(&scale), version(&widget));
    let (code, scale) = widgets
        .patch("a/scale", MERGE, json!({"spec": {"replicas": 5}}))
        .await;
    assert_eq!((code, &scale["spec"]["replicas"]), (200, &json!(5)));
    let (_, widget) = widgets.get("a").await;
    assert_eq!(
        (&widget["spec"]["replicas"], &widget["metadata"]["generation"]),
        (&json!(5), &json!(2))
    );
}

#[tokio::test]
async fn selectors_choose_and_pages_add_up() {
    let widgets = Widgets::start().await;
    for (name, tier) in [("a", "web"), ("b", "db"), ("c", "web"), ("d", "")] {
        let labels = if tier.is_empty() {
            json!({})
        } else {
            json!({"tier": tier})
        };
        let widget = widgets.widget(name, json!({"metadata": {"labels": labels}, "spec": {"size": 1}}));
        assert_eq!(widgets.post(&widget).await.0, 201);
    }
    assert_eq!(widgets.names("labelSelector=tier%3Dweb").await, ["a", "c"]);
    assert_eq!(
        widgets.names("labelSelector=tier%20notin%20(web)").await,
        ["b", "d"]
    );
    assert_eq!(widgets.names("labelSelector=!tier").await, ["d"]);
    assert_eq!(widgets.names("fieldSelector=metadata.name%3Db").await, ["b"]);
    assert_eq!(
        widgets
            .names("fieldSelector=metadata.name!%3Db,metadata.name!%3Dc")
            .await,
        ["a", "d"]
    );

    let (_, first) = widgets
        .api
        .raw("GET", &format!("{}?limit=3", widgets.path), &[], ())
        .await;
    assert_eq!(names(&first), ["a", "b", "c"]);
    assert_eq!(first["metadata"]["remainingItemCount"], 1);
    widgets.delete("d").await;
    let token = first["metadata"]["continue"].as_str().unwrap();
    let (_, second) = widgets
        .api
        .raw(
            "GET",
            &format!("{}?limit=3&continue={token}", widgets.path),
            &[],
            (),
        )
        .await;
    assert_eq!(
        names(&second),
        ["d"],
        "a list is one moment, however many pages it has"
    );
    assert_eq!(version(&second), version(&first));

    for (query, message) in [
        (
            "labelSelector=a%20in%20b",
            "unable to parse requirement: found 'b' expected: '('",
        ),
        (
            "fieldSelector=spec.size%3D1",
            "field label not supported: spec.size",
        ),
        (
            "fieldSelector=foo",
            "invalid selector: 'foo'; can't understand 'foo'",
        ),
        ("limit=x", "strconv.ParseInt: parsing \"x\": invalid syntax"),
    ] {
        let answer = widgets
            .api
            .raw("GET", &format!("{}?{query}", widgets.path), &[], ())
            .await;
        assert_eq!(refusal(&answer), (400, "BadRequest", message), "{query}");
    }
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
