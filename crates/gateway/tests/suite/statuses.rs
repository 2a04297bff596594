//! What the gateway says in the API, and what it does not.

use kaos_external::gateway_api::{Gateway, GatewayClass, HTTPRoute};
use kaos_testkit::{PATIENCE, eventually};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::support::{World, named, put, rule, start, start_everywhere};

fn condition(conditions: &Value, type_: &str) -> (String, String, String) {
    let found = conditions
        .as_array()
        .unwrap()
        .iter()
        .find(|one| one["type"] == type_)
        .unwrap_or_else(|| panic!("no {type_} in {conditions}"));
    let text = |key: &str| found[key].as_str().unwrap().to_owned();
    (text("status"), text("reason"), text("message"))
}

async fn status(world: &World) -> Value {
    serde_json::to_value(world.gateway().await.status.unwrap()).unwrap()
}

#[tokio::test]
async fn a_gateway_is_programmed_and_counts_its_routes() {
    let world = start(&[("a", named("a").await)]).await;
    let classes: Api<GatewayClass> = Api::all(world.api.client.clone());
    eventually("the class is accepted", PATIENCE, async || {
        let class = classes.get("local").await.unwrap();
        let conditions = class
            .status
            .and_then(|status| status.conditions)
            .unwrap_or_default();
        conditions.iter().any(|one| {
            one.type_ == "Accepted"
                && one.status == "True"
                && one.observed_generation == class.metadata.generation
        })
    })
    .await;
    world.route("one", &json!([rule("/one", "a")])).await;
    world.route("two", &json!([rule("/two", "a")])).await;
    world
        .route("bad", &json!([{"filters": [{"type": "CORS", "cors": {}}]}]))
        .await;
    let status = eventually("two routes are counted", PATIENCE, async || {
        let status = status(&world).await;
        (status["listeners"][0]["attachedRoutes"] == 2).then_some(status)
    })
    .await;
    assert_eq!(
        status["addresses"],
        json!([{"type": "IPAddress", "value": "127.0.0.1"}])
    );
    let (programmed, _, message) = condition(&status["conditions"], "Programmed");
    assert_eq!(programmed, "True");
    assert!(message.contains(&world.address.to_string()), "{message}");
    assert_eq!(condition(&status["conditions"], "Accepted").0, "True");
    let listener = &status["listeners"][0];
    assert_eq!(listener["name"], "http");
    assert_eq!(
        listener["supportedKinds"],
        json!([{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute"}])
    );
    for type_ in ["Accepted", "Programmed", "ResolvedRefs"] {
        assert_eq!(condition(&listener["conditions"], type_).0, "True");
    }
}

#[tokio::test]
async fn what_a_route_asks_for_beyond_is_refused_by_its_field() {
    let world = start(&[("a", named("a").await)]).await;
    let mut mirrored = rule("/a", "a");
    mirrored["filters"] =
        json!([{"type": "RequestMirror", "requestMirror": {"backendRef": {"name": "a", "port": 80}}}]);
    let conditions = world.route("r", &json!([rule("/b", "a"), mirrored])).await;
    let (_, status, reason, message) = conditions.iter().find(|one| one.0 == "Accepted").unwrap();
    assert_eq!((status.as_str(), reason.as_str()), ("False", "UnsupportedValue"));
    assert!(
        message.starts_with("spec.rules[1].filters[0].type: RequestMirror is not implemented"),
        "{message}"
    );
    assert_eq!(world.get("/b").await.0, 404, "nothing of it is served");
    let conditions = world.route("r", &json!([rule("/b", "a")])).await;
    assert_eq!(conditions[0].1, "True");
    assert_eq!(world.get("/b").await.0, 200);
}

#[tokio::test]
async fn each_parent_of_a_route_is_told_for_itself() {
    let world = start(&[("a", named("a").await)]).await;
    let parents = json!([
        {"name": "gateway", "sectionName": "http"},
        {"name": "gateway", "sectionName": "absent"},
        {"name": "somebody-elses"},
    ]);
    world
        .route_of("r", &json!({"parentRefs": parents, "rules": [rule("/", "a")]}))
        .await;
    let route = world.api.api::<HTTPRoute>().get("r").await.unwrap();
    let entries = serde_json::to_value(route.status.unwrap().parents).unwrap();
    assert_eq!(
        entries.as_array().unwrap().len(),
        2,
        "of a Gateway that is not ours nothing is said"
    );
    assert_eq!(entries[0]["parentRef"]["sectionName"], "http");
    assert_eq!(condition(&entries[0]["conditions"], "Accepted").0, "True");
    let (accepted, reason, _) = condition(&entries[1]["conditions"], "Accepted");
    assert_eq!(
        (accepted.as_str(), reason.as_str()),
        ("False", "NoMatchingParent")
    );
}

#[tokio::test]
async fn references_that_lead_nowhere_are_told() {
    let world = start(&[("a", named("a").await)]).await;
    for (reference, expected) in [
        (json!({"name": "missing", "port": 80}), "BackendNotFound"),
        (
            json!({"name": "a", "port": 80, "namespace": "elsewhere"}),
            "RefNotPermitted",
        ),
        (json!({"name": "a", "port": 80, "kind": "Pod"}), "InvalidKind"),
    ] {
        let conditions = world.route("r", &json!([{ "backendRefs": [reference] }])).await;
        let (_, status, reason, message) = conditions.iter().find(|one| one.0 == "ResolvedRefs").unwrap();
        assert_eq!((status.as_str(), reason.as_str()), ("False", expected));
        assert!(message.starts_with("spec.rules[0].backendRefs[0]: "), "{message}");
        assert_eq!(conditions[0].1, "True", "the route as such is accepted");
    }
}

#[tokio::test]
async fn routes_of_other_namespaces_need_the_listeners_leave() {
    let world = start_everywhere(&[]).await;
    let client = world.api.client.clone();
    let apply = PatchParams::apply("test").force();
    let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(client.clone());
    let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}});
    namespaces
        .patch("team", &apply, &Patch::Apply(object))
        .await
        .unwrap();
    let routes: Api<HTTPRoute> = Api::namespaced(client, "team");
    let object = json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": {"name": "r"},
        "spec": {"parentRefs": [{"name": "gateway", "namespace": world.api.namespace}], "rules": [{}]},
    });
    routes.patch("r", &apply, &Patch::Apply(object)).await.unwrap();
    let accepted = async |reason: &str| {
        eventually(reason, PATIENCE, async || {
            let status = routes.get("r").await.unwrap().status?;
            let parents = serde_json::to_value(status.parents).unwrap();
            let found = condition(&parents.get(0)?["conditions"], "Accepted");
            (found.1 == reason).then_some(found.0)
        })
        .await
    };
    assert_eq!(accepted("NotAllowedByListeners").await, "False");
    let spec = json!({"gatewayClassName": "local", "listeners": [{"name": "http", "protocol": "HTTP",
        "port": world.address.port(), "allowedRoutes": {"namespaces": {"from": "All"}}}]});
    put::<Gateway>(&world.api, "gateway", &json!({ "spec": spec })).await;
    assert_eq!(accepted("Accepted").await, "True");
}

