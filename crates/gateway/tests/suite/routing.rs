//! Which backend a request reaches, and what becomes of it on the way.

use http::Method;
use serde_json::json;

use crate::support::{echo, named, nobody, rule, start};

const ACCEPTED: (&str, &str) = ("Accepted", "True");

#[tokio::test]
async fn a_request_goes_to_the_backend_of_its_longest_path_and_loses_the_prefix() {
    let world = start(&[("echo", echo().await), ("other", named("other").await)]).await;
    let mut strip = rule("/team/agent/hello", "echo");
    strip["filters"] = json!([{"type": "URLRewrite",
        "urlRewrite": {"path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/"}}}]);
    let conditions = world.route("hello", &json!([strip])).await;
    assert!(
        conditions
            .iter()
            .any(|(type_, status, ..)| (type_.as_str(), status.as_str()) == ACCEPTED)
    );
    world.route("other", &json!([rule("/team/agent", "other")])).await;

    let (status, text) = world.get("/team/agent/hello/v1/models?x=%20y").await;
    assert_eq!(
        (status, text.lines().next().unwrap()),
        (200, "GET /v1/models?x=%20y")
    );
    assert_eq!(
        world.get("/team/agent/hello").await.1.lines().next().unwrap(),
        "GET /"
    );
    assert_eq!(world.get("/team/agent/hellooo").await.1, "other");
    assert_eq!(world.get("/team/agent/else").await.1, "other");
    assert_eq!(world.get("/team").await.0, 404);
}

#[tokio::test]
async fn methods_headers_queries_and_exact_paths_are_told_apart() {
    let world = start(&[
        ("a", named("a").await),
        ("b", named("b").await),
        ("c", named("c").await),
    ])
    .await;
    let to = |matched: serde_json::Value, service: &str| json!({"matches": [matched], "backendRefs": [{"name": service, "port": 80}]});
    world
        .route(
            "r",
            &json!([
                to(json!({"path": {"type": "PathPrefix", "value": "/x"}}), "a"),
                to(json!({"path": {"type": "Exact", "value": "/x/y"}}), "b"),
                to(json!({"path": {"value": "/x"}, "method": "DELETE"}), "b"),
                to(
                    json!({"path": {"value": "/x"}, "headers": [{"name": "Version", "value": "2"}]}),
                    "c"
                ),
                to(
                    json!({"path": {"value": "/x"}, "queryParams": [{"name": "v", "value": "3"}]}),
                    "c"
                ),
            ]),
        )
        .await;
    let ask = async |method: Method, path: &str, version: &str| {
        let request = world
            .http
            .request(method, world.url(path))
            .header("version", version);
        request.send().await.unwrap().text().await.unwrap()
    };
    assert_eq!(ask(Method::GET, "/x", "1").await, "a");
    assert_eq!(ask(Method::GET, "/x/y", "1").await, "b");
    assert_eq!(ask(Method::GET, "/x/y/z", "1").await, "a");
    assert_eq!(ask(Method::DELETE, "/x", "1").await, "b");
    assert_eq!(ask(Method::GET, "/x", "2").await, "c");
    assert_eq!(ask(Method::GET, "/x?v=3", "1").await, "c");
}

#[tokio::test]
async fn a_backend_sees_the_callers_headers_but_those_of_the_connection() {
    let world = start(&[("echo", echo().await)]).await;
    let mut changed = rule("/", "echo");
    changed["filters"] = json!([
        {"type": "RequestHeaderModifier", "requestHeaderModifier": {
            "set": [{"name": "x-set", "value": "by-route"}],
            "add": [{"name": "x-add", "value": "two"}],
            "remove": ["x-remove"]}},
        {"type": "URLRewrite", "urlRewrite": {"hostname": "inner.example",
            "path": {"type": "ReplaceFullPath", "replaceFullPath": "/whole"}}},
    ]);
    world.route("r", &json!([changed])).await;
    let answer = world
        .http
        .post(world.url("/a/b?q=1"))
        .header("connection", "x-hop")
        .header("x-hop", "1")
        .header("te", "trailers")
        .header("x-set", "by-caller")
        .header("x-add", "one")
        .header("x-remove", "1")
        .header("x-forwarded-for", "8.8.8.8")
        .header("authorization", "Bearer token")
        .body("the body")
        .send()
        .await
        .unwrap();
    let text = answer.text().await.unwrap();
    let lines: Vec<&str> = text.lines().collect();
    for expected in [
        "POST /whole?q=1",
        "host: inner.example",
        "x-set: by-route",
        "x-add: one",
        "x-add: two",
        "authorization: Bearer token",
        "x-forwarded-for: 127.0.0.1",
        "x-forwarded-proto: http",
        &format!("x-forwarded-host: {}", world.address),
        "the body",
    ] {
        assert!(lines.contains(&expected), "{expected} is missing in\n{text}");
    }
    for gone in ["x-hop", "te:", "x-remove", "by-caller", "8.8.8.8"] {
        assert!(!text.contains(gone), "{gone} is in\n{text}");
    }
}

