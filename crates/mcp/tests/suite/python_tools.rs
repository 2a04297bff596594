//! Python functions served by real Python workers and called through the MCP client.

use std::{os::unix::fs::PermissionsExt, time::Duration};

use crate::common::{LONG, Served, object};
use kaos_mcp::server::{self, ToolServerConfig};
use kaos_seams::Seams;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// What `serve` says when it refuses to start with `source`.
async fn refused(source: &str) -> String {
    refused_config(ToolServerConfig::new(source)).await
}

async fn refused_config(config: ToolServerConfig) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let served = server::serve(config, listener, Seams::system(), CancellationToken::new());
    tokio::time::timeout(LONG, served)
        .await
        .expect("refused at once")
        .unwrap_err()
        .to_string()
}

#[tokio::test]
async fn the_source_is_one_namespace() {
    let served = Served::start(
        r#"
from __future__ import annotations
from dataclasses import dataclass
from math import floor
import json

LIMIT = 10

@dataclass
class Point:
    x: int
    y: int = 2

def _helper(value):
    return floor(value) + LIMIT

def use(value: float) -> int:
    """Uses a helper, an import and a constant."""
    return _helper(value)

def move(point: Point) -> Point:
    return Point(point.x + 1, point.y)

class NotATool:
    pass
"#,
    )
    .await;
    let names: Vec<String> = served
        .client
        .list_tools(LONG)
        .await
        .unwrap()
        .into_iter()
        .map(|tool| tool.name)
        .collect();
    assert_eq!(names, ["use", "move"]);
    assert_eq!(served.text("use", json!({"value": 1.5})).await, "11");
    let moved = served.call("move", json!({"point": {"x": 1}})).await;
    assert_eq!(moved.structured, Some(json!({"x": 2, "y": 2})));
    served.end().await;
}

#[tokio::test]
async fn hints_defaults_and_docstrings_become_the_schema() {
    let served = Served::start(
        r#"
from enum import Enum
from typing import Annotated, Dict, List, Literal, Optional, TypedDict, Union

class Colour(Enum):
    RED = "red"
    BLUE = "blue"

class Place(TypedDict, total=False):
    city: str

def everything(
    a: int,
    b: float,
    c: str,
    d: bool,
    e: List[int],
    f: Dict[str, float],
    g: Optional[str] = None,
    h: Literal["x", "y"] = "x",
    i: Colour = Colour.BLUE,
    j: Union[int, str] = 3,
    k: Place = {},
    l: Annotated[int, "a count"] = 1,
    m=None,
):
    """Takes one
    of each.

    More that no model needs.

    Args:
        a: The first,
            on two lines.
        c (str): The third.

    Returns:
        Nothing.
    """
"#,
    )
    .await;
    let tools = served.client.list_tools(LONG).await.unwrap();
    assert_eq!(tools[0].description, "Takes one of each.");
    assert_eq!(
        Value::Object(tools[0].input_schema.clone()),
        json!({
            "type": "object",
            "properties": {
                "a": {"type": "integer", "description": "The first, on two lines."},
                "b": {"type": "number"},
                "c": {"type": "string", "description": "The third."},
                "d": {"type": "boolean"},
                "e": {"type": "array", "items": {"type": "integer"}},
                "f": {"type": "object", "additionalProperties": {"type": "number"}},
                "g": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": null},
                "h": {"type": "string", "enum": ["x", "y"], "default": "x"},
                "i": {"type": "string", "enum": ["red", "blue"], "default": "blue"},
                "j": {"anyOf": [{"type": "integer"}, {"type": "string"}], "default": 3},
                "k": {
                    "type": "object", "properties": {"city": {"type": "string"}}, "required": [], "default": {}
                },
                "l": {"type": "integer", "description": "a count", "default": 1},
                "m": {"default": null},
            },
            "required": ["a", "b", "c", "d", "e", "f"],
            "additionalProperties": false,
        })
    );
    served.end().await;
}

