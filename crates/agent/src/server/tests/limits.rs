//! Models that fail, as errors of HTTP where that is asked for, and answers that take too long.

use super::*;

const STRICT: (&str, &str) = ("AGENT_STRICT_ERRORS", "true");
const GONE: &str = "model API http://model/ is not reachable: connection refused";

#[tokio::test(start_paused = true)]
async fn a_strict_agent_answers_502_when_the_model_fails() {
    let half = || vec![Act::Delta(json!({"content": "half"})), Act::Fail(gone())];
    let fails = || vec![Act::Fail(gone())];
    let agent = set_up(
        [fails(), half(), fails(), half(), says(&["fine"])],
        &[STRICT],
        &[],
    );
    agent
        .watched(async {
            let asked = || json!({"messages": [{"role": "user", "content": "x"}]}).to_string();
            let error = json!({"message": GONE, "type": "server_error", "param": null, "code": null});
            let expected = json!({"detail": GONE, "error": error});
            for what in ["at once", "in the middle"] {
                assert_eq!(agent.post(asked()).await, (502, expected.clone()), "{what}");
            }
            // A stream has not begun yet when the model fails at once.
            assert_eq!(
                agent.post(streaming("x").to_string()).await,
                (502, expected.clone())
            );
            // One that has begun ends with the error that SDKs raise.
            let response = agent.send(Method::POST, CHAT, streaming("x").to_string()).await;
            assert_eq!(response.status(), 200);
            let bytes = response.into_body().collect().await.unwrap().to_bytes();
            let text = String::from_utf8(bytes.to_vec()).unwrap();
            let events: Vec<&str> = text
                .lines()
                .filter_map(|line| line.strip_prefix("data: "))
                .collect();
            let [.., said, failed, done] = events.as_slice() else {
                panic!("{text}")
            };
            assert!(said.contains("half"), "{text}");
            let failed: Value = serde_json::from_str(failed).unwrap();
            assert_eq!(failed["error"]["message"], GONE);
            assert_eq!(*done, "[DONE]");
            assert!(!text.contains("Sorry"), "{text}");
            assert_eq!(told(&agent.stream(streaming("x")).await).0, "fine");
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_has_a_time_for_all_its_steps() {
    let drips = || {
        let drop = || {
            [
                Act::Wait(Duration::from_secs(7)),
                Act::Delta(json!({"content": "."})),
            ]
        };
        (0..100).flat_map(|_| drop()).collect::<Vec<_>>()
    };
    let agent = set_up(
        [drips(), calls(&[("slow", json!({}))]), drips()],
        &[("AGENT_REQUEST_TIMEOUT_SECONDS", "20")],
        &[],
    );
    agent
        .watched(async {
            let late = "Sorry, I encountered an error: the answer took longer than 20 s in all";
            for what in ["a model that drips", "a tool that is slow"] {
                let begin = Instant::now();
                assert_eq!(answer(&agent.ask("x").await), late, "{what}");
                assert_eq!(begin.elapsed().as_secs(), 20, "{what}");
            }
            let (text, _) = told(&agent.stream(streaming("x")).await);
            assert_eq!(text, format!("..\n\n{late}"));
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn metrics_can_be_read_although_nothing_is_sent() {
    let mut agent = agent([
        calls(&[("echo", json!({}))]),
        says(&["fine"]),
        vec![Act::Fail(gone())],
    ]);
    let telemetry = Telemetry::start(None, &agent.app.seams).unwrap();
    agent.app = App::new(
        (*agent.app.config).clone(),
        agent.app.dependencies.clone(),
        agent.app.seams.clone(),
        telemetry,
    );
    agent
        .watched(async {
            agent.ask("x").await;
            agent.ask("y").await;
        })
        .await;
    let response = agent.send(Method::GET, "/metrics", Body::empty()).await;
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "text/plain; version=0.0.4");
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    for line in [
        r#"kaos_requests_total{agent_name="ann",success="true"} 1"#,
        r#"kaos_requests_total{agent_name="ann",success="false"} 1"#,
        r#"kaos_tool_calls_total{agent_name="ann",success="true",tool="echo"} 1"#,
        r#"kaos_model_calls_total{agent_name="ann",model="smart",success="true"} 2"#,
        r#"kaos_request_duration_milliseconds_count{agent_name="ann",success="true"} 1"#,
        r#"gen_ai_client_operation_duration_seconds_count{error_type="unreachable",gen_ai_operation_name="chat",gen_ai_provider_name="openai",gen_ai_request_model="smart"} 1"#,
        r#"gen_ai_client_operation_duration_seconds_count{gen_ai_operation_name="chat",gen_ai_provider_name="openai",gen_ai_request_model="smart"} 2"#,
        r#"gen_ai_client_operation_time_to_first_chunk_seconds_count{gen_ai_operation_name="chat",gen_ai_provider_name="openai",gen_ai_request_model="smart"} 2"#,
        r#"gen_ai_client_token_usage_sum{gen_ai_operation_name="chat",gen_ai_provider_name="openai",gen_ai_request_model="smart",gen_ai_token_type="input"} 20"#,
    ] {
        assert!(text.lines().any(|seen| seen == line), "{line}\nis not in\n{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_does_not_arrive_is_given_up() {
    let agent = agent([]);
    let begun = futures::stream::iter([Ok::<_, std::io::Error>("{\"messages\": ")]);
    let body = Body::from_stream(begun.chain(futures::stream::pending()));
    let detail = "request body did not arrive within 30 s";
    assert_eq!(agent.post(body).await, (408, refused(detail)));
}
