//! Defects 5 and 12, those of routes: see [`super::defects`].

use serde_json::{Value, json};

use super::world::{World, condition, gateway};

fn agent() -> Value {
    json!({"modelAPI": "models", "model": "m"})
}

#[tokio::test]
async fn defect_05_what_is_turned_off_goes_with_its_endpoint_and_its_route() {
    let mut world = World::start_with_gateway().await;
    world.start_node();
    world.mock_models().await;
    world.spec("agents", "sam", agent()).await;
    world.ready("agents", "sam").await;
    world.until("made", "httproutes", "agent-sam", |_| true).await;

    let hidden = json!({"modelAPI": "models", "model": "m", "agentNetwork": {"expose": false}});
    world.spec("agents", "sam", hidden).await;
    world.until_gone("httproutes", "agent-sam").await;
    world.until_gone("services", "agent-sam").await;
    let ready = world.ready("agents", "sam").await;
    assert_eq!(ready["status"]["endpoint"], Value::Null);
    assert_eq!(condition(&ready, "RouteAccepted"), Value::Null);

    world.spec("agents", "sam", agent()).await;
    world
        .until("made again", "httproutes", "agent-sam", |_| true)
        .await;
    world.until("made again", "services", "agent-sam", |_| true).await;
    // An operator that is told of no Gateway any more.
    world.reconfigure(|config| config.gateway = None).await;
    world.until_gone("httproutes", "agent-sam").await;
    world
        .until("says nothing of a route", "agents", "sam", |agent| {
            condition(agent, "RouteAccepted") == Value::Null
        })
        .await;
    assert!(world.get("services", "agent-sam").await.is_some());
}

#[tokio::test]
async fn defect_12_a_route_is_written_once_and_its_fate_is_told() {
    let mut world = World::start_with_gateway().await;
    world.start_node();
    world.mock_models().await;
    world.spec("agents", "sam", agent()).await;
    world.ready("agents", "sam").await;
    let route = world.until("made", "httproutes", "agent-sam", |_| true).await;
    let path = format!("/{}/agent/sam", world.api.namespace);
    let rule = &route["spec"]["rules"][0];
    assert_eq!(
        rule["matches"][0]["path"],
        json!({"type": "PathPrefix", "value": path})
    );
    assert_eq!(rule["backendRefs"][0]["port"], 8000);
    assert_eq!(rule["timeouts"], json!({"request": "300s"}));
    world
        .until("its route is not taken yet", "agents", "sam", |agent| {
            condition(agent, "RouteAccepted")["reason"] == "Pending"
        })
        .await;

    let parent = |status: &str, reason: &str| {
        json!({"status": {"parents": [{
            "parentRef": {"name": gateway().name, "namespace": gateway().namespace},
            "controllerName": "example.com/gateway",
            "conditions": [{"type": "Accepted", "status": status, "reason": reason, "message": "as it is",
                "observedGeneration": route["metadata"]["generation"], "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        }]}})
    };
    for (status, reason) in [("False", "NotAllowedByListeners"), ("True", "Accepted")] {
        world
            .merge("httproutes", "agent-sam/status", parent(status, reason))
            .await;
        let told = |agent: &Value| {
            let condition = condition(agent, "RouteAccepted");
            condition["status"] == status && condition["reason"] == reason
        };
        let agent = world.until("told", "agents", "sam", told).await;
        assert_eq!(
            agent["status"]["ready"], true,
            "a route holds nothing else up: {agent}"
        );
    }
    world.calls().clear();
    let touch = json!({"metadata": {"labels": {"example.com/touched": "yes"}}});
    world.merge("httproutes", "agent-sam", touch).await;
    world.spec("agents", "barrier", agent()).await;
    world.ready("agents", "barrier").await;
    let writes = world.calls().writes();
    assert!(
        writes.iter().all(|call| !call.path.contains("agent-sam")),
        "{writes:?}"
    );
}

#[tokio::test]
async fn defect_12_a_gateway_api_that_is_absent_comes_and_goes_is_told_of_and_holds_nothing_up() {
    let mut world = World::start_without_gateway_api().await;
    world.start_node();
    world.mock_models().await;
    world.spec("agents", "sam", agent()).await;
    let ready = world.ready("agents", "sam").await;
    let reason = |agent: &Value| condition(agent, "RouteAccepted")["reason"].clone();
    assert_eq!(reason(&ready), "GatewayApiAbsent", "{ready}");
    for _ in 0..2 {
        world.install_gateway_api().await;
        world.until("made", "httproutes", "agent-sam", |_| true).await;
        world
            .until("its route is not taken yet", "agents", "sam", |agent| {
                reason(agent) == "Pending"
            })
            .await;
        world.remove_gateway_api().await;
        let agent = world
            .until("there are no routes any more", "agents", "sam", |agent| {
                reason(agent) == "GatewayApiAbsent"
            })
            .await;
        assert_eq!(agent["status"]["ready"], true, "{agent}");
    }
}
