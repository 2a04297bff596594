//! The loop as a table: what it does next after each answer of the model and each result of a tool.

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn settings(max_steps: u32) -> Settings {
    Settings {
        model: "m".to_owned(),
        max_steps,
        context_limit: 6,
        tool_choice: None,
        calling: Calling::Native,
        parameters: Extra::new(),
    }
}

fn tools() -> Vec<Tool> {
    ["add", "sub"]
        .map(|name| Tool::function(name, None, json!({"type": "object"})))
        .to_vec()
}

fn run(max_steps: u32) -> AgentRun {
    AgentRun::new(
        settings(max_steps),
        vec![Message::system("s"), Message::user("1+2?")],
        tools(),
        Vec::new(),
    )
}

fn says(text: &str) -> ChatResponse {
    ChatResponse::new(
        "c",
        1,
        "m",
        Message::assistant(text),
        FinishReason::Stop,
        Usage::new(10, 1),
    )
}

fn calls(calls: &[(&str, &str, &str)]) -> ChatResponse {
    let mut message = Message::assistant("let me see");
    message.tool_calls = calls
        .iter()
        .map(|(id, name, arguments)| ToolCall::new(*id, *name, *arguments))
        .collect();
    ChatResponse::new("c", 1, "m", message, FinishReason::ToolCalls, Usage::new(10, 1))
}

fn asked(run: &AgentRun) -> ChatRequest {
    match run.next_step() {
        Step::CallModel(request) => *request,
        other => panic!("expected a question to the model, found {other:?}"),
    }
}

fn invoked(run: &AgentRun) -> Vec<(String, String, Value)> {
    match run.next_step() {
        Step::CallTools(calls) => calls
            .into_iter()
            .map(|call| (call.id, call.tool, call.arguments))
            .collect(),
        other => panic!("expected calls of tools, found {other:?}"),
    }
}

fn outcome(run: &AgentRun) -> Outcome {
    match run.next_step() {
        Step::Done(outcome) => outcome,
        other => panic!("expected the end, found {other:?}"),
    }
}

/// The text of the last `n` messages the model is asked with.
fn told(run: &AgentRun, n: usize) -> Vec<String> {
    let messages = asked(run).messages;
    messages[messages.len() - n..].iter().map(Message::text).collect()
}

#[test]
fn an_answer_without_calls_is_the_outcome() {
    let mut run = run(5);
    let request = asked(&run);
    assert_eq!(
        (request.model.as_str(), request.messages.len(), request.tools),
        ("m", 2, tools())
    );
    assert!(
        request.stream
            && request
                .stream_options
                .is_some_and(|options| options.include_usage)
    );
    assert_eq!(run.model_answered(says("3")), Ok(Vec::new()));
    assert_eq!(
        outcome(&run),
        Outcome::Answered {
            text: "3".to_owned(),
            finish_reason: FinishReason::Stop
        }
    );
    assert_eq!(run.messages().len(), 3);
}