#[tokio::test]
async fn arguments_are_checked_and_errors_say_what_to_send() {
    let served = Served::start(
        r#"
from enum import Enum
from typing import List, Optional

class Colour(Enum):
    RED = "red"

def add(a: int, b: int = 1) -> int:
    return a + b

def kinds(colour: Colour, names: List[str], when: Optional[float] = None) -> str:
    return f"{colour!r} {names!r} {when!r}"

def flag(on: bool) -> str:
    return repr(on)
"#,
    )
    .await;
    assert_eq!(served.text("add", json!({"a": 2})).await, "3");
    assert_eq!(
        served.text("add", json!({"a": "2", "b": 3.0})).await,
        "5",
        "as models send numbers"
    );
    assert_eq!(served.text("flag", json!({"on": "true"})).await, "True");
    assert_eq!(
        served
            .text("kinds", json!({"colour": "red", "names": ["a"], "when": 1}))
            .await,
        "<Colour.RED: 'red'> ['a'] 1.0"
    );
    for (tool, arguments, message) in [
        ("add", json!({}), "add: missing argument 'a' (int)"),
        (
            "add",
            json!({"a": 1, "c": 2}),
            "add: unknown argument 'c'; add takes: a, b",
        ),
        (
            "add",
            json!({"a": "two"}),
            "add: argument a must be int, not \"two\"",
        ),
        ("add", json!({"a": true}), "add: argument a must be int, not true"),
        ("add", json!({"a": 1.5}), "add: argument a must be int, not 1.5"),
        (
            "kinds",
            json!({"colour": "green", "names": []}),
            "kinds: argument colour must be one of 'red', not \"green\"",
        ),
        (
            "kinds",
            json!({"colour": "red", "names": ["a", 1]}),
            "kinds: argument names[1] must be str, not 1",
        ),
        ("flag", json!({"on": 1}), "flag: argument on must be bool, not 1"),
    ] {
        assert_eq!(served.failure(tool, arguments).await, message);
    }
    let unknown = served
        .client
        .call_tool("subtract", object(json!({})), LONG)
        .await
        .unwrap_err();
    assert!(
        unknown
            .to_string()
            .ends_with("unknown tool \"subtract\"; the tools are: add, kinds, flag")
    );
    served.end().await;
}

#[tokio::test]
async fn every_kind_of_result_arrives() {
    let served = Served::start(
        r#"
import asyncio, datetime, decimal

def text(): return "a 'quoted' \"line\"\nü"
def number(): return 10 ** 30
def listing(): return [1, "two", None, (3, 4)]
def nothing(): return None
def structure(): return {"when": datetime.date(2026, 1, 2), "price": decimal.Decimal("1.50"), "nan": float("nan")}
def picture(): return b"\x89PNG\r\n\x1a\n"
def raw(): return b"\x00\x01"
def lone(): return "half \ud800"
def odd(): return object()
async def later():
    await asyncio.sleep(0)
    return "later"
"#,
    )
    .await;
    assert_eq!(served.text("text", json!({})).await, "a 'quoted' \"line\"\nü");
    assert_eq!(
        served.text("number", json!({})).await,
        "1000000000000000000000000000000"
    );
    assert_eq!(
        served.text("listing", json!({})).await,
        "[1, \"two\", null, [3, 4]]"
    );
    assert_eq!(served.text("nothing", json!({})).await, "");
    let structure = served.call("structure", json!({})).await;
    assert_eq!(
        structure.structured,
        Some(json!({"when": "2026-01-02", "price": "1.50", "nan": "nan"}))
    );
    assert_eq!(
        structure.text,
        r#"{"when": "2026-01-02", "price": "1.50", "nan": "nan"}"#
    );
    assert_eq!(served.text("picture", json!({})).await, "[image image/png]");
    assert_eq!(
        served.text("raw", json!({})).await,
        "[file tool://raw/result application/octet-stream]"
    );
    assert_eq!(served.text("lone", json!({})).await, "half ?");
    assert_eq!(served.text("later", json!({})).await, "later");
    assert_eq!(
        served.failure("odd", json!({})).await,
        "odd: a object has no JSON form; return text, numbers, lists, dicts or dataclasses"
    );
    served.end().await;
}

