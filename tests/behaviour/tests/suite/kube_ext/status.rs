//! Statuses: written for one object, and taken over from a predecessor.

use http::Method;
use k8s_openapi::api::core::v1::Service;
use kaos_kube_ext::Applier;
use kaos_testkit::TestApi;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::US;
use super::interposed::Interposed;

/// A Service: nobody writes the status of one without a load balancer.
fn service() -> Service {
    serde_json::from_value(json!({
        "metadata": {"name": "one"},
        "spec": {"ports": [{"port": 80}]},
    }))
    .unwrap()
}

fn status(conditions: &[&str]) -> Value {
    let conditions = conditions.iter().map(|kind| {
        json!({"type": kind, "status": "True", "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"})
    });
    json!({ "conditions": conditions.collect::<Vec<_>>() })
}

fn conditions(service: &Service) -> Vec<&str> {
    let status = service.status.iter();
    let conditions = status.flat_map(|status| status.conditions.iter().flatten());
    conditions.map(|condition| condition.type_.as_str()).collect()
}

#[tokio::test]
async fn a_status_is_written_once() {
    let api = TestApi::start().await;
    let services = api.api::<Service>();
    let object = services.create(&PostParams::default(), &service()).await.unwrap();
    let (client, calls) = api.client_of_namespace().await;
    let applier = Applier::new(client, US);
    applier.apply_status(&object, &status(&["A", "B"])).await.unwrap();
    assert_eq!(calls.writes().len(), 1);
    let live = services.get("one").await.unwrap();
    assert_eq!(conditions(&live), ["A", "B"]);

    calls.clear();
    // The store lags behind.
    applier.apply_status(&object, &status(&["A", "B"])).await.unwrap();
    assert_eq!(calls.writes(), []);
    applier.apply_status(&live, &status(&["A", "B"])).await.unwrap();
    assert_eq!(calls.writes(), []);
    applier.apply_status(&live, &status(&["B"])).await.unwrap();
    assert_eq!(conditions(&services.get("one").await.unwrap()), ["B"]);
}

#[tokio::test]
async fn what_a_predecessor_wrote_in_a_status_and_nobody_wants_goes() {
    let api = TestApi::start().await;
    let services = api.api::<Service>();
    services.create(&PostParams::default(), &service()).await.unwrap();
    let params = PatchParams {
        field_manager: Some("before-us".to_owned()),
        ..PatchParams::default()
    };
    let theirs = Patch::Merge(json!({"status": status(&["Old", "Kept"])}));
    let object = services.patch_status("one", &params, &theirs).await.unwrap();
    let (client, calls) = api.client_of_namespace().await;
    let applier = Applier::new(client, US).succeeding(&["before-us"]);
    applier.apply_status(&object, &status(&["Kept"])).await.unwrap();
    let live = services.get("one").await.unwrap();
    assert_eq!(conditions(&live), ["Kept"]);
    assert_eq!(calls.writes().len(), 2, "{:?}", calls.writes());

    calls.clear();
    applier.apply_status(&live, &status(&["Kept"])).await.unwrap();
    assert_eq!(calls.writes(), []);
}

#[tokio::test]
async fn an_object_that_is_put_in_the_place_of_another_does_not_get_its_status() {
    let api = TestApi::start().await;
    let services = api.api::<Service>();
    let object = services.create(&PostParams::default(), &service()).await.unwrap();
    let namespace = api.namespace.clone();
    let interposed = Interposed::before(Method::PATCH, 1, &api.client, move |client| {
        let services: Api<Service> = Api::namespaced(client, &namespace);
        async move {
            services.delete("one", &DeleteParams::default()).await.unwrap();
            services.create(&PostParams::default(), &service()).await.unwrap();
        }
    });
    let applier = Applier::new(interposed.client.clone(), US);
    applier.apply_status(&object, &status(&["A"])).await.unwrap();
    assert_eq!(interposed.acted(), 1);
    assert_eq!(conditions(&services.get("one").await.unwrap()), [""; 0]);
}

#[tokio::test]
async fn a_status_is_written_though_the_object_changes_meanwhile() {
    let api = TestApi::start().await;
    let services = api.api::<Service>();
    let object = services.create(&PostParams::default(), &service()).await.unwrap();
    let namespace = api.namespace.clone();
    let interposed = Interposed::before(Method::PATCH, 1, &api.client, move |client| {
        let services: Api<Service> = Api::namespaced(client, &namespace);
        async move {
            let change = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}));
            services
                .patch("one", &PatchParams::default(), &change)
                .await
                .unwrap();
        }
    });
    let applier = Applier::new(interposed.client.clone(), US);
    applier.apply_status(&object, &status(&["A"])).await.unwrap();
    assert_eq!(interposed.acted(), 1);
    assert_eq!(conditions(&services.get("one").await.unwrap()), ["A"]);
}