#[tokio::test]
async fn a_listener_that_cannot_be_served_is_refused_by_its_field() {
    let world = start(&[("a", named("a").await)]).await;
    let port = world.address.port();
    for (listener, reason, field) in [
        (
            json!({"name": "http", "protocol": "HTTP", "port": 1}),
            "PortUnavailable",
            "port: ",
        ),
        (
            json!({"name": "http", "protocol": "TCP", "port": port}),
            "UnsupportedProtocol",
            "protocol: the local gateway serves HTTP only, not TCP",
        ),
        (
            json!({"name": "http", "protocol": "HTTP", "port": port, "hostname": "a.test"}),
            "UnsupportedValue",
            "hostname: ",
        ),
    ] {
        let spec = json!({"gatewayClassName": "local", "listeners": [listener]});
        put::<Gateway>(&world.api, "gateway", &json!({ "spec": spec })).await;
        let status = status(&world).await;
        let (accepted, found, message) = condition(&status["listeners"][0]["conditions"], "Accepted");
        assert_eq!((accepted.as_str(), found.as_str()), ("False", reason));
        assert!(message.starts_with(field), "{message}");
        let (accepted, found, _) = condition(&status["conditions"], "Accepted");
        assert_eq!(
            (accepted.as_str(), found.as_str()),
            ("False", "ListenersNotValid")
        );
        assert_eq!(condition(&status["conditions"], "Programmed").0, "False");
    }
}

#[tokio::test]
async fn a_gateway_that_goes_takes_its_words_with_it() {
    let world = start(&[("a", named("a").await)]).await;
    world.route("r", &json!([rule("/", "a")])).await;
    let gateways = world.api.api::<Gateway>();
    gateways.delete("gateway", &Default::default()).await.unwrap();
    eventually("nothing is said of it", PATIENCE, async || {
        let route = world.api.api::<HTTPRoute>().get("r").await.unwrap();
        route.status.is_none_or(|status| status.parents.is_empty())
    })
    .await;
    world.until("/", 404).await;
}

#[tokio::test]
async fn what_other_controllers_say_of_a_route_stays() {
    let world = start(&[("a", named("a").await)]).await;
    world.route("r", &json!([rule("/", "a")])).await;
    let routes = world.api.api::<HTTPRoute>();
    let mut route = routes.get("r").await.unwrap();
    let mut status = route.status.take().unwrap();
    let mut foreign = status.parents[0].clone();
    foreign.controller_name = "example.com/other".to_owned();
    status.parents.push(foreign);
    route.status = Some(status);
    routes
        .replace_status("r", &Default::default(), &route)
        .await
        .unwrap();
    // A change that makes the gateway write.
    let mut changed = rule("/", "a");
    changed["timeouts"] = json!({"request": "1s"});
    world.route("r", &json!([changed])).await;
    let parents = routes.get("r").await.unwrap().status.unwrap().parents;
    assert_eq!(parents.len(), 2);
    assert!(
        parents
            .iter()
            .any(|entry| entry.controller_name == "example.com/other")
    );
}

#[tokio::test]
async fn nothing_is_written_while_nothing_changes() {
    let world = start(&[("a", named("a").await)]).await;
    world.route("r", &json!([rule("/", "a")])).await;
    eventually("the route is counted", PATIENCE, async || {
        status(&world).await["listeners"][0]["attachedRoutes"] == 1
    })
    .await;
    let writes = || world.calls.writes().len();
    let before = writes();
    // News that change nothing of what is planned.
    let spec = json!({"ports": [{"port": 80}]});
    for name in ["x", "y", "z"] {
        put::<k8s_openapi::api::core::v1::Service>(&world.api, name, &json!({ "spec": spec })).await;
    }
    world.route("second", &json!([rule("/second", "a")])).await;
    eventually("the second route is counted", PATIENCE, async || {
        status(&world).await["listeners"][0]["attachedRoutes"] == 2
    })
    .await;
    // The second route's status and the Gateway's count, and nothing else.
    assert_eq!(writes() - before, 2, "{:?}", world.calls.writes());
}
