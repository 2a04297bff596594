//! Events are one resource in two groups, with other names for the same fields.

use kaos_testkit::TestApi;
use serde_json::json;

use super::fixtures::version;

#[tokio::test]
async fn an_event_is_read_in_either_group() {
    let api = TestApi::start().await;
    let newer = format!("/apis/events.k8s.io/v1/namespaces/{}/events", api.namespace);
    let older = format!("/api/v1/namespaces/{}/events", api.namespace);
    let event = json!({
        "metadata": {"name": "e"},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "example.com/controller",
        "reportingInstance": "one",
        "action": "Binding",
        "reason": "Bound",
        "type": "Normal",
        "note": "it fits",
        "regarding": {"kind": "Pod", "namespace": api.namespace, "name": "p"},
    });
    let (code, created) = api.raw("POST", &newer, &[], event).await;
    assert_eq!(
        (code, &created["apiVersion"]),
        (201, &json!("events.k8s.io/v1")),
        "{created}"
    );
    let (code, seen) = api.raw("GET", &format!("{older}/e"), &[], ()).await;
    assert_eq!((code, &seen["apiVersion"]), (200, &json!("v1")), "{seen}");
    assert_eq!(
        (&seen["message"], &seen["involvedObject"]["name"]),
        (&json!("it fits"), &json!("p"))
    );
    assert_eq!(seen["reportingComponent"], "example.com/controller");
    assert_eq!(version(&seen), version(&created));

    let selected = format!("{older}?fieldSelector=involvedObject.name%3Dp,reason%3DBound");
    let (_, list) = api.raw("GET", &selected, &[], ()).await;
    assert_eq!(list["items"].as_array().unwrap().len(), 1);
    let headers = [("content-type", "application/merge-patch+json")];
    let (code, changed) = api
        .raw("PATCH", &format!("{older}/e"), &headers, json!({"count": 3}))
        .await;
    assert_eq!((code, &changed["count"]), (200, &json!(3)), "{changed}");
    let (_, seen) = api.raw("GET", &format!("{newer}/e"), &[], ()).await;
    assert_eq!(
        (&seen["deprecatedCount"], &seen["note"]),
        (&json!(3), &json!("it fits"))
    );
}
