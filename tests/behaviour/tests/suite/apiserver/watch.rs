//! Watches: from where they start, what they show, and how they end.

use std::time::Duration;

use serde_json::{Value, json};

use super::fixtures::{MERGE, Widgets, refusal, version};

fn seen(event: &Value) -> (&str, &str) {
    (
        event["type"].as_str().unwrap(),
        event["object"]["metadata"]["name"].as_str().unwrap_or_default(),
    )
}

#[tokio::test]
async fn a_watch_from_a_version_shows_every_later_change_in_order() {
    let widgets = Widgets::start().await;
    let first = widgets.create("a", 1).await;
    let mut watch = widgets
        .api
        .watch(&format!("{}?resourceVersion={}", widgets.path, version(&first)))
        .await;
    widgets.create("b", 1).await;
    let changed = widgets.patch("a", MERGE, json!({"spec": {"size": 2}})).await.1;
    widgets.patch("a", MERGE, json!({"spec": {"size": 2}})).await;
    widgets.delete("a").await;
    let added = watch.next().await.unwrap();
    assert_eq!(seen(&added), ("ADDED", "b"));
    let modified = watch.next().await.unwrap();
    assert_eq!(
        (seen(&modified), &modified["object"]),
        (("MODIFIED", "a"), &changed)
    );
    let deleted = watch.next().await.unwrap();
    assert_eq!(
        seen(&deleted),
        ("DELETED", "a"),
        "the write without a change is no event"
    );
    let number = |value: &Value| version(value).parse::<u64>().unwrap();
    assert!(
        number(&deleted["object"]) > number(&changed),
        "a deletion has a version of its own"
    );
}

#[tokio::test]
async fn a_watch_without_a_version_starts_with_what_is_there() {
    let widgets = Widgets::start().await;
    widgets.create("a", 1).await;
    widgets.create("b", 1).await;
    for query in ["", "?resourceVersion=0"] {
        let mut watch = widgets.api.watch(&format!("{}{query}", widgets.path)).await;
        assert_eq!(seen(&watch.next().await.unwrap()), ("ADDED", "a"), "{query}");
        assert_eq!(seen(&watch.next().await.unwrap()), ("ADDED", "b"), "{query}");
    }
}

#[tokio::test]
async fn a_streamed_list_ends_with_a_bookmark() {
    let widgets = Widgets::start().await;
    widgets.create("a", 1).await;
    let query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut watch = widgets.api.watch(&format!("{}?{query}", widgets.path)).await;
    assert_eq!(seen(&watch.next().await.unwrap()), ("ADDED", "a"));
    let bookmark = watch.next().await.unwrap();
    assert_eq!(bookmark["type"], "BOOKMARK");
    assert_eq!(
        bookmark["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"],
        "true"
    );
    widgets.create("b", 1).await;
    assert_eq!(seen(&watch.next().await.unwrap()), ("ADDED", "b"));

    let path = |query: &str| format!("{}?{query}", widgets.path);
    let refused = widgets
        .api
        .raw("GET", &path("watch=true&sendInitialEvents=true"), &[], ())
        .await;
    let expected = "ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: sendInitialEvents \
                    requires setting resourceVersionMatch to NotOlderThan";
    assert_eq!(refusal(&refused), (422, "Invalid", expected));
    let refused = widgets
        .api
        .raw("GET", &path("sendInitialEvents=true"), &[], ())
        .await;
    let expected = "ListOptions.meta.k8s.io \"\" is invalid: sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list";
    assert_eq!(refusal(&refused), (422, "Invalid", expected));
}

#[tokio::test]
async fn what_enters_a_selection_is_added_and_what_leaves_it_deleted() {
    let widgets = Widgets::start().await;
    let first = widgets.create("a", 1).await;
    let query = format!("labelSelector=on%3Dyes&resourceVersion={}", version(&first));
    let mut watch = widgets.api.watch(&format!("{}?{query}", widgets.path)).await;
    let label = |value: Value| json!({"metadata": {"labels": {"on": value}}});
    widgets.patch("a", MERGE, label(json!("no"))).await;
    let entered = widgets.patch("a", MERGE, label(json!("yes"))).await.1;
    widgets.patch("a", MERGE, json!({"spec": {"size": 2}})).await;
    let left = widgets.patch("a", MERGE, label(json!(null))).await.1;
    widgets.patch("a", MERGE, label(json!("yes"))).await;
    widgets.delete("a").await;
    let added = watch.next().await.unwrap();
    assert_eq!(
        (seen(&added), version(&added["object"])),
        (("ADDED", "a"), version(&entered))
    );
    assert_eq!(seen(&watch.next().await.unwrap()), ("MODIFIED", "a"));
    let deleted = watch.next().await.unwrap();
    assert_eq!(
        (seen(&deleted), version(&deleted["object"])),
        (("DELETED", "a"), version(&left))
    );
    assert_eq!(
        deleted["object"]["metadata"]["labels"]["on"], "yes",
        "as it last was in the selection"
    );
    assert_eq!(seen(&watch.next().await.unwrap()), ("ADDED", "a"));
    assert_eq!(seen(&watch.next().await.unwrap()), ("DELETED", "a"));
}

