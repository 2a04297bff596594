//! Python functions served by real Python workers and called through the MCP client.

use std::os::unix::fs::PermissionsExt;

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
        "odd: a object has no JSON form; return text, numbers, lists, dicts, dataclasses or Pydantic models"
    );
    served.end().await;
}

#[tokio::test]
async fn what_a_return_type_says_is_structure() {
    let served = Served::start(
        r#"
from dataclasses import dataclass
from typing import AsyncIterator, List, Optional

@dataclass
class Point:
    x: int
    label: Optional[str] = None

def number() -> int: return 5
def points() -> List[Point]: return [Point(1, "a")]
def point() -> Point: return Point(1)
def text() -> str: return "plain"
def unsaid(): return 5
def wrong() -> int: return "five"
async def several() -> AsyncIterator[int]:
    for value in (1, 2):
        yield value
"#,
    )
    .await;
    for (tool, text, structured) in [
        ("number", "5", Some(json!({"result": 5}))),
        (
            "points",
            r#"[{"x": 1, "label": "a"}]"#,
            Some(json!({"result": [{"x": 1, "label": "a"}]})),
        ),
        (
            "point",
            r#"{"x": 1, "label": null}"#,
            Some(json!({"x": 1, "label": null})),
        ),
        ("text", "plain", None),
        ("unsaid", "5", None),
        ("several", "[1, 2]", None),
    ] {
        let outcome = served.call(tool, json!({})).await;
        assert_eq!(
            (outcome.text.as_str(), outcome.structured),
            (text, structured),
            "{tool}"
        );
    }
    assert_eq!(
        served.failure("wrong", json!({})).await,
        "wrong: the function returned what its return type does not say: it is \"five\" and no integer; correct the \
         function or the type"
    );
    served.end().await;
}

#[tokio::test]
async fn docstrings_of_every_style_describe_the_parameters() {
    let served = Served::start(
        r#"
def numpy(a: int, b: float, c: float):
    """Of NumPy.

    Parameters
    ----------
    a : int
        The first,
        on two lines.
    b, c : float
        Both others.

    Returns
    -------
    int
        The sum.
    """

def sphinx(a: int, b: str = ""):
    """Of Sphinx.

    :param int a: The first
        on two lines.
    :param b: The second.
    :type b: str
    :returns: nothing
    """
"#,
    )
    .await;
    let tools = served.client.list_tools(LONG).await.unwrap();
    let said: Vec<Value> = tools
        .iter()
        .map(|tool| {
            let properties = tool.input_schema["properties"].as_object().unwrap();
            let notes: Vec<&Value> = properties.values().map(|schema| &schema["description"]).collect();
            json!([tool.description, notes])
        })
        .collect();
    assert_eq!(
        said,
        [
            json!([
                "Of NumPy.",
                ["The first, on two lines.", "Both others.", "Both others."]
            ]),
            json!(["Of Sphinx.", ["The first on two lines.", "The second."]]),
        ]
    );
    served.end().await;
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
             list, dict, Literal, an Enum, a dataclass, a TypedDict or a Pydantic model: \"def f(file: \
             io.StringIO): pass\"; correct this line"
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
    config.packages.python = "/nowhere/python3".into();
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
    config.packages.python = old.clone();
    assert_eq!(
        refused_config(config.clone()).await,
        format!("{old:?} is Python 3.8.18, and 3.9 is the oldest that works; set KAOS_PYTHON to a newer one")
    );
    config.packages.python = "true".into();
    let ended = refused_config(config).await;
    assert!(
        ended.starts_with("Python ended before the tools were loaded (its Python process ended"),
        "{ended}"
    );
}
