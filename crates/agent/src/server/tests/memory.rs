//! What the agent remembers and shows of it.

use super::*;

/// The type and content of all events, or of those of a session.
async fn events(agent: &Agent, query: &str) -> Vec<(String, Value)> {
    let (status, body) = agent.get(&format!("/memory/events{query}")).await;
    assert_eq!((status, &body["agent"]), (200, &json!("ann")));
    let events = body["events"].as_array().unwrap();
    assert_eq!(body["total"], json!(events.len()));
    let event = |event: &Value| {
        let kind = event["event_type"].as_str().unwrap().to_owned();
        (kind, event["content"].clone())
    };
    events.iter().map(event).collect()
}

fn expected<const N: usize>(events: [(&str, Value); N]) -> Vec<(String, Value)> {
    events.map(|(kind, content)| (kind.to_owned(), content)).to_vec()
}

fn asking(text: &str) -> Value {
    json!({"messages": [{"role": "user", "content": text}]})
}

/// What the model was told after the system prompt, when it was asked for the `at`th time.
fn conversation(agent: &Agent, at: usize) -> Vec<String> {
    let messages = agent.model.question(at).messages;
    messages[1..].iter().map(kaos_openai::Message::text).collect()
}

#[tokio::test(start_paused = true)]
async fn everything_that_happens_is_an_event() {
    let bob = ScriptedPeer::new("bob");
    let (dig, fill) = (json!({"task": "dig"}), json!({}));
    let all = [
        calls(&[("echo", json!({"x": 1}))]),
        calls(&[("fails", json!({}))]),
        calls(&[("delegate_to_bob", dig)]),
        calls(&[("delegate_to_bob", fill)]),
        says(&["so"]),
        vec![Act::Fail(gone())],
    ];
    let agent = set_up(all, &[("AGENTIC_LOOP_MAX_STEPS", "9")], &[&bob]);
    agent
        .watched(async {
            agent.ask("what?").await;
            agent
                .post(json!({"messages": [{"role": "task-delegation", "content": "dig"}]}).to_string())
                .await;
        })
        .await;
    let all = expected([
        ("user_message", json!("what?")),
        ("tool_call", json!({"tool": "echo", "arguments": {"x": 1}})),
        ("tool_result", json!({"tool": "echo", "result": "calc {\"x\":1}"})),
        ("tool_call", json!({"tool": "fails", "arguments": {}})),
        (
            "tool_result",
            json!({"tool": "fails", "result": "division by zero", "is_error": true}),
        ),
        ("delegation_request", json!({"agent": "bob", "task": "dig"})),
        (
            "delegation_response",
            json!({"agent": "bob", "response": "bob did: dig"}),
        ),
        ("delegation_request", json!({"agent": "bob", "task": ""})),
        (
            "delegation_error",
            json!({"agent": "bob", "error": "Invalid delegation: missing 'task'"}),
        ),
        ("agent_response", json!("so")),
        ("task_delegation_received", json!("dig")),
        (
            "error",
            json!("model API http://model/ is not reachable: connection refused"),
        ),
    ]);
    assert_eq!(events(&agent, "").await, all);
    assert_eq!(events(&agent, "?limit=2").await, all[10..]);
    assert_eq!(events(&agent, "?limit=0").await, all);
    let (_, sessions) = agent.get("/memory/sessions").await;
    assert_eq!(
        (&sessions["agent"], &sessions["total"]),
        (&json!("ann"), &json!(2))
    );
    let first = sessions["sessions"][0].as_str().unwrap();
    assert_eq!(first.strip_prefix("session_").map(str::len), Some(12));
    assert_eq!(events(&agent, &format!("?session_id={first}")).await, all[..10]);
    assert_eq!(events(&agent, "?session_id=none").await, []);
    let (status, _) = agent.get("/memory/events?limit=-1").await;
    assert_eq!(status, 400);
}

