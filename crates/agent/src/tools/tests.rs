//! The toolbox with scripted servers, in paused time.

use kaos_seams::SeededRandom;
use kaos_telemetry::Telemetry;
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::*;
use crate::testing::{ScriptedTools, Tool as Scripted};

const DEADLINE: Duration = Duration::from_secs(60);

async fn call(toolbox: &Toolbox, name: &str, arguments: Map<String, Value>) -> ToolResult {
    let operations = Operations::new(Telemetry::off(), "ann");
    let trace = TraceContext::default();
    toolbox.call(name, arguments, DEADLINE, &operations, &trace).await
}

fn toolbox(sources: &[&Arc<ScriptedTools>]) -> Toolbox {
    Toolbox::new(
        sources
            .iter()
            .map(|source| Arc::<ScriptedTools>::clone(source) as Arc<dyn ToolSource>)
            .collect(),
    )
}

async fn listed(sources: &[&Arc<ScriptedTools>]) -> Toolbox {
    let toolbox = toolbox(sources);
    for at in 0..sources.len() {
        toolbox.refresh(at).await;
    }
    toolbox
}

/// The tools offered, each with the server it is described by.
fn names(toolbox: &Toolbox) -> Vec<(String, String)> {
    toolbox
        .offered()
        .into_iter()
        .map(|tool| (tool.name, tool.info.description.clone()))
        .collect()
}

fn object(value: Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}

#[tokio::test]
async fn the_first_server_with_a_name_has_it() {
    let a = ScriptedTools::new("a", &[("add", Scripted::Echo)]);
    let b = ScriptedTools::new("b", &[("add", Scripted::Echo), ("math.sub", Scripted::Echo)]);
    let toolbox = listed(&[&a, &b]).await;
    let expected =
        [("add", "add of a"), ("math_sub", "math.sub of b")].map(|(n, d)| (n.to_owned(), d.to_owned()));
    assert_eq!(names(&toolbox), expected);
    let call = async |name: &str| call(&toolbox, name, object(json!({"x": 1}))).await;
    assert_eq!(call("add").await, ToolResult::success(r#"a {"x":1}"#));
    assert_eq!(
        call("math_sub").await,
        ToolResult::success(r#"b {"x":1}"#),
        "it is called by its own name"
    );
    let definition = toolbox.offered()[0].definition();
    assert_eq!(
        definition,
        Tool::function("add", Some("add of a".to_owned()), json!({"type": "object"}))
    );
}

#[tokio::test(start_paused = true)]
async fn what_goes_wrong_is_a_result_that_says_so() {
    let server = ScriptedTools::new(
        "a",
        &[
            ("fails", Scripted::Fails("division by zero")),
            ("slow", Scripted::Slow(Duration::from_secs(61))),
            ("structured", Scripted::Structured(json!({"sum": 3}))),
        ],
    );
    let toolbox = listed(&[&server]).await;
    let call = async |name: &str| call(&toolbox, name, Map::new()).await;
    assert_eq!(call("fails").await, ToolResult::failure("division by zero"));
    assert_eq!(call("structured").await, ToolResult::success(r#"{"sum":3}"#));
    assert_eq!(
        call("none").await,
        ToolResult::failure("the tool \"none\" is not offered any more")
    );
    let before = Instant::now();
    assert_eq!(
        call("slow").await,
        ToolResult::failure("\"slow\" did not answer within 60 s")
    );
    assert_eq!(before.elapsed(), DEADLINE);
    *server.away.lock().unwrap() = true;
    let gone = call("fails").await;
    assert!(
        gone.is_error && gone.text.contains("connection refused"),
        "{gone:?}"
    );
}

#[tokio::test]
async fn a_result_that_would_fill_the_context_is_shortened() {
    let server = ScriptedTools::new("a", &[("long", Scripted::Long(10 << 20))]);
    let result = call(&listed(&[&server]).await, "long", Map::new()).await;
    assert!(!result.is_error);
    assert!(result.text.len() < RESULT_LIMIT + 100, "{}", result.text.len());
    assert!(result.text.ends_with(&format!(
        "[{} more bytes are left out]",
        (10 << 20) - RESULT_LIMIT
    )));
}

#[test]
fn names_are_those_the_api_takes() {
    assert_eq!(function_name("get_user-2"), "get_user-2");
    assert_eq!(function_name("a.b/c d"), "a_b_c_d");
    assert_eq!(function_name(&"ü".repeat(80)), "_".repeat(64));
}

/// Runs the watch beside `test` and stops it after.
async fn watched(toolbox: &Toolbox, test: impl Future<Output = ()>) {
    let (pace, stop) = (
        Pace::new(Arc::new(SeededRandom::new(1))),
        CancellationToken::new(),
    );
    tokio::join!(toolbox.watch(&pace, &stop), async {
        test.await;
        stop.cancel();
    });
}

#[tokio::test(start_paused = true)]
async fn a_server_that_comes_later_is_found_soon() {
    let server = ScriptedTools::new("a", &[("add", Scripted::Echo)]);
    *server.away.lock().unwrap() = true;
    let toolbox = toolbox(&[&server]);
    watched(&toolbox, async {
        sleep(Duration::from_millis(300)).await;
        assert_eq!(
            toolbox.missing(),
            ["MCP server a is not reachable: MCP server http://a/mcp cannot be reached: connection refused"]
        );
        assert_eq!(names(&toolbox), []);
        *server.away.lock().unwrap() = false;
        sleep(Duration::from_millis(500)).await;
        assert_eq!((toolbox.missing().len(), names(&toolbox).len()), (0, 1));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_goes_is_missed_but_its_tools_stay() {
    let server = ScriptedTools::new("a", &[("add", Scripted::Echo)]);
    let toolbox = toolbox(&[&server]);
    watched(&toolbox, async {
        sleep(Duration::from_secs(1)).await;
        *server.away.lock().unwrap() = true;
        sleep(Duration::from_secs(11)).await;
        assert_eq!((toolbox.missing().len(), names(&toolbox).len()), (1, 1));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_call_of_a_tool_the_server_lost_has_its_tools_listed_again() {
    let server = ScriptedTools::new("a", &[("add", Scripted::Echo)]);
    let toolbox = toolbox(&[&server]);
    watched(&toolbox, async {
        sleep(Duration::from_secs(1)).await;
        *server.tools.lock().unwrap() = vec![("sum", Scripted::Echo)];
        let result = call(&toolbox, "add", Map::new()).await;
        assert_eq!(result, ToolResult::failure("Unknown tool: add"));
        sleep(Duration::from_secs(1)).await;
        assert_eq!(names(&toolbox)[0].0, "sum");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_there_is_seldom_asked() {
    let server = ScriptedTools::new("a", &[]);
    let toolbox = toolbox(&[&server]);
    watched(&toolbox, sleep(Duration::from_secs(100))).await;
    let listed = *server.listed.lock().unwrap();
    assert!((10..=21).contains(&listed), "{listed}");
}
