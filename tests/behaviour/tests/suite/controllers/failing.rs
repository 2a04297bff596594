//! A server that fails for ever at something is told of in the status, once.

use std::time::Duration;

use http::StatusCode;
use kaos_apiserver::{Call, Fault};
use kaos_testkit::Faults;
use serde_json::{Value, json};

use super::world::{World, condition, env, is_current, message};

fn unavailable() -> Fault {
    Fault::Error(StatusCode::SERVICE_UNAVAILABLE, "out of order".to_owned())
}

fn agent(variables: Value) -> Value {
    json!({"modelAPI": "models", "model": "m", "container": {"env": variables}})
}

async fn world_of_sam(faults: &Faults) -> World {
    let mut world = World::start_with_faults(faults.clone()).await;
    world.start_node();
    world.mock_models().await;
    world.spec("agents", "sam", agent(json!([]))).await;
    world.ready("agents", "sam").await;
    // It looks at its pods again and again, which takes long where much time passes.
    world.stop_node();
    world
}

async fn sam(world: &World) -> Value {
    world.get("agents", "sam").await.unwrap()
}

/// What is said of what cannot be written, if anything.
fn not_applied(object: &Value) -> Option<String> {
    let reconciling = condition(object, "Reconciling");
    (reconciling["reason"] == "NotApplied").then(|| {
        assert_eq!(reconciling["status"], "True", "{object}");
        reconciling["message"].as_str().unwrap().to_owned()
    })
}

/// From now on nothing fails. Returns after the longest wait between two passes.
async fn the_server_recovers(world: &mut World, faults: &Faults) {
    faults.stop();
    tokio::time::sleep(Duration::from_secs(310)).await;
    world.start_node();
}

/// What is told after a while of failures, and that it is told once.
async fn told_once(world: &World, before: &Value) -> Value {
    tokio::time::sleep(Duration::from_secs(45)).await;
    assert_eq!(not_applied(&sam(world).await), None, "it may yet pass");
    tokio::time::sleep(Duration::from_secs(150)).await;
    let told = sam(world).await;
    assert!(not_applied(&told).is_some(), "{told}");
    assert_eq!(condition(&told, "Ready"), condition(before, "Ready"));
    world.calls().clear();
    tokio::time::sleep(Duration::from_secs(900)).await;
    assert_eq!(
        sam(world).await["metadata"]["resourceVersion"],
        told["metadata"]["resourceVersion"]
    );
    let mut statuses = world.calls().writes();
    statuses.retain(|call| call.path.contains("/status"));
    assert_eq!(statuses, [], "it has been told");
    told
}

#[tokio::test(start_paused = true)]
async fn an_apply_that_fails_for_ever_is_told_beside_what_the_status_said() {
    let faults = Faults::default();
    let mut world = world_of_sam(&faults).await;
    let before = sam(&world).await;
    let refused = faults.inject(usize::MAX, unavailable(), |call: &Call| {
        call.verb == "apply" && call.resource == "deployments"
    });
    world
        .spec("agents", "sam", agent(json!([{"name": "NEW", "value": "1"}])))
        .await;
    let told = told_once(&world, &before).await;
    let text = not_applied(&told).unwrap();
    assert!(
        text.starts_with("Deployment agent-sam cannot be updated: out of order; so since 2026-01-01T00:0"),
        "{text}"
    );
    assert!(
        !is_current(&told),
        "nothing is said of the new generation: {told}"
    );
    assert_eq!(message(&told), message(&before));
    assert_eq!(
        condition(&told, "Reconciling")["observedGeneration"],
        told["metadata"]["generation"]
    );

    assert!(refused.fired() > 2, "{refused:?}");
    the_server_recovers(&mut world, &faults).await;
    let ready = world.ready("agents", "sam").await;
    assert_eq!(not_applied(&ready), None);
    let deployment = world.get("deployments", "agent-sam").await.unwrap();
    assert!(env(&deployment).contains(&"NEW=1".to_owned()), "{deployment}");
}

