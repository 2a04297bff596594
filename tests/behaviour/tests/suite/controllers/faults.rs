//! An API server that fails. Only the embedded one does so on request; time is held still, so that waits
//! take none.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use http::StatusCode;
use kaos_apiserver::{Call, Fault};
use kaos_testkit::{Faults, Sent};
use serde_json::{Value, json};

use super::world::{World, condition, env, mock};

/// What the controllers write.
fn by_a_controller(call: &Call) -> bool {
    let manager = call.field_manager.as_deref().unwrap_or_default();
    ["kaos-agent", "kaos-modelapi", "kaos-mcpserver"].contains(&manager)
}

/// What only the controllers watch and list.
fn of_ours(call: &Call) -> bool {
    call.group == "kaos.tools" || call.resource == "services"
}

type Matches = fn(&Call) -> bool;

/// From nothing to an agent that is ready, changed and ready again, while the calls that match go wrong.
async fn an_agent_comes_up(fault: Fault, times: usize, matches: Matches) {
    let faults = Faults::default();
    let mut world = World::start_with_faults(faults.clone()).await;
    world.start_node();
    let injection = faults.inject(times, fault.clone(), matches);
    let agent = |model: &str| json!({"modelAPI": "models", "model": model, "mcpServers": ["tools"]});
    world.spec("agents", "sam", agent("m")).await;
    world.spec("modelapis", "models", mock(&["m"])).await;
    world
        .spec("mcpservers", "tools", json!({"runtime": "plain"}))
        .await;
    world.ready("agents", "sam").await;

    world.spec("modelapis", "models", mock(&["m", "n"])).await;
    world.spec("agents", "sam", agent("n")).await;
    world.ready("modelapis", "models").await;
    world.ready("agents", "sam").await;
    let mut made = world.names("deployments").await;
    made.sort();
    assert_eq!(made, ["agent-sam", "mcpserver-tools", "modelapi-models"]);

    // A deletion is noticed however the watches fare.
    world.delete("services", "agent-sam").await;
    world.until("made again", "services", "agent-sam", |_| true).await;
    assert!(injection.fired() > 0, "{fault:?} never happened");
}