#[tokio::test]
async fn what_a_tool_does_to_its_process_fails_only_its_call() {
    let served = Served::start(
        r#"
import os, sys

calls = 0

def count() -> int:
    global calls
    calls += 1
    print("this is not an answer", flush=True)
    os.write(1, b'{"call": 1, "content": []}\n')
    os.system("echo nor is this")
    return calls

def fail():
    raise ValueError("too large: 7")

def leave():
    sys.exit(3)

def read() -> str:
    return sys.stdin.read()

def die():
    os._exit(9)

def fork_and_die():
    if os.fork() == 0:
        os.execvp("sleep", ["sleep", "5"])
    os._exit(1)
"#,
    )
    .await;
    assert_eq!(served.text("count", json!({})).await, "1");
    assert_eq!(
        served.failure("fail", json!({})).await,
        "ValueError: too large: 7"
    );
    assert_eq!(
        served.failure("leave", json!({})).await,
        "the code called sys.exit(3)"
    );
    assert_eq!(served.text("read", json!({})).await, "");
    assert_eq!(
        served.text("count", json!({})).await,
        "2",
        "the worker has survived all of it"
    );
    let died = served.failure("die", json!({})).await;
    assert_eq!(
        died,
        "die: the call failed: its Python process ended (exit status: 9)"
    );
    assert_eq!(
        served.text("count", json!({})).await,
        "1",
        "a new worker has taken its place"
    );
    let died = served.failure("fork_and_die", json!({})).await;
    assert_eq!(
        died,
        "fork_and_die: the call failed: its Python process ended (exit status: 1)"
    );
    assert_eq!(served.text("count", json!({})).await, "1");
    served.end().await;
}

#[tokio::test]
async fn a_call_past_its_limit_is_stopped_alone() {
    let folder = tempfile::tempdir().unwrap();
    let mark = folder.path().join("pid");
    let mut config = ToolServerConfig::new(
        r#"
import os, time

def hang(mark: str):
    with open(mark, "w") as file:
        file.write(str(os.getpid()))
    time.sleep(3600)

def quick() -> str:
    return "quick"
"#,
    );
    config.call_timeout = Duration::from_secs(1);
    let served = Served::with(config, "127.0.0.1:0").await;
    let hang = served.call("hang", json!({"mark": mark}));
    let quick = async {
        for _ in 0..20 {
            assert_eq!(
                served.text("quick", json!({})).await,
                "quick",
                "the other worker serves"
            );
        }
    };
    let (stopped, ()) = tokio::join!(hang, quick);
    assert_eq!(
        (stopped.is_error, stopped.text.as_str()),
        (true, "hang: the call was stopped after 1 s, its time limit")
    );
    let pid = std::fs::read_to_string(&mark).unwrap();
    until("the stopped worker is gone", || gone(&pid)).await;
    // Both workers serve again.
    let (a, b) = tokio::join!(served.text("quick", json!({})), served.text("quick", json!({})));
    assert_eq!((a.as_str(), b.as_str()), ("quick", "quick"));
    served.end().await;
}

#[tokio::test]
async fn a_caller_waits_for_a_worker_no_longer_than_the_limit() {
    let mut config = ToolServerConfig::new("import time\ndef nap(): time.sleep(0.8)\n");
    config.workers = 1;
    config.call_timeout = Duration::from_secs(1);
    let served = Served::with(config, "127.0.0.1:0").await;
    let naps = (0..4).map(|_| served.call("nap", json!({})));
    let outcomes = futures::future::join_all(naps).await;
    // On a busy machine a nap may take longer than the limit, too.
    let known = [
        "",
        "nap: no worker was free within 1 s",
        "nap: the call was stopped after 1 s",
    ];
    let started_with = |text: &str, known: &str| {
        if known.is_empty() {
            text.is_empty()
        } else {
            text.starts_with(known)
        }
    };
    for outcome in &outcomes {
        assert!(
            known.iter().any(|known| started_with(&outcome.text, known)),
            "{outcome:?}"
        );
    }
    assert!(
        outcomes.iter().any(|outcome| outcome.text.starts_with(known[1])),
        "{outcomes:?}"
    );
    served.end().await;
}

#[tokio::test]
async fn a_call_whose_caller_has_left_is_not_begun() {
    let served = Served::start(
        r#"
import os, time

begun = []

def hold(gate: str):
    open(gate + ".held", "w").close()
    while not os.path.exists(gate):
        time.sleep(0.01)

def note(name: str):
    begun.append(name)

def noted() -> list:
    return begun
"#,
    )
    .await;
    let folder = tempfile::tempdir().unwrap();
    let gate = folder.path().join("gate");
    let (client, path) = (served.client.clone(), gate.clone());
    let holding = tokio::spawn(async move {
        client
            .call_tool("hold", object(json!({"gate": path})), LONG)
            .await
    });
    until("the worker is held", || folder.path().join("gate.held").exists()).await;
    let impatient = object(json!({"name": "impatient"}));
    let left = served
        .client
        .call_tool("note", impatient, Duration::from_millis(300))
        .await;
    assert!(left.is_err(), "the only worker was held: {left:?}");
    std::fs::write(&gate, "").unwrap();
    holding.await.unwrap().unwrap();
    served.text("note", json!({"name": "patient"})).await;
    assert_eq!(served.text("noted", json!({})).await, "[\"patient\"]");
    served.end().await;
}

