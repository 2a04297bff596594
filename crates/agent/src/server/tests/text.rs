//! Models that call tools by their text.

use super::*;
use crate::model::ModelError;

const CALLS: &str = "Let me see.\n```tool_call\n{\"tool\": \"echo\", \"arguments\": {\"a\": 1}}\n```";

fn takes_no_tools() -> Vec<Act> {
    vec![Act::Fail(ModelError::Refused {
        url: "http://model/".to_owned(),
        status: 400,
        said: "gemma:2b does not support tools".to_owned(),
        retry_after: None,
    })]
}

/// The system message of a question, and how many tools it has.
fn system(agent: &Agent, question: usize) -> (String, usize) {
    let question = agent.model.question(question);
    (question.messages[0].text(), question.tools.len())
}

#[tokio::test(start_paused = true)]
async fn a_model_that_takes_no_tools_is_told_of_them_in_text() {
    let agent = agent([
        takes_no_tools(),
        says(&[CALLS]),
        says(&["It is ", "1."]),
        says(&["Hello."]),
    ]);
    agent
        .watched(async {
            assert_eq!(answer(&agent.ask("x").await), "It is 1.");
            let (text, tools) = system(&agent, 0);
            assert!(tools == 4 && !text.contains("tool_call"), "{text}");
            let (text, tools) = system(&agent, 1);
            assert_eq!(tools, 0);
            for part in [
                "## Available Tools",
                "- **echo**: echo of calc\n  Parameters: {",
                "```tool_call\n",
            ] {
                assert!(text.contains(part), "{text}");
            }
            let question = agent.model.question(2);
            let [.., call, result] = question.messages.as_slice() else {
                panic!("{question:?}")
            };
            assert_eq!((call.text().as_str(), call.tool_calls.len()), (CALLS, 0));
            assert_eq!(result.role, kaos_openai::Role::User);
            assert_eq!(result.text(), r#"Tool result: calc {"a":1}"#);
            // It is not tried again.
            assert_eq!(answer(&agent.ask("y").await), "Hello.");
            assert_eq!(system(&agent, 3).1, 0);
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_call_in_text_is_not_told_as_text() {
    let pieces = [
        "Let me",
        " see.\n``",
        "`tool_call {\"tool\": ",
        "\"echo\"}",
        "\n```",
        "\n",
    ];
    let agent = agent([says(&pieces), says(&["Done. ```rust\n", "```"])]);
    agent
        .watched(async {
            let (text, progress) = told(&agent.stream(streaming("x")).await);
            assert_eq!(text, "Let me see.\n\n\nDone. ```rust\n```");
            let kinds: Vec<&Value> = progress.iter().map(|progress| &progress["type"]).collect();
            assert_eq!(kinds, ["tool_call", "tool_result"]);
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn several_calls_in_text_and_those_that_fail_are_answered_in_one_message() {
    let several = "```tool_call\n{\"tool\": \"fails\"}\n```\n```tool_call\n{\"tool\": \"nothing\"}\n```\n\
                   ```delegate\n{\"agent\": \"bob\", \"task\": \"dig\"}\n```\n```delegate\n{\"agent\": \"bob\"}\n```";
    let bob = ScriptedPeer::new("bob");
    let agent = set_up(
        [says(&[several]), says(&["so"])],
        &[("TOOL_CALL_MODE", "string")],
        &[&bob],
    );
    agent
        .watched(async {
            assert_eq!(answer(&agent.ask("x").await), "so");
            let (text, tools) = system(&agent, 0);
            assert_eq!(tools, 0);
            for part in [
                "## Available Agents for Delegation\n- **bob**: what bob does",
                "```delegate\n",
            ] {
                assert!(text.contains(part), "{text}");
            }
            assert!(!text.contains("delegate_to_bob"), "{text}");
            let question = agent.model.question(1);
            let told = question.messages.last().unwrap().text();
            let lines: Vec<&str> = told.split("\n\n").collect();
            let [fails, nothing, bob, missing] = lines.as_slice() else {
                panic!("{told}")
            };
            assert_eq!(*fails, "Tool execution failed: division by zero");
            assert!(
                nothing.starts_with("Tool execution failed: there is no tool \"nothing\""),
                "{told}"
            );
            assert_eq!(*bob, "Agent response: bob did: dig");
            assert_eq!(*missing, "Invalid delegation: missing 'task'");
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn where_the_api_is_asked_for_a_refusal_of_tools_is_a_failure() {
    let agent = set_up([takes_no_tools()], &[("TOOL_CALL_MODE", "native")], &[]);
    agent
        .watched(async {
            let answered = agent.ask("x").await;
            assert!(
                answer(&answered).ends_with("does not support tools"),
                "{answered}"
            );
        })
        .await;
}
