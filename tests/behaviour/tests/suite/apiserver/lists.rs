//! Lists: selectors and pages.

use serde_json::json;

use super::fixtures::{Widgets, names, refusal, version};

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
