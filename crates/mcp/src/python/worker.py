"""One worker of the tool server: runs a user's Python functions, one call at a time.

The server starts several of these, each with the same source, and speaks to them in JSON lines:

    server -> worker   {"modules": [[name, code], ...], "source": "..."}   once, first
    worker -> server   {"tools": [{"name", "description", "schema", "output"}]}
                       or {"failed": {"message", "line", "text"}} or {"too_old": "3.8.18"}
    server -> worker   {"call": 1, "tool": "add", "arguments": {...}}      then again and again
    worker -> server   {"call": 1, "content": [...], "structured": {...}}
                       or {"call": 1, "error": "..."}

The lines travel on copies of the first standard input and output. Descriptor 1 then becomes the
log, so that what user code prints can never be taken for an answer. The worker ends when its input
ends, even in the middle of a call: its server is gone.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import linecache
import os
import queue
import signal
import sys
import threading
import traceback
import types
import typing

from kaos_docstrings import parse_docstring
from kaos_json_types import (
    EMPTY,
    Refused,
    convert,
    describe,
    is_field,
    misfit,
    output_of,
    schema_of,
    to_json,
)

MODULE = "mcp_tools"
FILENAME = "<tools>"
IMAGES = (
    (b"\x89PNG\r\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
)


class Tool:
    """A public function of the source, callable with JSON arguments."""

    def __init__(self, name: str, function: typing.Callable[..., typing.Any]) -> None:
        if not name.isascii() or len(name) > 64:
            raise Refused(f"{name!r} is no name that models can call; use up to 64 ASCII letters")
        self.name = name
        self.function = function
        self.description, notes = parse_docstring(inspect.getdoc(function) or "")
        try:
            hints = typing.get_type_hints(function, include_extras=True)
        except Exception as error:
            raise Refused(f"the type hints of {name} cannot be read: {error}") from error
        self.parameters: dict[str, inspect.Parameter] = {}
        self.defaults: dict[str, typing.Any] = {}
        self.types: dict[str, typing.Any] = {}
        properties, required = {}, []
        for parameter in inspect.signature(function).parameters.values():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                raise Refused(
                    f"{name} takes {parameter}: a model passes arguments by name; list each one"
                )
            hint, default = hints.get(parameter.name, typing.Any), parameter.default
            if is_field(default):
                hint = typing.Annotated[hint, default]
                default = (
                    EMPTY
                    if default.is_required()
                    else default.get_default(call_default_factory=True)
                )
            self.parameters[parameter.name] = parameter
            self.types[parameter.name] = hint
            try:
                schema = schema_of(hint)
            except Refused as error:
                raise Refused(f"{name}, parameter {parameter.name}: {error}") from error
            if parameter.name in notes:
                schema = {**schema, "description": notes[parameter.name]}
            if default is EMPTY:
                required.append(parameter.name)
            else:
                self.defaults[parameter.name] = default
                try:
                    schema = {**schema, "default": to_json(default)}
                except Refused:
                    pass  # A sentinel object: the parameter stays optional, its default unsaid.
            properties[parameter.name] = schema
        self.schema: dict[str, typing.Any] = {
            "type": "object",
            "properties": properties,
        }
        if required:
            self.schema["required"] = required
        self.schema["additionalProperties"] = False
        self.output, self.wraps = output_of(hints.get("return", EMPTY))

    def definition(self) -> dict[str, typing.Any]:
        """What the server tells its clients."""
        return {
            "name": self.name,
            "description": self.description,
            "schema": self.schema,
            "output": self.output,
        }

    def bind(
        self, arguments: dict[str, typing.Any]
    ) -> tuple[list[typing.Any], dict[str, typing.Any]]:
        """The positional and named arguments of a call, converted to the parameters' types."""
        unknown = [name for name in arguments if name not in self.parameters]
        if unknown:
            known = ", ".join(self.parameters) or "none"
            raise Refused(f"unknown argument {unknown[0]!r}; {self.name} takes: {known}")
        positional, named = [], {}
        for name, parameter in self.parameters.items():
            if name in arguments:
                value = convert(self.types[name], arguments[name], name)
            elif name not in self.defaults:
                raise Refused(f"missing argument {name!r} ({describe(self.types[name])})")
            else:
                value = self.defaults[name]
            if parameter.kind is parameter.POSITIONAL_ONLY:
                positional.append(value)
            else:
                named[name] = value
        return positional, named


