//! Server-side apply of children, and what of others it must not touch.

use http::Method;
use k8s_openapi::api::core::v1::ConfigMap;
use kaos_kube_ext::{Applier, ApplyError};
use kaos_testkit::TestApi;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::json;

use super::interposed::Interposed;
use super::{US, apply, child, data, foreign, owner};

#[tokio::test]
async fn what_is_not_there_is_made_and_what_is_as_wanted_is_left_alone() {
    let api = TestApi::start().await;
    let owner = owner(&api).await;
    let (client, calls) = api.client_of_namespace().await;
    let applier = Applier::new(client, US);

    let wanted = child(&api, &owner, &[("a", "1"), ("b", "2")]);
    let made = apply(&applier, &wanted).await.unwrap();
    assert_eq!(data(&made), [("a", "1"), ("b", "2")]);
    assert_eq!(calls.writes().len(), 1);

    calls.clear();
    let same = apply(&applier, &wanted).await.unwrap();
    assert_eq!(same.metadata.resource_version, made.metadata.resource_version);
    assert_eq!(calls.writes(), []);

    let changed = apply(&applier, &child(&api, &owner, &[("a", "2")]))
        .await
        .unwrap();
    assert_eq!(data(&changed), [("a", "2")]);
    assert_eq!(changed.metadata.uid, made.metadata.uid);
    assert_eq!(calls.writes().len(), 1);
}

#[tokio::test]
async fn an_object_of_somebody_else_is_reported_and_not_touched() {
    let api = TestApi::start().await;
    let owner = owner(&api).await;
    let maps = api.api::<ConfigMap>();
    let theirs = maps.create(&PostParams::default(), &foreign(&api)).await.unwrap();
    let applied = apply(
        &Applier::new(api.client.clone(), US),
        &child(&api, &owner, &[("a", "1")]),
    )
    .await;
    assert_foreign(applied);
    assert_eq!(maps.get("child").await.unwrap(), theirs);
}

#[tokio::test]
async fn an_object_that_somebody_makes_after_the_look_is_not_touched() {
    let api = TestApi::start().await;
    let owner = owner(&api).await;
    let (namespace, theirs) = (api.namespace.clone(), foreign(&api));
    let interposed = Interposed::before(Method::PATCH, 1, &api.client, move |client| {
        let (maps, theirs) = (Api::<ConfigMap>::namespaced(client, &namespace), theirs.clone());
        async move { drop(maps.create(&PostParams::default(), &theirs).await.unwrap()) }
    });
    let applied = apply(
        &Applier::new(interposed.client.clone(), US),
        &child(&api, &owner, &[("a", "1")]),
    )
    .await;
    assert_eq!(interposed.acted(), 1);
    assert_foreign(applied);
    let live = api.api::<ConfigMap>().get("child").await.unwrap();
    assert_eq!(data(&live), [("theirs", "1")]);
    assert_eq!(live.metadata.owner_references, None);
    let managers: Vec<_> = live.metadata.managed_fields.into_iter().flatten().collect();
    assert!(
        managers.iter().all(|entry| entry.manager.as_deref() != Some(US)),
        "{managers:?}"
    );
}

#[tokio::test]
async fn an_object_that_another_of_us_makes_after_the_look_is_ours() {
    let api = TestApi::start().await;
    let owner = owner(&api).await;
    let earlier = child(&api, &owner, &[("a", "0"), ("b", "0")]);
    let interposed = Interposed::before(Method::PATCH, 1, &api.client, move |client| {
        let earlier = earlier.clone();
        async move { drop(apply(&Applier::new(client, US), &earlier).await.unwrap()) }
    });
    let wanted = child(&api, &owner, &[("a", "1")]);
    let applied = apply(&Applier::new(interposed.client.clone(), US), &wanted).await;
    assert_eq!(interposed.acted(), 1);
    assert_eq!(data(&applied.unwrap()), [("a", "1")]);
}

#[tokio::test]
async fn an_object_that_somebody_puts_in_the_place_of_ours_is_not_touched() {
    let api = TestApi::start().await;
    let owner = owner(&api).await;
    let ours = Applier::new(api.client.clone(), US);
    apply(&ours, &child(&api, &owner, &[("a", "1")])).await.unwrap();

    let (namespace, theirs) = (api.namespace.clone(), foreign(&api));
    let interposed = Interposed::before(Method::PATCH, 1, &api.client, move |client| {
        let (maps, theirs) = (Api::<ConfigMap>::namespaced(client, &namespace), theirs.clone());
        async move {
            maps.delete("child", &DeleteParams::default()).await.unwrap();
            maps.create(&PostParams::default(), &theirs).await.unwrap();
        }
    });
    let applied = apply(
        &Applier::new(interposed.client.clone(), US),
        &child(&api, &owner, &[("a", "2")]),
    )
    .await;
    assert_eq!(interposed.acted(), 1);
    assert_foreign(applied);
    let live = api.api::<ConfigMap>().get("child").await.unwrap();
    assert_eq!(data(&live), [("theirs", "1")]);
}