#[tokio::test]
async fn a_missed_path_is_answered_with_those_that_there_are() {
    let world = start(&[("a", named("a").await)]).await;
    world.gateway().await;
    let (status, text) = world.get("/nothing").await;
    assert_eq!(status, 404);
    assert!(text.contains("there is no accepted HTTPRoute yet"), "{text}");

    world.route("a", &json!([rule("/team/agent/a", "a")])).await;
    let (status, text) = world.get("/nothing").await;
    assert_eq!(status, 404);
    let error: serde_json::Value = serde_json::from_str(&text).unwrap();
    let message = error["error"]["message"].as_str().unwrap();
    assert!(
        message.contains("/nothing") && message.contains("/team/agent/a"),
        "{message}"
    );

    world.delete_route("a").await;
    world.until("/team/agent/a", 404).await;
}

#[tokio::test]
async fn a_path_out_of_the_route_by_dots_is_refused() {
    let world = start(&[("echo", echo().await)]).await;
    world.route("r", &json!([rule("/team/agent/a", "echo")])).await;
    // Clients resolve dots before they send: this one does not.
    let found = crate::support::raw(
        world.address,
        "GET /team/agent/a/%2e%2e/b HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    )
    .await;
    assert!(found.starts_with("HTTP/1.1 400"), "{found}");
}

#[tokio::test]
async fn failures_of_backends_are_told_apart() {
    let broken = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let broken_address = broken.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            // Accepted, read and closed without an answer.
            let Ok((mut stream, _)) = broken.accept().await else {
                return;
            };
            let _ = tokio::io::AsyncReadExt::read(&mut stream, &mut [0; 64]).await;
        }
    });
    let world = start(&[("empty", nobody().await), ("broken", broken_address)]).await;
    world
        .route(
            "r",
            &json!([
                rule("/empty", "empty"),
                rule("/broken", "broken"),
                rule("/missing", "missing"),
                {"matches": [{"path": {"value": "/none"}}]},
            ]),
        )
        .await;
    for (path, status, message) in [
        ("/empty", 503, "has no ready pod"),
        ("/broken", 502, "broke off before it answered"),
        ("/missing", 500, "there is no Service missing"),
        ("/none", 500, "it names none"),
    ] {
        let (found, text) = world.get(path).await;
        assert_eq!(found, status, "{path}: {text}");
        assert!(text.contains(message), "{path}: {text}");
    }
}

#[tokio::test]
async fn a_service_that_appears_is_reached_without_a_change_of_the_route() {
    let world = start(&[("a", named("a").await)]).await;
    let conditions = world.route("r", &json!([rule("/", "late")])).await;
    assert!(
        conditions
            .iter()
            .any(|(_, status, reason, _)| status == "False" && reason == "BackendNotFound")
    );
    assert_eq!(world.get("/").await.0, 500);
    let spec = json!({"ports": [{"port": 80}]});
    crate::support::put::<k8s_openapi::api::core::v1::Service>(&world.api, "late", &json!({ "spec": spec }))
        .await;
    // Nobody listens under its name: what matters is that it is looked for.
    eventually_not(&world, "/", 500).await;
}

async fn eventually_not(world: &crate::support::World, path: &str, status: u16) {
    kaos_testkit::eventually("another answer", kaos_testkit::PATIENCE, async || {
        world.get(path).await.0 != status
    })
    .await;
}