def result_of(tool: Tool, value: typing.Any) -> dict[str, typing.Any]:
    """What a tool returned: content, and structure of objects and of what the return type says."""
    if value is None and tool.output is None:
        return {"content": []}
    if isinstance(value, (bytes, bytearray)):
        mime = next(
            (mime for magic, mime in IMAGES if value.startswith(magic)),
            "application/octet-stream",
        )
        return {"content": [{"data": to_json(value), "mime": mime}]}
    data = to_json(value)
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    answer: dict[str, typing.Any] = {"content": [{"text": text}]}
    if tool.output is not None:
        of_value = tool.output["properties"]["result"] if tool.wraps else tool.output
        problem = misfit(of_value, data, "it")
        if problem:
            raise Refused(
                f"the function returned what its return type does not say: {problem}; "
                "correct the function or the type"
            )
        answer["structured"] = {"result": data} if tool.wraps else data
    elif isinstance(data, dict):
        answer["structured"] = data
    return answer


async def collected(values: typing.AsyncIterable[typing.Any]) -> list[typing.Any]:
    """What an asynchronous generator yields."""
    return [value async for value in values]


def load(source: str) -> dict[str, Tool]:
    """Runs the source as a module and finds its public functions."""
    linecache.cache[FILENAME] = (len(source), None, source.splitlines(True), FILENAME)
    # A real module, known to `sys.modules`: dataclasses and pickle look up their classes' there.
    module = sys.modules[MODULE] = types.ModuleType(MODULE)
    exec(compile(source, FILENAME, "exec", dont_inherit=True), module.__dict__)
    tools = {}
    for name, value in vars(module).items():
        own = (
            callable(value)
            and not isinstance(value, type)
            and getattr(value, "__module__", None) == MODULE
        )
        if own and not name.startswith("_") and inspect.isroutine(inspect.unwrap(value)):
            try:
                tools[name] = Tool(name, value)
            except Refused as error:
                code = getattr(inspect.unwrap(value), "__code__", None)
                raise Refused(str(error), code and code.co_firstlineno) from error
    if not tools:
        raise Refused(
            "it defines no public function; "
            "a tool is a function whose name does not start with an underscore"
        )
    return tools


def failure(error: BaseException) -> dict[str, typing.Any]:
    """Where and why the source cannot be served."""
    if isinstance(error, Refused):
        text = linecache.getline(FILENAME, error.line).strip() if error.line else ""
        return {"message": str(error), "line": error.line, "text": text}
    if isinstance(error, SyntaxError) and error.filename == FILENAME:
        return {
            "message": f"{type(error).__name__}: {error.msg}",
            "line": error.lineno,
            "text": (error.text or "").strip(),
        }
    traceback.print_exception(type(error), error, error.__traceback__)
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == FILENAME
    ]
    place = {"line": frames[-1].lineno, "text": frames[-1].line} if frames else {}
    return {"message": message_of(error), **place}


def message_of(error: BaseException) -> str:
    """`ValueError: too large`, as the last line of a traceback."""
    if isinstance(error, SystemExit):
        return f"the code called sys.exit({error.code!r})"
    return "".join(traceback.format_exception_only(type(error), error)).strip()


def run(
    tool: Tool, arguments: dict[str, typing.Any], loop: asyncio.AbstractEventLoop
) -> dict[str, typing.Any]:
    """Calls the tool; whatever it raises fails only this call."""
    try:
        positional, named = tool.bind(arguments)
        value = tool.function(*positional, **named)
        if inspect.isawaitable(value):
            value = loop.run_until_complete(value)
        if inspect.isasyncgen(value):
            value = loop.run_until_complete(collected(value))
        return result_of(tool, value)
    except Refused as error:
        return {"error": f"{tool.name}: {error}"}
    except BaseException as error:
        # sys.exit and KeyboardInterrupt too: the worker goes on to serve others.
        traceback.print_exc()
        return {"error": message_of(error)}


def main(source: str) -> None:
    """Takes the protocol's descriptors, loads the source and answers calls."""
    requests = os.fdopen(os.dup(0), "r", encoding="utf-8", newline="\n")
    # Half a surrogate pair, as in undecodable file names, is no UTF-8: it becomes a question mark.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8", newline="\n", errors="replace")
    os.dup2(2, 1)
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    # Ctrl-C in a terminal reaches the whole process group; the server decides how calls end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def answer(message: dict[str, typing.Any]) -> None:
        answers.write(json.dumps(message, ensure_ascii=False) + "\n")
        answers.flush()

    if sys.version_info < (3, 9):
        return answer({"too_old": sys.version.split()[0]})
    incoming: queue.Queue[str] = queue.Queue()

    def receive() -> None:
        for line in requests:
            incoming.put(line)
        os._exit(0)

    threading.Thread(target=receive, daemon=True).start()
    try:
        tools = load(source)
    except BaseException as error:
        return answer({"failed": failure(error)})
    answer({"tools": [tool.definition() for tool in tools.values()]})
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    while True:
        request = json.loads(incoming.get())
        result = run(tools[request["tool"]], request["arguments"], loop)
        answer({"call": request["call"], **result})
