//! Finalizers that nobody acts on any more.

use k8s_openapi::api::core::v1::ConfigMap;
use kaos_kube_ext::drop_finalizers;
use kaos_testkit::TestApi;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;

fn held_by(finalizers: &[&str]) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": "one", "finalizers": finalizers}})).unwrap()
}

fn finalizers(object: &ConfigMap) -> Vec<&str> {
    let finalizers = object.metadata.finalizers.iter().flatten();
    finalizers.map(String::as_str).collect()
}

#[tokio::test]
async fn named_finalizers_go_and_others_stay() {
    let api = TestApi::start().await;
    let maps = api.api::<ConfigMap>();
    let object = held_by(&["example.com/a", "example.com/b", "example.com/c"]);
    let object = maps.create(&PostParams::default(), &object).await.unwrap();
    let (client, calls) = api.client_of_namespace().await;

    drop_finalizers(&client, &object, &["example.com/z"])
        .await
        .unwrap();
    assert_eq!(calls.all(), []);

    let gone = ["example.com/a", "example.com/c", "example.com/z"];
    drop_finalizers(&client, &object, &gone).await.unwrap();
    let live = maps.get("one").await.unwrap();
    assert_eq!(finalizers(&live), ["example.com/b"]);
    assert_eq!(calls.writes().len(), 1);

    // A store that lags behind.
    drop_finalizers(&client, &object, &gone).await.unwrap();
    assert_eq!(maps.get("one").await.unwrap(), live);

    maps.delete("one", &DeleteParams::default()).await.unwrap();
    drop_finalizers(&client, &live, &["example.com/b"]).await.unwrap();
    assert_eq!(maps.get_opt("one").await.unwrap(), None);
    drop_finalizers(&client, &live, &["example.com/b"]).await.unwrap();
}

#[tokio::test]
async fn a_finalizer_that_somebody_adds_meanwhile_is_not_lost() {
    let api = TestApi::start().await;
    let maps = api.api::<ConfigMap>();
    let object = held_by(&["example.com/a"]);
    let object = maps.create(&PostParams::default(), &object).await.unwrap();
    let added = json!({"metadata": {"finalizers": ["example.com/a", "example.com/new"]}});
    maps.patch("one", &PatchParams::default(), &Patch::Merge(added))
        .await
        .unwrap();
    drop_finalizers(&api.client, &object, &["example.com/a"])
        .await
        .unwrap();
    let live = maps.get("one").await.unwrap();
    assert_eq!(finalizers(&live), ["example.com/a", "example.com/new"]);
    drop_finalizers(&api.client, &live, &["example.com/a"])
        .await
        .unwrap();
    assert_eq!(finalizers(&maps.get("one").await.unwrap()), ["example.com/new"]);
}

#[tokio::test]
async fn another_object_of_the_same_name_keeps_its_finalizers() {
    let api = TestApi::start().await;
    let maps = api.api::<ConfigMap>();
    let object = held_by(&["example.com/a"]);
    let before = maps.create(&PostParams::default(), &object).await.unwrap();
    drop_finalizers(&api.client, &before, &["example.com/a"])
        .await
        .unwrap();
    maps.delete("one", &DeleteParams::default()).await.unwrap();
    maps.create(&PostParams::default(), &object).await.unwrap();
    drop_finalizers(&api.client, &before, &["example.com/a"])
        .await
        .unwrap();
    assert_eq!(finalizers(&maps.get("one").await.unwrap()), ["example.com/a"]);
}