#[tokio::test(start_paused = true)]
async fn writes_that_are_refused_are_tried_again() {
    let fault = Fault::Error(StatusCode::SERVICE_UNAVAILABLE, "out of order".to_owned());
    an_agent_comes_up(fault, 12, by_a_controller).await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_crashes_before_it_writes_is_asked_again() {
    an_agent_comes_up(Fault::CrashBeforeCommit, 12, by_a_controller).await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_crashes_after_it_wrote_is_asked_again() {
    an_agent_comes_up(Fault::CrashAfterCommit, 12, by_a_controller).await;
}

#[tokio::test(start_paused = true)]
async fn slow_answers_change_nothing() {
    an_agent_comes_up(Fault::Delay(Duration::from_secs(3)), 40, by_a_controller).await;
}

/// A get is answered with the latest version always; a list may come from a replica that lags behind.
#[tokio::test(start_paused = true)]
async fn lists_of_old_versions_are_caught_up_with() {
    let faults = Faults::default();
    let mut world = World::start_with_faults(faults.clone()).await;
    world.start_node();
    world.mock_models().await;
    let agent = |model: &str| json!({"modelAPI": "models", "model": model});
    world.spec("agents", "sam", agent("m")).await;
    world.ready("agents", "sam").await;

    world.spec("modelapis", "models", mock(&["n"])).await;
    world.phase("agents", "sam", "Failed").await;
    world.spec("agents", "sam", agent("n")).await;
    let stale = faults.inject(30, Fault::StaleRead { versions_back: 12 }, |call| {
        call.verb == "list" && of_ours(call)
    });
    world.restart_controllers().await;
    world.ready("agents", "sam").await;
    let deployment = world.get("deployments", "agent-sam").await.unwrap();
    assert!(
        env(&deployment).contains(&"MODEL_NAME=n".to_owned()),
        "{deployment}"
    );
    assert!(stale.fired() > 0, "{stale:?}");
}

#[tokio::test(start_paused = true)]
async fn watches_that_break_off_are_opened_again() {
    let watch: Matches = |call| call.verb == "watch" && of_ours(call);
    an_agent_comes_up(Fault::DropWatch { after_events: 1 }, 30, watch).await;
}

/// Agents are not seen any more, from the moment that one was made; everything else is.
async fn agents_unseen(faults: &Faults) -> World {
    let breaks = Fault::DropWatch { after_events: 1 };
    let broken = faults.inject(1, breaks, |call| {
        call.verb == "watch" && call.resource == "agents"
    });
    let mut world = World::start_with_faults(faults.clone()).await;
    world.start_node();
    world.mock_models().await;
    while broken.fired() == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    world.stop_node();
    let refusal = Fault::Error(StatusCode::SERVICE_UNAVAILABLE, "no more watches".to_owned());
    let refused = faults.inject(usize::MAX, refusal, |call| {
        call.resource == "agents" && ["list", "watch"].contains(&call.verb)
    });
    world
        .spec("agents", "sam", json!({"modelAPI": "models", "model": "m"}))
        .await;
    world.phase("agents", "sam", "Pending").await;
    while refused.fired() == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    world.calls().clear();
    world.start_node();
    world
        .until("rolled out", "deployments", "agent-sam", |deployment| {
            deployment["status"]["availableReplicas"] == 1
        })
        .await;
    world
}

/// Requests of the controllers about the Agent itself.
fn about_sam(world: &World) -> Vec<Sent> {
    let mut calls = world.calls().all();
    calls.retain(|call| call.path.contains("/agents/sam"));
    calls
}

#[tokio::test(start_paused = true)]
async fn a_pass_waits_for_what_the_last_one_wrote() {
    let faults = Faults::default();
    let world = agents_unseen(&faults).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(about_sam(&world), [], "the store is behind the first status");
    faults.stop();
    world.ready("agents", "sam").await;
    let calls = about_sam(&world);
    assert_eq!(calls.len(), 1, "{calls:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_stays_behind_holds_nothing_up_for_ever() {
    let faults = Faults::default();
    let world = agents_unseen(&faults).await;
    world.ready("agents", "sam").await;
}

#[tokio::test(start_paused = true)]
async fn watches_that_are_refused_for_a_while_hold_up_no_other() {
    let refusal = Fault::Error(StatusCode::FORBIDDEN, "not allowed to watch".to_owned());
    let services: Matches = |call| {
        call.resource == "services" && call.namespace.is_some() && ["list", "watch"].contains(&call.verb)
    };
    let faults = Faults::default();
    let refused = faults.inject(usize::MAX, refusal, services);
    let mut world = World::start_with_faults(faults.clone()).await;
    world.start_node();
    // Passes look at Services, so they wait for them; the watches of everything else go on meanwhile.
    world.spec("modelapis", "models", mock(&["m"])).await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert!(refused.fired() > 2, "{refused:?}");
    assert_eq!(world.names("deployments").await, [""; 0]);
    faults.stop();
    world.ready("modelapis", "models").await;
}

/// Controllers that are told to stop while the server is silent: at their first question, and when they wait
/// for the first complete list of each kind.
#[tokio::test(start_paused = true)]
async fn a_stop_is_heard_before_anything_was_listed() {
    for answered in [0, 3] {
        let faults = Faults::default();
        let mut world = World::start_with_faults(faults.clone()).await;
        let asked = AtomicUsize::new(0);
        let silence = Fault::Delay(Duration::from_secs(3_600));
        let injection = faults.inject(usize::MAX, silence, move |call| {
            call.group == "kaos.tools" && asked.fetch_add(1, Ordering::Relaxed) >= answered
        });
        // The first restart meets the silence, the second has to end what waits in it.
        world.restart_controllers().await;
        while injection.fired() == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let stopped = tokio::time::timeout(Duration::from_secs(60), world.restart_controllers()).await;
        assert!(
            stopped.is_ok(),
            "the controllers did not stop, {answered} answers after their start"
        );
    }
}

/// Fails where somebody is still dialled after a while.
async fn nobody_is_dialled(world: &World) {
    assert!(world.dialled() > 0, "somebody was dialled before");
    // What was under way ends.
    tokio::time::sleep(Duration::from_secs(60)).await;
    let before = world.dialled();
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(world.dialled(), before);
}

#[tokio::test(start_paused = true)]
async fn controllers_that_have_stopped_ask_no_server_for_its_tools() {
    let mut world = World::start_with_faults(Faults::default()).await;
    world.start_node();
    world
        .spec("mcpservers", "tools", json!({"runtime": "plain"}))
        .await;
    let asked = |server: &Value| condition(server, "ToolsListed")["status"] == "False";
    world.until("asked", "mcpservers", "tools", asked).await;
    world.stop_controllers().await;
    nobody_is_dialled(&world).await;
}

/// The pass remembers what it has seen at its end, after the deletion was noticed.
#[tokio::test(start_paused = true)]
async fn what_is_deleted_while_a_pass_is_under_way_is_forgotten() {
    let faults = Faults::default();
    let world = World::start_with_faults(faults.clone()).await;
    let hosted = json!({"mode": "Hosted", "hostedConfig": {"model": "m"}});
    world.spec("modelapis", "models", hosted.clone()).await;
    let asked = |models: &Value| condition(models, "ModelPulled") != Value::Null;
    world.until("asked", "modelapis", "models", asked).await;

    let delay = Fault::Delay(Duration::from_secs(20));
    let delayed = faults.inject(usize::MAX, delay, |call| {
        call.resource == "deployments" && call.field_manager.as_deref() == Some("kaos-modelapi")
    });
    let mut changed = hosted;
    changed["container"] = json!({"env": [{"name": "NEW", "value": "1"}]});
    world.spec("modelapis", "models", changed).await;
    while delayed.fired() == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    world.delete("modelapis", "models").await;
    world.until_gone("modelapis", "models").await;
    nobody_is_dialled(&world).await;
}
