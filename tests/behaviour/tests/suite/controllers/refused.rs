//! What the API server refuses is told, and what somebody can mend is tried again.

use http::StatusCode;
use kaos_apiserver::{Call, Fault};
use kaos_testkit::Faults;
use serde_json::{Value, json};

use super::world::{World, condition, message, mock};

fn agent() -> Value {
    json!({"modelAPI": "models", "model": "m"})
}

fn forbidden() -> Fault {
    Fault::Error(
        StatusCode::FORBIDDEN,
        "the administrator does not want it".to_owned(),
    )
}

#[tokio::test]
async fn a_deployment_that_is_invalid_is_told_in_the_servers_words() {
    let world = World::start().await;
    world.mock_models().await;
    let mut spec = agent();
    spec["podSpec"] = json!({"restartPolicy": "Never"});
    world.spec("agents", "sam", spec).await;
    let failed = world.phase("agents", "sam", "Failed").await;
    let told = message(&failed);
    for part in [
        "Failed to create Deployment: Deployment.apps \"agent-sam\" is invalid: spec.template.spec.restartPolicy",
        "; change spec.podSpec or spec.container, from which it is made",
    ] {
        assert!(told.contains(part), "{told}");
    }
    assert!(!told.contains("Status {") && !told.contains("ApiError"), "{told}");
    assert_eq!(condition(&failed, "Ready")["reason"], "RefusedByServer");
    assert_eq!(condition(&failed, "ConfigurationValid")["status"], "False");
    world.spec("agents", "sam", agent()).await;
    world.ready("agents", "sam").await;
}

/// The requests in which nothing was to be changed yet.
fn rehearsals(world: &World) -> usize {
    let all = world.calls().all();
    all.iter().filter(|call| call.path.contains("dryRun=All")).count()
}

#[tokio::test]
async fn pods_that_are_refused_leave_their_configuration_as_it_was() {
    let world = World::start().await;
    world.mock_models().await;
    assert_eq!(rehearsals(&world), 0, "what is made at once needs none");
    let file = async || {
        let config_map = world.get("configmaps", "litellm-config-models").await.unwrap();
        config_map["data"].clone()
    };
    let before = file().await;
    let mut broken = mock(&["m", "n"]);
    broken["podSpec"] = json!({"restartPolicy": "Never"});
    world.spec("modelapis", "models", broken).await;
    let failed = world.phase("modelapis", "models", "Failed").await;
    assert_eq!(condition(&failed, "Ready")["reason"], "RefusedByServer");
    assert!(
        message(&failed).contains("Failed to update Deployment: "),
        "{failed}"
    );
    assert_eq!(file().await, before, "running pods read it");
    assert!(rehearsals(&world) > 0);

    world.spec("modelapis", "models", mock(&["m", "n"])).await;
    world.ready("modelapis", "models").await;
    assert_ne!(file().await, before);

    // Neither pods that change alone nor what has converged is asked for beforehand.
    world.calls().clear();
    let mut other = mock(&["m", "n"]);
    other["container"] = json!({"env": [{"name": "NEW", "value": "1"}]});
    world.spec("modelapis", "models", other).await;
    world.ready("modelapis", "models").await;
    assert_eq!(rehearsals(&world), 0);
}

#[tokio::test(start_paused = true)]
async fn a_webhook_that_cannot_rehearse_holds_nothing_up() {
    let faults = Faults::default();
    let mut world = World::start_with_faults(faults.clone()).await;
    world.start_node();
    world.mock_models().await;
    let refusal = Fault::Error(
        StatusCode::BAD_REQUEST,
        "admission webhook \"example.com\" does not support dry run".to_owned(),
    );
    let refused = faults.inject(1, refusal, |call: &Call| {
        call.verb == "apply" && call.resource == "deployments"
    });
    world.spec("modelapis", "models", mock(&["m", "n"])).await;
    world.ready("modelapis", "models").await;
    assert_eq!((refused.fired(), rehearsals(&world)), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_is_refused_is_told_and_tried_again() {
    let faults = Faults::default();
    let mut world = World::start_with_faults(faults.clone()).await;
    world.start_node();
    world.mock_models().await;
    world.spec("agents", "sam", agent()).await;
    world.ready("agents", "sam").await;

    let deletions = |call: &Call| call.verb == "delete" && call.resource == "services";
    let refused = faults.inject(usize::MAX, forbidden(), deletions);
    let mut hidden = agent();
    hidden["agentNetwork"] = json!({"expose": false});
    world.spec("agents", "sam", hidden).await;
    let failed = world.phase("agents", "sam", "Failed").await;
    assert!(
        message(&failed).contains("failed to delete Service agent-sam, which is no longer wanted"),
        "{failed}"
    );
    assert!(message(&failed).contains("the administrator"), "{failed}");
    assert_eq!(condition(&failed, "Ready")["reason"], "CleanupFailed");
    assert!(refused.fired() > 0);
    faults.stop();
    world.until_gone("services", "agent-sam").await;
    world.ready("agents", "sam").await;
}

#[tokio::test(start_paused = true)]
async fn finalizers_that_cannot_be_removed_are_told_and_the_rest_goes_on() {
    let faults = Faults::default();
    let mut world = World::start_with_faults(faults.clone()).await;
    world.start_node();
    world.mock_models().await;
    let patches = |call: &Call| {
        call.verb == "patch"
            && call.resource == "agents"
            && call.subresource.is_none()
            && call.field_manager.as_deref() != Some("user")
    };
    let refused = faults.inject(usize::MAX, forbidden(), patches);
    let finalizers = json!(["kaos.tools/agent-finalizer"]);
    let object = json!({"metadata": {"finalizers": finalizers}, "spec": agent()});
    world.apply("agents", "sam", object).await;
    let failed = world.phase("agents", "sam", "Failed").await;
    assert!(
        message(&failed).contains("failed to remove finalizers"),
        "{failed}"
    );
    assert!(world.get("deployments", "agent-sam").await.is_some());
    assert!(refused.fired() > 0, "{refused:?}");
    faults.stop();
    let ready = world.ready("agents", "sam").await;
    assert_eq!(ready["metadata"]["finalizers"], Value::Null);
}
