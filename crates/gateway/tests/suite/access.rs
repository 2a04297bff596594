//! Who is let in.

use kaos_gateway::guard::Access;
use serde_json::json;

use crate::support::{World, backend, raw, rule, start, start_for};

async fn ask(world: &World, head: &str) -> String {
    raw(
        world.address,
        &format!("GET /a HTTP/1.1\r\n{head}Connection: close\r\n\r\n"),
    )
    .await
}

/// A backend that would let every page in. It hears of none: the gateway has judged.
async fn careless() -> std::net::SocketAddr {
    let answer = async |headers: http::HeaderMap| {
        let said = if headers.contains_key("origin") {
            "told of a page"
        } else {
            "served"
        };
        ([("access-control-allow-origin", "*")], said)
    };
    backend(axum::Router::new().fallback(answer)).await
}

#[tokio::test]
async fn foreign_hosts_and_pages_reach_no_backend() {
    let world = start(&[("a", careless().await)]).await;
    world.route("r", &json!([rule("/", "a")])).await;
    let port = world.address.port();
    for (head, status) in [
        (format!("Host: localhost:{port}\r\n"), "200"),
        (format!("Host: [::1]:{port}\r\n"), "200"),
        (
            format!("Host: localhost:{port}\r\nOrigin: http://localhost:{port}\r\n"),
            "200",
        ),
        ("Host: evil.example\r\n".to_owned(), "421"),
        (String::new(), "421"),
        (
            format!("Host: localhost:{port}\r\nOrigin: http://evil.example\r\n"),
            "403",
        ),
        (format!("Host: localhost:{port}\r\nOrigin: null\r\n"), "403"),
        (
            format!("Host: localhost:{port}\r\nOrigin: http://localhost:3000\r\n"),
            "403",
        ),
    ] {
        let found = ask(&world, &head).await;
        assert!(
            found.starts_with(&format!("HTTP/1.1 {status}")),
            "{head}: {found}"
        );
        assert_eq!(found.contains("served"), status == "200", "{found}");
        assert!(!found.to_lowercase().contains("access-control"), "{found}");
    }
}

#[tokio::test]
async fn an_allowed_page_may_ask_before_and_read_the_answer() {
    let access = Access {
        hosts: Vec::new(),
        origins: vec!["http://localhost:3000".parse().unwrap()],
    };
    let world = start_for(access, &[("a", careless().await)]).await;
    world.route("r", &json!([rule("/", "a")])).await;
    let request = |method, origin: &str| {
        world
            .http
            .request(method, world.url("/a"))
            .header("origin", origin)
            .header("access-control-request-method", "POST")
            .header("access-control-request-headers", "content-type, authorization")
    };
    let preflight = request(http::Method::OPTIONS, "http://localhost:3000")
        .send()
        .await
        .unwrap();
    assert_eq!(preflight.status(), 204);
    let header = |name: &str| {
        preflight
            .headers()
            .get(name)
            .map(|value| value.to_str().unwrap().to_owned())
    };
    assert_eq!(
        header("access-control-allow-origin").as_deref(),
        Some("http://localhost:3000")
    );
    assert_eq!(header("access-control-allow-methods").as_deref(), Some("POST"));
    assert_eq!(
        header("access-control-allow-headers").as_deref(),
        Some("content-type, authorization")
    );
    assert_eq!(header("vary").as_deref(), Some("Origin"));

    let answer = request(http::Method::GET, "http://localhost:3000")
        .send()
        .await
        .unwrap();
    let allowed: Vec<_> = answer
        .headers()
        .get_all("access-control-allow-origin")
        .iter()
        .collect();
    assert_eq!(allowed, ["http://localhost:3000"]);
    assert_eq!(answer.text().await.unwrap(), "served");

    let refused = request(http::Method::OPTIONS, "http://localhost:3001")
        .send()
        .await
        .unwrap();
    assert_eq!(refused.status(), 403);
    assert!(refused.headers().get("access-control-allow-origin").is_none());
}

#[tokio::test]
async fn the_hosts_that_routes_name_are_served_and_only_by_them() {
    let world = start(&[("a", careless().await)]).await;
    let spec =
        json!({"parentRefs": [{"name": "gateway"}], "hostnames": ["agents.test"], "rules": [rule("/", "a")]});
    world.route_of("r", &spec).await;
    assert!(
        ask(&world, "Host: agents.test\r\n")
            .await
            .starts_with("HTTP/1.1 200")
    );
    assert!(
        ask(&world, "Host: localhost\r\n")
            .await
            .starts_with("HTTP/1.1 404")
    );
    assert!(
        ask(&world, "Host: other.test\r\n")
            .await
            .starts_with("HTTP/1.1 421")
    );
}