#[test]
fn a_call_is_made_and_its_result_goes_to_the_model() {
    let mut run = run(5);
    assert_eq!(run.step(), 1);
    run.model_answered(calls(&[("a", "add", r#"{"x": 1, "y": 2}"#)]))
        .unwrap();
    assert_eq!(
        invoked(&run),
        [("a".to_owned(), "add".to_owned(), json!({"x": 1, "y": 2}))]
    );
    assert_eq!(run.step(), 1);
    run.tool_answered("a", ToolResult::success("3")).unwrap();
    assert_eq!(run.step(), 2);
    let messages = asked(&run).messages;
    assert_eq!(messages[2].tool_calls[0].id, "a");
    assert_eq!(messages[3], Message::tool("a", "3"));
    run.model_answered(says("it is 3")).unwrap();
    assert_eq!(outcome(&run).text(), "it is 3");
    assert_eq!(run.usage(), &Usage::new(20, 2));
}

#[test]
fn several_calls_may_be_answered_in_any_order() {
    let mut run = run(5);
    run.model_answered(calls(&[("a", "add", "{}"), ("b", "sub", ""), ("c", "add", " ")]))
        .unwrap();
    assert_eq!(invoked(&run).len(), 3);
    run.tool_answered("c", ToolResult::success("C")).unwrap();
    run.tool_answered("a", ToolResult::failure("boom")).unwrap();
    assert_eq!(invoked(&run), [("b".to_owned(), "sub".to_owned(), json!({}))]);
    run.tool_answered("b", ToolResult::success("B")).unwrap();
    assert_eq!(told(&run, 3), ["Tool execution failed: boom", "B", "C"]);
}

#[test]
fn calls_that_cannot_be_made_are_failed_tools_that_the_model_sees() {
    let cases = [
        (
            ("a", "mul", "{}"),
            "Tool execution failed: there is no tool \"mul\"; available are add, sub",
        ),
        (
            ("a", "", "{}"),
            "Tool execution failed: there is no tool \"\"; available are add, sub",
        ),
        (
            ("a", "add", "[1]"),
            "Tool execution failed: the arguments of \"add\" are not a JSON object: ",
        ),
        (
            ("a", "add", "{\"x\":"),
            "Tool execution failed: the arguments of \"add\" are not a JSON object: ",
        ),
        (
            ("a", "add", "null"),
            "Tool execution failed: the arguments of \"add\" are not a JSON object: ",
        ),
    ];
    for (call, expected) in cases {
        let mut run = run(5);
        let refused = run.model_answered(calls(&[call])).unwrap();
        assert_eq!((refused.len(), refused[0].1.is_error), (1, true), "{call:?}");
        let told = told(&run, 1);
        assert!(told[0].starts_with(expected), "{call:?}: {told:?}");
    }
}

#[test]
fn a_refused_call_does_not_keep_the_others_from_being_made() {
    let mut run = run(5);
    run.model_answered(calls(&[("a", "mul", "{}"), ("b", "add", "{}")]))
        .unwrap();
    assert_eq!(invoked(&run), [("b".to_owned(), "add".to_owned(), json!({}))]);
    assert_eq!(
        run.tool_answered("a", ToolResult::success("x")),
        Err(OutOfTurn::Tool { id: "a".to_owned() })
    );
    run.tool_answered("b", ToolResult::success("3")).unwrap();
    assert_eq!(told(&run, 1), ["3"]);
}

#[test]
fn calls_get_identifiers_of_their_own() {
    let mut run = run(5);
    run.model_answered(calls(&[
        ("", "add", "{}"),
        ("", "add", "{}"),
        ("x", "add", "{}"),
        ("x", "add", "{}"),
    ]))
    .unwrap();
    let ids: Vec<String> = invoked(&run).into_iter().map(|(id, ..)| id).collect();
    assert_eq!(ids, ["call_1_0", "call_1_1", "x", "call_1_3"]);
    let named: Vec<&str> = run.messages()[2]
        .tool_calls
        .iter()
        .map(|call| call.id.as_str())
        .collect();
    assert_eq!(named, ids);
}

#[test]
fn the_last_step_may_not_end_in_calls() {
    let mut run = run(2);
    for id in ["a", "b"] {
        run.model_answered(calls(&[(id, "add", "{}")])).unwrap();
        run.tool_answered(id, ToolResult::success("3")).unwrap();
    }
    assert_eq!(outcome(&run), Outcome::StepsExhausted { max_steps: 2 });
    assert_eq!(outcome(&run).text(), "Reached maximum reasoning steps (2)");
    assert_eq!(
        AgentRun::new(settings(0), Vec::new(), tools(), Vec::new()).next_step(),
        Step::Done(Outcome::StepsExhausted { max_steps: 0 })
    );
}

#[test]
fn a_model_that_fails_ends_the_run() {
    let mut failed = run(5);
    failed.model_failed("gone");
    assert_eq!(outcome(&failed).text(), "Sorry, I encountered an error: gone");
    failed.model_failed("later");
    assert_eq!(
        outcome(&failed),
        Outcome::ModelFailed {
            reason: "gone".to_owned()
        }
    );

    let mut empty = run(5);
    let nothing = ChatResponse {
        choices: Vec::new(),
        ..says("")
    };
    empty.model_answered(nothing).unwrap();
    assert_eq!(
        outcome(&empty).text(),
        "Sorry, I encountered an error: the model's answer has no choices"
    );
}

#[test]
fn results_nobody_waits_for_are_refused() {
    let mut run = run(5);
    assert_eq!(
        run.tool_answered("a", ToolResult::success("")),
        Err(OutOfTurn::Tool { id: "a".to_owned() })
    );
    run.model_answered(calls(&[("a", "add", "{}")])).unwrap();
    assert_eq!(run.model_answered(says("x")), Err(OutOfTurn::Model));
    run.tool_answered("a", ToolResult::success("1")).unwrap();
    run.model_answered(says("x")).unwrap();
    assert_eq!(run.model_answered(says("y")), Err(OutOfTurn::Model));
}

#[test]
fn parameters_reach_the_model_and_a_demand_for_a_tool_only_once() {
    let parameters: Extra = [("temperature".to_owned(), json!(0))].into_iter().collect();
    let start = |tool_choice, tools| {
        let settings = Settings {
            tool_choice: Some(tool_choice),
            parameters: parameters.clone(),
            ..settings(5)
        };
        AgentRun::new(settings, vec![Message::user("x")], tools, Vec::new())
    };
    for (choice, second) in [("required", None), ("auto", Some("auto")), ("none", Some("none"))] {
        let mut run = start(json!(choice), tools());
        assert_eq!(asked(&run).tool_choice, Some(json!(choice)));
        assert_eq!(asked(&run).extra, parameters);
        run.model_answered(calls(&[("a", "add", "{}")])).unwrap();
        run.tool_answered("a", ToolResult::success("1")).unwrap();
        assert_eq!(asked(&run).tool_choice, second.map(Value::from), "{choice}");
    }
    assert_eq!(asked(&start(json!("auto"), Vec::new())).tool_choice, None);
}

#[test]
fn a_stored_run_goes_on_where_it_was() {
    let mut run = run(5);
    run.model_answered(calls(&[
        ("a", "add", "{}"),
        ("b", "mul", "{}"),
        ("c", "add", "{}"),
    ]))
    .unwrap();
    run.tool_answered("a", ToolResult::success("1")).unwrap();
    let stored = serde_json::to_string(&run).unwrap();
    let mut resumed: AgentRun = serde_json::from_str(&stored).unwrap();
    assert_eq!(resumed, run);
    assert_eq!(invoked(&resumed), [("c".to_owned(), "add".to_owned(), json!({}))]);
    resumed.tool_answered("c", ToolResult::success("2")).unwrap();
    assert_eq!(asked(&resumed).messages.len(), 6);
}

fn delegate(agent: &str, barred: Option<&str>) -> Delegate {
    Delegate {
        agent: agent.to_owned(),
        tool: delegation_tool(agent),
        description: "digs".to_owned(),
        missing: None,
        barred: barred.map(str::to_owned),
    }
}

#[test]
fn agents_are_offered_as_tools_and_get_the_task_with_what_was_said() {
    let delegates = vec![delegate("bob", None), delegate("eve", Some("it waits"))];
    let mut offered = tools();
    offered.push(Tool::function("delegate_to_bob", None, json!({})));
    let messages = vec![Message::system("s"), Message::user("dig here")];
    let mut run = AgentRun::new(settings(5), messages, offered, delegates);
    let names = |run: &AgentRun| -> Vec<String> {
        let tools = asked(run).tools.into_iter();
        tools.map(|tool| tool.function.name).collect()
    };
    assert_eq!(names(&run), ["add", "sub", "delegate_to_bob", "delegate_to_eve"]);
    let bob = &asked(&run).tools[2].function;
    assert!(
        bob.description
            .as_deref()
            .unwrap()
            .contains("What it says of itself: digs")
    );
    assert_eq!(bob.parameters.as_ref().unwrap()["required"], json!(["task"]));

    let refused = run
        .model_answered(calls(&[
            ("a", "delegate_to_bob", r#"{"task": "dig"}"#),
            ("b", "delegate_to_eve", r#"{"task": "dig"}"#),
            ("c", "delegate_to_bob", "{}"),
            ("d", "add", "{}"),
        ]))
        .unwrap();
    let refused: Vec<_> = refused
        .iter()
        .map(|(invocation, result)| (invocation.id.as_str(), result.text.as_str()))
        .collect();
    let expected = [
        ("b", "Delegation failed: it waits"),
        ("c", "Invalid delegation: missing 'task'"),
    ];
    assert_eq!(refused, expected);
    let Step::CallTools(invocations) = run.next_step() else {
        panic!("no calls")
    };
    let tasks: Vec<_> = invocations
        .iter()
        .map(|invocation| &invocation.delegation)
        .collect();
    let [Some(task), None] = tasks.as_slice() else {
        panic!("{tasks:?}")
    };
    assert_eq!((task.agent.as_str(), task.task.as_str()), ("bob", "dig"));
    let request = run.delegated(task);
    let said: Vec<String> = request.messages.iter().map(Message::text).collect();
    assert_eq!((request.model.as_str(), request.stream), ("bob", false));
    assert_eq!(said, ["dig here", "let me see", "dig"]);
    run.tool_answered("a", ToolResult::success("dug")).unwrap();
    run.tool_answered("d", ToolResult::success("3")).unwrap();
    assert_eq!(told(&run, 4), ["dug", expected[0].1, expected[1].1, "3"]);
}

/// What a model might answer: text, nothing, or calls of any kind.
fn any_answer() -> impl Strategy<Value = ChatResponse> {
    let call = (
        prop_oneof![Just(String::new()), Just("a".to_owned()), ".{0,4}"],
        prop_oneof![
            Just("add".to_owned()),
            Just("sub".to_owned()),
            Just("delegate_to_bob".to_owned()),
            Just("delegate_to_eve".to_owned()),
            ".{0,4}"
        ],
        prop_oneof![
            Just("{}".to_owned()),
            Just(r#"{"x":1}"#.to_owned()),
            Just(r#"{"task":"dig"}"#.to_owned()),
            ".{0,8}"
        ],
    );
    (
        proptest::collection::vec(call, 0..5),
        proptest::option::of(".{0,8}"),
        0usize..8,
    )
        .prop_map(|(calls, text, choices)| {
            let mut response = says("");
            response.choices[0].message.content = text.map(Into::into);
            response.choices[0].message.tool_calls = calls
                .into_iter()
                .map(|(id, name, arguments)| ToolCall::new(id, name, arguments))
                .collect();
            if choices == 0 {
                response.choices.clear();
            }
            response
        })
}

proptest! {
    #[test]
    fn every_run_ends_within_its_steps_whatever_the_model_answers(
        answers in proptest::collection::vec(any_answer(), 1..12),
        max_steps in 0u32..6,
    ) {
        let delegates = vec![delegate("bob", None), delegate("eve", Some("it waits"))];
        let mut run = AgentRun::new(settings(max_steps), vec![Message::user("1+2?")], tools(), delegates);
        let mut answers = answers.into_iter().cycle();
        let mut questions = 0;
        loop {
            // Every state survives being stored.
            let stored = serde_json::to_string(&run).unwrap();
            prop_assert_eq!(&serde_json::from_str::<AgentRun>(&stored).unwrap(), &run);
            match run.next_step() {
                Step::CallModel(request) => {
                    questions += 1;
                    prop_assert!(questions <= max_steps);
                    // Each call of an answer has exactly one result after it, as the API demands.
                    let called = request.messages.iter().map(|message| message.tool_calls.len()).sum::<usize>();
                    let results = request.messages.iter().filter(|message| message.role == kaos_openai::Role::Tool);
                    prop_assert_eq!(called, results.count());
                    run.model_answered(answers.next().unwrap()).unwrap();
                }
                Step::CallTools(calls) => {
                    prop_assert!(!calls.is_empty());
                    for call in calls {
                        prop_assert!(call.arguments.is_object());
                        if let Some(task) = &call.delegation {
                            prop_assert_eq!((task.agent.as_str(), task.task.is_empty()), ("bob", false));
                            prop_assert!(run.delegated(task).messages.len() <= 7);
                        }
                        run.tool_answered(&call.id, ToolResult::success("x")).unwrap();
                    }
                }
                Step::Done(_) => break,
            }
        }
    }
}