#[tokio::test(start_paused = true)]
async fn a_first_apply_that_fails_for_ever_is_told_in_a_status_of_its_own() {
    let faults = Faults::default();
    let mut world = World::start_with_faults(faults.clone()).await;
    world.start_node();
    world.mock_models().await;
    world.stop_node();
    let refused = faults.inject(usize::MAX, unavailable(), |call: &Call| {
        call.verb == "apply" && call.resource == "services"
    });
    world.spec("agents", "sam", agent(json!([]))).await;
    tokio::time::sleep(Duration::from_secs(45)).await;
    assert_eq!(sam(&world).await["status"], Value::Null);
    tokio::time::sleep(Duration::from_secs(150)).await;
    let told = sam(&world).await;
    let text = not_applied(&told).unwrap_or_default();
    assert!(
        text.starts_with("Service agent-sam cannot be created: out of order; so since "),
        "{told}"
    );
    assert_eq!(message(&told), text);
    assert_eq!(condition(&told, "Ready")["status"], "False");
    assert_eq!(told["status"]["observedGeneration"], Value::Null);

    assert!(refused.fired() > 2, "{refused:?}");
    the_server_recovers(&mut world, &faults).await;
    assert_eq!(not_applied(&world.ready("agents", "sam").await), None);
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_fails_for_ever_is_told_of_a_resource_that_is_ready_all_the_same() {
    let faults = Faults::default();
    let mut world = world_of_sam(&faults).await;
    let refused = faults.inject(usize::MAX, unavailable(), |call: &Call| {
        call.verb == "delete" && call.resource == "services"
    });
    let mut hidden = agent(json!([]));
    hidden["agentNetwork"] = json!({"expose": false});
    world.spec("agents", "sam", hidden).await;
    let before = world.ready("agents", "sam").await;
    let told = told_once(&world, &before).await;
    let text = not_applied(&told).unwrap();
    assert!(
        text.starts_with("Service agent-sam cannot be deleted: out of order; so since "),
        "{text}"
    );
    assert!(is_current(&told), "{told}");

    assert!(refused.fired() > 2, "{refused:?}");
    the_server_recovers(&mut world, &faults).await;
    world.until_gone("services", "agent-sam").await;
    assert_eq!(not_applied(&world.ready("agents", "sam").await), None);
}

#[tokio::test(start_paused = true)]
async fn a_resource_that_cannot_go_says_why() {
    for code in [StatusCode::SERVICE_UNAVAILABLE, StatusCode::FORBIDDEN] {
        let faults = Faults::default();
        let mut world = world_of_sam(&faults).await;
        delete_in_vain(&world, &faults, code).await;
        let before = sam(&world).await;
        assert!(before["metadata"]["deletionTimestamp"].is_string(), "{before}");
        let told = told_once(&world, &before).await;
        let text = not_applied(&told).unwrap();
        assert!(
            text.starts_with("failed to remove finalizers: out of order; so since "),
            "{text}"
        );
        the_server_recovers(&mut world, &faults).await;
        world.until_gone("agents", "sam").await;
    }
}

/// Deletes sam, with a finalizer of the operator in Go that cannot be removed.
async fn delete_in_vain(world: &World, faults: &Faults, code: StatusCode) {
    let refusal = Fault::Error(code, "out of order".to_owned());
    // What it says tells whether it was refused.
    let _ = faults.inject(usize::MAX, refusal, |call: &Call| {
        let is_users = call.field_manager.as_deref() == Some("user");
        call.verb == "patch" && call.resource == "agents" && call.subresource.is_none() && !is_users
    });
    let mut object = json!({"spec": agent(json!([]))});
    object["metadata"] = json!({"finalizers": ["kaos.tools/agent-finalizer"]});
    world.apply("agents", "sam", object).await;
    world.delete("agents", "sam").await;
}