#[tokio::test]
async fn an_object_that_somebody_deletes_after_the_look_is_made_anew() {
    let api = TestApi::start().await;
    let owner = owner(&api).await;
    let ours = Applier::new(api.client.clone(), US);
    let before = apply(&ours, &child(&api, &owner, &[("a", "1")])).await.unwrap();

    let namespace = api.namespace.clone();
    let interposed = Interposed::before(Method::PATCH, 1, &api.client, move |client| {
        let maps = Api::<ConfigMap>::namespaced(client, &namespace);
        async move { drop(maps.delete("child", &DeleteParams::default()).await.unwrap()) }
    });
    let applied = apply(
        &Applier::new(interposed.client.clone(), US),
        &child(&api, &owner, &[("a", "2")]),
    )
    .await
    .unwrap();
    assert_eq!(interposed.acted(), 1);
    assert_eq!(data(&applied), [("a", "2")]);
    assert_ne!(applied.metadata.uid, before.metadata.uid);
}

#[tokio::test]
async fn an_object_that_somebody_always_deletes_is_given_up_on_for_now() {
    let api = TestApi::start().await;
    let owner = owner(&api).await;
    let ours = child(&api, &owner, &[("a", "1")]);
    apply(&Applier::new(api.client.clone(), US), &ours).await.unwrap();
    // Each time it is there when we look, and gone or another when we write.
    let namespace = api.namespace.clone();
    let interposed = Interposed::before(Method::PATCH, 10, &api.client, move |client| {
        let (maps, ours) = (Api::<ConfigMap>::namespaced(client, &namespace), ours.clone());
        async move {
            maps.delete("child", &DeleteParams::default()).await.unwrap();
            maps.create(&PostParams::default(), &ours).await.unwrap();
        }
    });
    let applied = apply(
        &Applier::new(interposed.client.clone(), US),
        &child(&api, &owner, &[("a", "2")]),
    )
    .await;
    assert!(matches!(applied, Err(ApplyError::Api { .. })), "{applied:?}");
    assert_eq!(interposed.acted(), 5);
}

/// What the two preconditions rest on.
#[tokio::test]
async fn an_apply_may_say_which_object_it_is_for() {
    let api = TestApi::start().await;
    let path = format!(
        "/api/v1/namespaces/{}/configmaps/one?fieldManager=us&force=true",
        api.namespace
    );
    let apply = async |metadata: serde_json::Value| {
        let intent =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": "1"}});
        let headers = [("content-type", "application/apply-patch+yaml")];
        api.raw("PATCH", &path, &headers, intent).await
    };
    const NOBODYS: &str = "11111111-1111-1111-1111-111111111111";
    let (code, answer) = apply(json!({"name": "one", "uid": NOBODYS})).await;
    assert_eq!((code, &answer["reason"]), (409, &json!("Conflict")), "{answer}");
    assert_eq!(
        answer["message"],
        format!(
            "Operation cannot be fulfilled on configmaps \"one\": uid mismatch: the provided object specified uid \
             {NOBODYS}, and no existing object was found"
        )
    );
    let (code, made) = apply(json!({"name": "one", "resourceVersion": "1"})).await;
    assert_eq!(code, 201, "{made}");
    let (code, answer) = apply(json!({"name": "one", "resourceVersion": "1"})).await;
    assert_eq!((code, &answer["reason"]), (409, &json!("Conflict")), "{answer}");
    let (code, answer) = apply(json!({"name": "one", "uid": NOBODYS})).await;
    assert_eq!(
        (code, &answer["details"]["causes"][0]["field"]),
        (422, &json!("metadata.uid")),
        "{answer}"
    );
    let (code, answer) = apply(json!({"name": "one", "uid": made["metadata"]["uid"]})).await;
    assert_eq!(code, 200, "{answer}");
    assert_eq!(
        answer["metadata"]["resourceVersion"],
        made["metadata"]["resourceVersion"]
    );
}

fn assert_foreign(applied: Result<ConfigMap, ApplyError>) {
    let error = applied.unwrap_err();
    assert!(matches!(error, ApplyError::Foreign { .. }), "{error:?}");
    assert_eq!(
        error.to_string(),
        "ConfigMap child exists already and has no controller; delete it, or give this resource another name"
    );
}