#[tokio::test]
async fn a_watch_ends_when_its_time_is_up() {
    let widgets = Widgets::start().await;
    widgets.create("a", 1).await;
    let query = "resourceVersion=0&timeoutSeconds=1&fieldSelector=metadata.name%3Da";
    let mut watch = widgets.api.watch(&format!("{}?{query}", widgets.path)).await;
    assert_eq!(seen(&watch.next().await.unwrap()), ("ADDED", "a"));
    assert_eq!(watch.next().await, None);
}

#[tokio::test]
async fn a_watch_of_one_namespace_hears_nothing_of_others() {
    let widgets = Widgets::start().await;
    let other = kaos_testkit::TestApi::start().await;
    let first = widgets.create("a", 1).await;
    let here = format!(
        "/api/v1/namespaces/{}/configmaps?resourceVersion={}",
        widgets.api.namespace,
        version(&first)
    );
    let mut watch = widgets.api.watch(&here).await;
    let elsewhere = format!("/api/v1/namespaces/{}/configmaps", other.namespace);
    assert_eq!(
        other
            .raw("POST", &elsewhere, &[], json!({"metadata": {"name": "theirs"}}))
            .await
            .0,
        201
    );
    let own = format!("/api/v1/namespaces/{}/configmaps", widgets.api.namespace);
    assert_eq!(
        widgets
            .api
            .raw("POST", &own, &[], json!({"metadata": {"name": "ours"}}))
            .await
            .0,
        201
    );
    loop {
        let event = watch.next().await.unwrap();
        // A cluster puts a certificate into every namespace.
        if seen(&event) != ("ADDED", "kube-root-ca.crt") {
            assert_eq!(seen(&event), ("ADDED", "ours"));
            break;
        }
    }
}

#[tokio::test]
async fn a_version_that_history_forgot_is_gone() {
    let widgets = Widgets::on(kaos_testkit::TestApi::embedded().await).await;
    let first = widgets.create("a", 1).await;
    let (_, page) = widgets
        .api
        .raw("GET", &format!("{}?limit=1", widgets.path), &[], ())
        .await;
    assert_eq!(page["metadata"].get("continue"), None);
    widgets.create("b", 1).await;
    let (_, page) = widgets
        .api
        .raw("GET", &format!("{}?limit=1", widgets.path), &[], ())
        .await;
    let token = page["metadata"]["continue"].as_str().unwrap().to_owned();
    let mut old = widgets
        .api
        .watch(&format!("{}?resourceVersion={}", widgets.path, version(&first)))
        .await;
    assert_eq!(seen(&old.next().await.unwrap()), ("ADDED", "b"));
    widgets.create("c", 1).await;
    widgets.api.server.as_ref().unwrap().compact();

    let mut late = widgets
        .api
        .watch(&format!("{}?resourceVersion={}", widgets.path, version(&first)))
        .await;
    let error = late.next().await.unwrap();
    assert_eq!(
        (&error["type"], &error["object"]["code"]),
        (&json!("ERROR"), &json!(410)),
        "{error}"
    );
    assert_eq!(error["object"]["reason"], "Expired");
    assert_eq!(late.next().await, None);

    let list = widgets
        .api
        .raw(
            "GET",
            &format!("{}?limit=1&continue={token}", widgets.path),
            &[],
            (),
        )
        .await;
    assert_eq!((list.0, refusal(&list).1), (410, "Expired"));
    let exact = format!(
        "{}?resourceVersion={}&resourceVersionMatch=Exact",
        widgets.path,
        version(&first)
    );
    let list = widgets.api.raw("GET", &exact, &[], ()).await;
    assert_eq!((list.0, refusal(&list).1), (410, "Expired"));
}

#[tokio::test]
async fn versions_from_the_future_are_refused_for_reads() {
    let widgets = Widgets::start().await;
    let (code, status) = widgets
        .api
        .raw(
            "GET",
            &format!("{}?resourceVersion=999999999", widgets.path),
            &[],
            (),
        )
        .await;
    assert_eq!((code, &status["reason"]), (504, &json!("Timeout")));
    assert_eq!(
        status["details"]["causes"][0]["reason"],
        "ResourceVersionTooLarge"
    );
}

#[tokio::test(start_paused = true)]
async fn bookmarks_keep_an_idle_watch_young() {
    let widgets = Widgets::on(kaos_testkit::TestApi::embedded().await).await;
    let first = widgets.create("a", 1).await;
    let query = format!("allowWatchBookmarks=true&resourceVersion={}", version(&first));
    let mut watch = widgets.api.watch(&format!("{}?{query}", widgets.path)).await;
    let path = format!("/api/v1/namespaces/{}/configmaps", widgets.api.namespace);
    let (_, other) = widgets
        .api
        .raw("POST", &path, &[], json!({"metadata": {"name": "x"}}))
        .await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let bookmark = watch.next().await.unwrap();
    assert_eq!(bookmark["type"], "BOOKMARK");
    assert_eq!(
        version(&bookmark["object"]),
        version(&other),
        "it knows that nothing else happened"
    );
}