#[tokio::test(start_paused = true)]
async fn a_session_is_remembered_and_told_to_the_model() {
    let agent = set_up(
        ["1", "2", "3", "4"].map(|text| says(&[text])),
        &[("MEMORY_CONTEXT_LIMIT", "3")],
        &[],
    );
    agent
        .watched(async {
            let mut first = asking("a");
            first["session_id"] = json!("chat");
            let response = agent.send(Method::POST, CHAT, first.to_string()).await;
            assert_eq!(response.headers()["x-session-id"], "chat");
            let (_, body) = read(response).await;
            assert_eq!(body["session_id"], "chat");

            let mut second = streaming("b");
            second["session_id"] = Value::Null;
            let headers = [("X-Session-ID", "chat")];
            let response = agent
                .send_with(Method::POST, CHAT, &headers, second.to_string())
                .await;
            assert_eq!(response.headers()["x-session-id"], "chat");
            let frames = frames(&response.into_body().collect().await.unwrap().to_bytes());
            assert_eq!(frames[0]["session_id"], "chat");
            assert!(frames[1].get("session_id").is_none());

            let response = agent
                .send_with(Method::POST, CHAT, &headers, asking("c").to_string())
                .await;
            assert_eq!(response.status(), 200);
            let response = agent.send(Method::POST, CHAT, asking("d").to_string()).await;
            let own = response.headers()["x-session-id"].to_str().unwrap().to_owned();
            assert!(own.starts_with("session_"), "{own}");
        })
        .await;
    assert_eq!(conversation(&agent, 1), ["a", "1", "b"]);
    assert_eq!(
        conversation(&agent, 2),
        ["1", "b", "2", "c"],
        "three messages are remembered"
    );
    assert_eq!(conversation(&agent, 3), ["d"], "a session of its own");
    assert_eq!(agent.model.question(1).extra.get("session_id"), None);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_tells_the_conversation_is_not_told_it_twice() {
    let agent = agent([says(&["1"]), says(&["2"])]);
    let ask = async |messages: Value| {
        let body = json!({"session_id": "chat", "messages": messages});
        assert_eq!(agent.post(body.to_string()).await.0, 200);
    };
    let user = |text: &str| json!({"role": "user", "content": text});
    agent
        .watched(async {
            ask(json!([user("a")])).await;
            ask(json!([user("a"), {"role": "assistant", "content": "1"}, user("b")])).await;
        })
        .await;
    assert_eq!(conversation(&agent, 1), ["a", "1", "b"]);
    let said = expected([
        ("user_message", json!("a")),
        ("agent_response", json!("1")),
        ("user_message", json!("b")),
        ("agent_response", json!("2")),
    ]);
    assert_eq!(events(&agent, "?session_id=chat").await, said);
}

#[tokio::test(start_paused = true)]
async fn sessions_that_are_none_are_refused_and_leave_nothing_behind() {
    let agent = agent([]);
    let cases = [
        (json!(7), None, "session_id is 7, which is not a string"),
        (
            json!("a b"),
            None,
            "session id \"a b\" is not valid: use 1 to 128 characters of visible ASCII",
        ),
        (
            json!("a"),
            Some("b"),
            "session_id is \"a\" in the body and \"b\" in the header X-Session-ID: give one",
        ),
        (json!(""), Some("a\tb"), "session id \"a\\tb\" is not valid"),
    ];
    for (body, header, detail) in cases {
        let mut request = asking("x");
        request["session_id"] = body;
        let headers: Vec<_> = header.into_iter().map(|value| ("X-Session-ID", value)).collect();
        let (status, answer) = read(
            agent
                .send_with(Method::POST, CHAT, &headers, request.to_string())
                .await,
        )
        .await;
        let found = answer["detail"].as_str().unwrap();
        assert!(status == 400 && found.starts_with(detail), "{status} {found}");
    }
    assert_eq!(agent.get("/memory/sessions").await.1["sessions"], json!([]));
}

#[tokio::test(start_paused = true)]
async fn memory_can_be_off_and_so_can_its_endpoints() {
    let off = set_up([says(&["1"]), says(&["2"])], &[("MEMORY_ENABLED", "false")], &[]);
    let mut request = asking("x");
    request["session_id"] = json!("chat");
    off.watched(async {
        for _ in 0..2 {
            let response = off.send(Method::POST, CHAT, request.to_string()).await;
            assert!(!response.headers().contains_key("x-session-id"));
            assert!(read(response).await.1.get("session_id").is_none());
        }
    })
    .await;
    assert_eq!(conversation(&off, 1), ["x"]);
    assert_eq!(
        off.get("/memory/events").await.1,
        json!({"agent": "ann", "events": [], "total": 0})
    );
    assert_eq!(
        off.get("/memory/sessions").await.1,
        json!({"agent": "ann", "sessions": [], "total": 0})
    );

    let hidden = set_up([], &[("AGENT_DEBUG_MEMORY_ENDPOINTS", "false")], &[]);
    for path in ["/memory/events", "/memory/sessions"] {
        assert_eq!(hidden.get(path).await, (404, refused("Not Found")), "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_cannot_fill_the_memory() {
    let agent = set_up(
        (0..30).map(|_| says(&["ok"])),
        &[("MEMORY_MAX_SESSIONS", "20"), ("MEMORY_MAX_SESSION_EVENTS", "3")],
        &[],
    );
    agent
        .watched(async {
            for number in 0..26 {
                let mut request = asking(&"x".repeat(100_000));
                request["session_id"] = json!(number.to_string());
                agent.post(request.to_string()).await;
            }
            for _ in 0..4 {
                let mut request = asking("y");
                request["session_id"] = json!("25");
                agent.post(request.to_string()).await;
            }
        })
        .await;
    let (_, sessions) = agent.get("/memory/sessions").await;
    assert!(sessions["total"].as_u64().unwrap() <= 20, "{sessions}");
    assert_eq!(events(&agent, "?session_id=25").await.len(), 3);
    let kept = events(&agent, "?session_id=24").await;
    let text = kept[0].1.as_str().unwrap();
    assert!(text.len() < 66_000 && text.ends_with("more bytes are left out]"));
}
