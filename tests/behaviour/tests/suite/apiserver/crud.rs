//! Creating, reading and changing objects, and what the server says when it refuses.

use kaos_testkit::TestApi;
use serde_json::{Value, json};

use super::fixtures::{APPLY, JSON_PATCH, MERGE, Widgets, refusal, version};

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
