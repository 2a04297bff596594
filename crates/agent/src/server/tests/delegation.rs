//! Tasks handed to other agents, and tasks that come from them.

use super::*;

fn task(peer: &str, task: &str) -> (String, Value) {
    (format!("delegate_to_{peer}"), json!({"task": task}))
}

/// An answer that hands a task to each.
fn delegates(tasks: &[(&str, &str)]) -> Vec<Act> {
    let tasks: Vec<_> = tasks.iter().map(|(peer, text)| task(peer, text)).collect();
    let tasks: Vec<_> = tasks
        .iter()
        .map(|(tool, arguments)| (tool.as_str(), arguments.clone()))
        .collect();
    calls(&tasks)
}

/// What the model was told last, before it was asked for the `at`th time.
fn last(agent: &Agent, at: usize) -> String {
    agent.model.question(at).messages.last().unwrap().text()
}

#[tokio::test(start_paused = true)]
async fn a_task_goes_to_a_peer_and_its_answer_to_the_model() {
    let bob = ScriptedPeer::new("bob");
    let agent = set_up([delegates(&[("bob", "dig")]), says(&["done"])], &[], &[&bob]);
    let request = json!({"stream": true, "messages": [
        {"role": "system", "content": "s"}, {"role": "user", "content": "I want a hole"},
    ]});
    let headers = [
        (
            "traceparent",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        ),
        ("x-kaos-delegation-path", "zoe"),
    ];
    let frames = agent
        .watched(async {
            let response = agent
                .send_with(Method::POST, CHAT, &headers, request.to_string())
                .await;
            frames(&response.into_body().collect().await.unwrap().to_bytes())
        })
        .await;
    let (text, progress) = told(&frames);
    assert_eq!(text, "done");
    let tool = "delegate_to_bob";
    assert_eq!(
        progress,
        [
            json!({"type": "tool_call", "step": 1, "max_steps": 3, "tool": tool, "arguments": {"task": "dig"}}),
            json!({
                "type": "tool_result", "step": 1, "max_steps": 3, "tool": tool, "result": "bob did: dig",
                "is_error": false,
            }),
        ]
    );
    assert_eq!(last(&agent, 1), "bob did: dig");
    let offered = agent.model.question(0).tools;
    let description = offered[4].function.description.clone().unwrap();
    assert_eq!(offered[4].function.name, tool);
    assert!(description.contains("what bob does"), "{description}");
    assert!(!agent.model.question(0).messages[0].text().contains("unavailable"));

    let (request, hop) = bob.asked.lock().unwrap()[0].clone();
    assert_eq!(
        serde_json::to_value(&request).unwrap(),
        json!({"model": "bob", "stream": false, "messages": [
            {"role": "user", "content": "I want a hole"}, {"role": "task-delegation", "content": "dig"},
        ]})
    );
    assert_eq!(hop.headers("ann")["x-kaos-delegation-path"], "zoe,ann");
    let sent = bob.traces.lock().unwrap()[0].headers();
    assert_eq!(sent["traceparent"], headers[0].1);
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_is_down_is_told_to_the_model_and_leaves_the_agent_ready() {
    let (bob, eve) = (ScriptedPeer::new("bob"), ScriptedPeer::new("eve"));
    *bob.away.lock().unwrap() = Some("connection refused");
    let agent = set_up(
        [delegates(&[("bob", "dig"), ("eve", "fill")]), says(&["done"])],
        &[],
        &[&bob, &eve],
    );
    agent
        .watched(async {
            assert_eq!(agent.get("/ready").await.0, 200);
            assert_eq!(answer(&agent.ask("x").await), "done");
        })
        .await;
    let prompt = agent.model.question(0).messages[0].text();
    let expected = "These agents are unavailable, so do not count on them:\n- \"bob\": agent http://bob/ is not \
                    reachable: connection refused";
    assert!(prompt.ends_with(expected), "{prompt}");
    let messages = agent.model.question(1).messages;
    let results: Vec<String> = messages[3..].iter().map(kaos_openai::Message::text).collect();
    assert_eq!(
        results,
        [
            "Delegation failed: agent http://bob/ is not reachable: connection refused",
            "eve did: fill"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn tasks_do_not_go_in_circles() {
    let (bob, eve) = (ScriptedPeer::new("bob"), ScriptedPeer::new("eve"));
    let answers = || [delegates(&[("bob", "dig")]), says(&["done"])];
    let agent = set_up(answers().into_iter().chain(answers()), &[], &[&bob, &eve]);
    let request = json!({"messages": [{"role": "task-delegation", "content": "dig"}]}).to_string();
    let ask = async |path: &str| {
        let headers = [("x-kaos-delegation-path", path)];
        let response = agent
            .send_with(Method::POST, CHAT, &headers, request.clone())
            .await;
        let (status, body) = read(response).await;
        assert_eq!((status, answer(&body)), (200, "done"));
    };
    agent
        .watched(async {
            ask("bob").await;
            let circle =
                "the task came by way of \"bob\", which waits for this answer: do it without \"bob\"";
            assert_eq!(last(&agent, 1), format!("Delegation failed: {circle}"));
            assert!(
                agent.model.question(0).messages[0]
                    .text()
                    .ends_with(&format!("- \"bob\": {circle}"))
            );
            ask("1,2,3,4,5").await;
            assert!(last(&agent, 3).starts_with("Delegation failed: the task was handed on 5 times"));
        })
        .await;
    assert!(bob.asked.lock().unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_peer_has_as_long_as_it_is_given() {
    let bob = ScriptedPeer::new("bob");
    let timeout = [("AGENT_DELEGATION_TIMEOUT_SECONDS", "90")];
    let agent = set_up([delegates(&[("bob", "dig")]), says(&["done"])], &timeout, &[&bob]);
    agent
        .watched(async {
            agent.app.dependencies.peers.delegates(&Hop::default()).await;
            *bob.takes.lock().unwrap() = Duration::from_secs(100);
            let start = Instant::now();
            agent.ask("x").await;
            assert_eq!(start.elapsed().as_secs(), 90);
        })
        .await;
    assert_eq!(
        last(&agent, 1),
        "Delegation failed: agent \"bob\" did not answer within 90 s"
    );
}

#[tokio::test(start_paused = true)]
async fn peers_are_a_capability_of_the_agent_and_are_not_asked_for_it() {
    let bob = ScriptedPeer::new("bob");
    for (peers, expected) in [(vec![&bob], true), (vec![], false)] {
        let agent = set_up([], &[], &peers);
        let (_, card) = agent.get("/.well-known/agent").await;
        let capabilities = card["capabilities"].as_array().unwrap();
        assert_eq!(capabilities.contains(&json!("task_delegation")), expected);
    }
    assert_eq!(*bob.cards.lock().unwrap(), 0);
}

#[tokio::test(start_paused = true)]
async fn scripted_answers_come_before_the_model_whoever_asks() {
    let bob = ScriptedPeer::new("bob");
    let delegate = "```delegate\n{\"agent\": \"bob\", \"task\": \"dig\"}\n```";
    let call = json!({"tool_calls": [{"name": "echo", "arguments": {"x": 1}}]});
    let mocks = json!([delegate, call, "mocked", "again"]).to_string();
    let agent = set_up([says(&["real"])], &[("DEBUG_MOCK_RESPONSES", &mocks)], &[&bob]);
    agent
        .watched(async {
            assert_eq!(answer(&agent.ask("x").await), "mocked");
            assert_eq!(bob.asked.lock().unwrap().len(), 1);
            *agent.model.missing.lock().unwrap() = Some(gone());
            sleep(Duration::from_secs(11)).await;
            assert_eq!(agent.get("/ready").await.0, 200, "the model is not needed yet");
            assert_eq!(told(&agent.stream(streaming("x")).await).0, "again");
            sleep(Duration::from_secs(11)).await;
            assert_eq!(agent.get("/ready").await.0, 503);
            assert_eq!(answer(&agent.ask("x").await), "real");
        })
        .await;
    let (_, events) = agent.get("/memory/events").await;
    let results = events["events"].as_array().unwrap().iter();
    let results: Vec<&Value> = results
        .filter(|event| event["event_type"] == "tool_result")
        .map(|event| &event["content"])
        .collect();
    assert_eq!(results, [&json!({"tool": "echo", "result": "calc {\"x\":1}"})]);
}
