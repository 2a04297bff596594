//! The tool server's HTTP side: health, hosts, and what old and broken clients send.

use kaos_mcp::server::ToolServerConfig;
use serde_json::{Value, json};

use crate::common::Served;

const SOURCE: &str = "def add(a: int, b: int) -> int: return a + b";

/// Status and body of a request to `/mcp`, with these headers beside those that MCP asks for.
async fn post(served: &Served, headers: &[(&str, &str)], body: String) -> (u16, String) {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let mut request = client
        .post(format!("http://{}/mcp", served.address))
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = request.body(body).send().await.unwrap();
    (response.status().as_u16(), response.text().await.unwrap())
}

async fn get(served: &Served, path: &str, accept: &str) -> (u16, String) {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let request = client
        .get(format!("http://{}{path}", served.address))
        .header("accept", accept);
    let response = request.send().await.unwrap();
    (response.status().as_u16(), response.text().await.unwrap())
}

fn request(method: &str, params: &Value) -> String {
    json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string()
}

#[tokio::test]
async fn health_readiness_and_bare_probes_are_answered() {
    let served = Served::start(SOURCE).await;
    assert_eq!(
        get(&served, "/health", "*/*").await,
        (200, json!({"status": "healthy"}).to_string())
    );
    assert_eq!(
        get(&served, "/ready", "*/*").await,
        (200, json!({"status": "ready", "workers": 1}).to_string())
    );
    assert_eq!(get(&served, "/mcp", "*/*").await.0, 406);
    assert_eq!(get(&served, "/mcp", "text/event-stream").await.0, 405);
    served.end().await;
}

#[tokio::test]
async fn clients_of_every_protocol_version_need_no_session() {
    let served = Served::start(SOURCE).await;
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let identity = json!({"name": "test", "version": "1"});
        let hello = json!({"protocolVersion": version, "capabilities": {}, "clientInfo": identity});
        let (status, body) = post(&served, &[], request("initialize", &hello)).await;
        assert_eq!(status, 200, "{body}");
        let answer: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(answer["result"]["protocolVersion"], version);

        let call = request(
            "tools/call",
            &json!({"name": "add", "arguments": {"a": 2, "b": 3}}),
        );
        let (_, body) = post(&served, &[("mcp-protocol-version", version)], call).await;
        let answer: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(
            answer["result"]["content"],
            json!([{"type": "text", "text": "5"}]),
            "{version}"
        );
    }
    served.end().await;
}

#[tokio::test]
async fn a_list_names_the_form_of_results() {
    let served = Served::start(SOURCE).await;
    let (_, body) = post(&served, &[], request("tools/list", &json!({}))).await;
    let answer: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(
        answer["result"]["tools"][0]["outputSchema"],
        json!({"type": "object", "properties": {"result": {"type": "integer"}}, "required": ["result"]})
    );
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let metrics = client
        .get(format!("http://{}/metrics", served.address))
        .send()
        .await
        .unwrap();
    assert_eq!(metrics.status(), 200);
    served.end().await;
}

#[tokio::test]
async fn requests_for_other_hosts_and_from_pages_are_refused() {
    let served = Served::start(SOURCE).await;
    let list = || request("tools/list", &json!({}));
    for good in ["localhost", "mcpserver-calculator.default.svc:8000", "127.0.0.1"] {
        assert_eq!(post(&served, &[("host", good)], list()).await.0, 200, "{good}");
    }
    let (status, body) = post(&served, &[("host", "evil.example")], list()).await;
    assert_eq!(
        (status, body.as_str()),
        (
            403,
            "requests addressed to host \"evil.example\" are not accepted; to allow them add it to \
             KAOS_ALLOWED_HOSTS\n"
        )
    );
    assert_eq!(
        post(&served, &[("origin", "http://evil.example")], list())
            .await
            .0,
        403
    );
    assert_eq!(
        post(&served, &[("origin", "http://localhost:3000")], list())
            .await
            .0,
        200
    );
    served.end().await;
}

#[tokio::test]
async fn a_pod_answers_to_any_name() {
    let mut config = ToolServerConfig::new(SOURCE);
    config.workers = 1;
    let served = Served::with(config, "0.0.0.0:0").await;
    let list = request("tools/list", &json!({}));
    assert_eq!(
        post(&served, &[("host", "gateway.example.com")], list.clone())
            .await
            .0,
        200
    );
    assert_eq!(
        post(&served, &[("origin", "http://evil.example")], list).await.0,
        403
    );
    served.end().await;
}

#[tokio::test]
async fn garbage_is_refused_and_does_no_harm() {
    let served = Served::start(SOURCE).await;
    for body in ["", "{", "[]", "{\"jsonrpc\": \"2.0\"}", "\u{0}\u{1}"] {
        let (status, _) = post(&served, &[], body.to_owned()).await;
        assert!((400..500).contains(&status), "{body:?}: {status}");
    }
    let deep = "[".repeat(200_000);
    assert!((400..500).contains(&post(&served, &[], deep).await.0));
    let large = request(
        "tools/call",
        &json!({"name": "add", "arguments": {"a": "x".repeat(5 << 20)}}),
    );
    assert_eq!(post(&served, &[], large).await.0, 413);
    assert_eq!(served.text("add", json!({"a": 1, "b": 1})).await, "2");
    served.end().await;
}