#[tokio::test]
async fn the_workers_end_with_the_server() {
    let served = Served::start("import os\ndef pid() -> int: return os.getpid()\n").await;
    let pid = served.text("pid", json!({})).await;
    served.end().await;
    until("the worker is gone", || gone(&pid)).await;
}

/// Whether the process has ended; one that nobody has waited for yet has ended, too.
fn gone(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.map_or(true, |stat| {
        stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('Z'))
    })
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    let deadline = tokio::time::Instant::now() + LONG;
    while !holds() {
        assert!(tokio::time::Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_source_that_cannot_be_served_is_refused_with_the_place() {
    let start = "the tools cannot be loaded: MCP_TOOLS_STRING";
    assert_eq!(
        refused("def fine(): pass\ndef broken(:\n    pass\n").await,
        format!("{start}, line 2: SyntaxError: invalid syntax: \"def broken(:\"; correct this line")
    );
    assert_eq!(
        refused("import nothing_of_this_name\ndef f(): pass").await,
        format!(
            "{start}, line 1: ModuleNotFoundError: No module named 'nothing_of_this_name': \
             \"import nothing_of_this_name\"; correct this line"
        )
    );
    assert_eq!(
        refused("def g():\n    return 1 / 0\nVALUE = g()\n").await,
        format!("{start}, line 2: ZeroDivisionError: division by zero: \"return 1 / 0\"; correct this line")
    );
    assert_eq!(
        refused("import os\nfrom math import floor\ndef _hidden(): pass\nclass C: pass\n").await,
        format!(
            "{start}: it defines no public function; a tool is a function whose name does not start with an \
             underscore"
        )
    );
    assert_eq!(
        refused("def f(*values: int): pass").await,
        format!(
            "{start}, line 1: f takes *values: int: a model passes arguments by name; list each one: \
             \"def f(*values: int): pass\"; correct this line"
        )
    );
    assert_eq!(
        refused("import io\ndef f(file: io.StringIO): pass").await,
        format!(
            "{start}, line 2: f, parameter file: the type StringIO has no JSON form; use str, int, float, bool, \
             list, dict, Literal, an Enum, a dataclass or a TypedDict: \"def f(file: io.StringIO): pass\"; \
             correct this line"
        )
    );
    assert!(
        refused("def größe(): pass")
            .await
            .contains("line 1: 'größe' is no name that models can call")
    );
    assert_eq!(
        refused("import sys\nsys.exit('no licence')\n").await,
        format!(
            "{start}, line 2: the code called sys.exit('no licence'): \"sys.exit('no licence')\"; correct this \
             line"
        )
    );
    assert!(
        refused("import os\nos._exit(4)\n")
            .await
            .starts_with("Python ended before the tools were loaded")
    );
}

#[tokio::test]
async fn an_interpreter_of_no_use_is_named_with_the_variable() {
    let mut config = ToolServerConfig::new("def f(): pass");
    config.python = "/nowhere/python3".into();
    assert_eq!(
        refused_config(config.clone()).await,
        "Python was not found: \"/nowhere/python3\" is not in PATH or does not exist; install Python 3.9 or \
         newer, or set KAOS_PYTHON to its path"
    );
    let folder = tempfile::tempdir().unwrap();
    let old = folder.path().join("python3");
    std::fs::write(
        &old,
        "#!/bin/sh\nread -r source\necho '{\"too_old\": \"3.8.18\"}'\n",
    )
    .unwrap();
    std::fs::set_permissions(&old, PermissionsExt::from_mode(0o755)).unwrap();
    config.python = old.clone();
    assert_eq!(
        refused_config(config.clone()).await,
        format!("{old:?} is Python 3.8.18, and 3.9 is the oldest that works; set KAOS_PYTHON to a newer one")
    );
    config.python = "true".into();
    let ended = refused_config(config).await;
    assert!(
        ended.starts_with("Python ended before the tools were loaded (its Python process ended"),
        "{ended}"
    );
}
