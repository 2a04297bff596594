"""Python types and values as JSON, both ways.

The schema of a type hint, the arguments that a model sends converted to the types that a function
asks for, and what a function returns as JSON data.
"""

from __future__ import annotations

import base64
import collections.abc
import dataclasses
import datetime
import decimal
import enum
import inspect
import json
import math
import pathlib
import sys
import types
import typing
import uuid

EMPTY = inspect.Parameter.empty
UNIONS = (typing.Union, getattr(types, "UnionType", typing.Union))
ARRAYS = (
    list,
    set,
    frozenset,
    tuple,
    collections.abc.Sequence,
    collections.abc.Iterable,
    collections.abc.Set,
)
MAPPINGS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)
SCALARS = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    type(None): "null",
}
# Types that travel as text: how to read them, and their JSON Schema format.
TEXTUAL: dict[type, tuple[typing.Callable[[str], typing.Any], str | None]] = {
    bytes: (lambda text: base64.b64decode(text, validate=True), "base64"),
    datetime.datetime: (
        # `Z` is read by Python itself only from 3.11 on.
        lambda text: datetime.datetime.fromisoformat(text.replace("Z", "+00:00")),
        "date-time",
    ),
    datetime.date: (datetime.date.fromisoformat, "date"),
    datetime.time: (datetime.time.fromisoformat, "time"),
    decimal.Decimal: (decimal.Decimal, None),
    uuid.UUID: (uuid.UUID, "uuid"),
    pathlib.Path: (pathlib.Path, None),
}


class Refused(Exception):
    """The source cannot be served, or an argument cannot be accepted."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.line = line


def is_wrapper(origin: typing.Any) -> bool:
    """Whether it says only that a field has to be there: `Required`, `NotRequired`, `ReadOnly`."""
    return getattr(origin, "_name", None) in ("Required", "NotRequired", "ReadOnly")


def note_of(extra: typing.Any) -> str | None:
    """What an annotation says in words: a text, or the `Field` of Pydantic, or a `Doc`."""
    if isinstance(extra, str):
        return extra
    for name in ("description", "documentation"):
        note = getattr(extra, name, None)
        if isinstance(note, str):
            return note
    return None


def is_field(value: typing.Any) -> bool:
    """Whether it is a `Field` of Pydantic."""
    kind = type(value)
    return kind.__name__ == "FieldInfo" and kind.__module__.startswith("pydantic.")


def adapter_of(hint: typing.Any) -> typing.Any:
    """Pydantic's own adapter where the type is one of its, else None."""
    annotated = typing.get_origin(hint) is typing.Annotated
    if annotated and any(map(is_field, typing.get_args(hint)[1:])):
        return sys.modules["pydantic"].TypeAdapter(hint)
    if is_class(hint) and "__pydantic_core_schema__" in vars(hint):
        return sys.modules["pydantic"].TypeAdapter(hint)
    return None


def inlined(
    schema: typing.Any, definitions: dict[str, typing.Any], outer: tuple[str, ...] = ()
) -> typing.Any:
    """A schema with its references replaced, which not every model follows, and without titles,
    which only repeat the names."""
    if isinstance(schema, list):
        return [inlined(item, definitions, outer) for item in schema]
    if not isinstance(schema, dict):
        return schema
    reference = schema.get("$ref")
    if isinstance(reference, str):
        name = reference.rpartition("/")[2]
        rest = {key: item for key, item in schema.items() if key != "$ref"}
        if name in outer:
            return {"type": "object", **rest}
        return {**inlined(definitions.get(name, {}), definitions, (*outer, name)), **rest}
    return {
        key: inlined(item, definitions, outer)
        for key, item in schema.items()
        if key != "$defs" and not (key == "title" and isinstance(item, str))
    }


def is_class(hint: typing.Any) -> bool:
    """Whether the hint is a plain class; `list[int]` passes for one on Python 3.9 and 3.10."""
    return isinstance(hint, type) and not typing.get_origin(hint)


def describe(hint: typing.Any) -> str:
    """A type as the source writes it."""
    if typing.get_origin(hint) is typing.Annotated:
        return describe(typing.get_args(hint)[0])
    return hint.__name__ if is_class(hint) else str(hint).replace("typing.", "")


def literal_schema(values: list[typing.Any]) -> dict[str, typing.Any]:
    """JSON Schema of a closed set of values."""
    values = [to_json(value) for value in values]
    kinds = {SCALARS.get(type(value)) for value in values}
    kind = kinds.pop() if len(kinds) == 1 else None
    return {"type": kind, "enum": values} if kind else {"enum": values}


def fields_of(hint: typing.Any) -> dict[str, tuple[typing.Any, bool]] | None:
    """Name to (type, required) of a dataclass or TypedDict; None for anything else."""
    if dataclasses.is_dataclass(hint):
        hints = typing.get_type_hints(hint, include_extras=True)
        missing = dataclasses.MISSING
        return {
            f.name: (
                hints[f.name],
                f.default is missing and f.default_factory is missing,
            )
            for f in dataclasses.fields(hint)
            if f.init
        }
    if is_class(hint) and issubclass(hint, dict) and hasattr(hint, "__required_keys__"):
        hints = typing.get_type_hints(hint, include_extras=True)
        return {name: (kind, name in hint.__required_keys__) for name, kind in hints.items()}
    return None


def schema_of(hint: typing.Any, outer: tuple[typing.Any, ...] = ()) -> dict[str, typing.Any]:
    """JSON Schema of a type hint; `outer` are the classes it is nested in."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint in (typing.Any, object, EMPTY) or isinstance(hint, typing.TypeVar):
        return {}
    if hint is None:
        return {"type": "null"}
    adapter = adapter_of(hint)
    if adapter:
        schema = adapter.json_schema()
        return inlined(schema, schema.get("$defs", {}))
    if is_wrapper(origin):
        return schema_of(args[0], outer)
    if hasattr(hint, "__supertype__"):
        return schema_of(hint.__supertype__, outer)
    if origin is typing.Annotated:
        note = next(filter(None, map(note_of, args[1:])), None)
        schema = schema_of(args[0], outer)
        return {**schema, "description": note} if note else schema
    if origin in UNIONS:
        return {"anyOf": [schema_of(arg, outer) for arg in args]}
    if origin is typing.Literal:
        return literal_schema(list(args))
    if origin in ARRAYS or hint in ARRAYS:
        # Of a mixed tuple only the length is said: not every model reads a schema per item.
        uniform = args and (origin is not tuple or args[-1] is ... or len(set(args)) == 1)
        array: dict[str, typing.Any] = {
            "type": "array",
            "items": schema_of(args[0] if uniform else EMPTY, outer),
        }
        if origin is tuple and args and args[-1] is not ...:
            array.update(minItems=len(args), maxItems=len(args))
        return {**array, "uniqueItems": True} if (origin or hint) in (set, frozenset) else array
    if origin in MAPPINGS or hint in MAPPINGS:
        return {
            "type": "object",
            "additionalProperties": schema_of(args[1] if args else EMPTY, outer),
        }
    if is_class(hint) and issubclass(hint, enum.Enum):
        return literal_schema([member.value for member in hint])
    if hint in SCALARS:
        return {"type": SCALARS[hint]}
    if hint in TEXTUAL:
        form = TEXTUAL[hint][1]
        if form == "base64":
            return {"type": "string", "contentEncoding": form}
        return {"type": "string", "format": form} if form else {"type": "string"}
    fields = fields_of(hint)
    if fields is None:
        raise Refused(
            f"the type {describe(hint)} has no JSON form; use str, int, float, bool, list, dict, "
            "Literal, an Enum, a dataclass, a TypedDict or a Pydantic model"
        )
    if hint in outer:
        return {"type": "object"}
    return {
        "type": "object",
        "properties": {name: schema_of(kind, (*outer, hint)) for name, (kind, _) in fields.items()},
        "required": [name for name, (_, required) in fields.items() if required],
    }


def convert(hint: typing.Any, value: typing.Any, path: str) -> typing.Any:
    """A JSON value as the type that the function asks for."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)

    def refuse(wanted: str = "") -> Refused:
        shown = json.dumps(value, ensure_ascii=False)
        return Refused(f"argument {path} must be {wanted or describe(hint)}, not {shown[:200]}")

    if hint in (typing.Any, object, EMPTY) or isinstance(hint, typing.TypeVar):
        return value
    adapter = adapter_of(hint)
    if adapter:
        return validated(adapter, value, path)
    if origin is typing.Annotated or is_wrapper(origin):
        return convert(args[0], value, path)
    if hasattr(hint, "__supertype__"):
        return convert(hint.__supertype__, value, path)
    if origin in UNIONS:
        # An exact fit first, so that "5" stays a string for `int | str`.
        for arg in sorted(
            args,
            key=lambda arg: type(value) is not (type(None) if arg is None else arg),
        ):
            try:
                return convert(arg, value, path)
            except Refused:
                continue
        raise refuse()
    if hint is None or hint is type(None):
        if value is None:
            return None
        raise refuse("null")
    if origin is typing.Literal:
        for choice in args:
            if choice == value and type(choice) is type(value):
                return choice
        raise refuse("one of " + ", ".join(map(repr, args)))
    if origin in ARRAYS or hint in ARRAYS:
        if not isinstance(value, list):
            raise refuse("a list")
        if origin is tuple and args and args[-1] is not ... and len(args) != len(value):
            raise refuse(f"a list of {len(args)}")
        return convert_array(origin or hint, args, value, path)
    if origin in MAPPINGS or hint in MAPPINGS:
        if not isinstance(value, dict):
            raise refuse("an object")
        keys, values = args or (EMPTY, EMPTY)
        return {
            convert(keys, key, path): convert(values, item, f"{path}.{key}")
            for key, item in value.items()
        }
    if is_class(hint) and issubclass(hint, enum.Enum):
        for member in hint:
            if value in (to_json(member.value), member.name):
                return member
        raise refuse("one of " + ", ".join(repr(member.value) for member in hint))
    if hint in TEXTUAL:
        if not isinstance(value, str):
            raise refuse("a string")
        try:
            return TEXTUAL[hint][0](value)
        except (ValueError, ArithmeticError) as error:
            raise refuse() from error
    if hint in SCALARS:
        return convert_scalar(hint, value, refuse)
    if not isinstance(value, dict):
        raise refuse("an object")
    return convert_fields(hint, value, path)


def validated(adapter: typing.Any, value: typing.Any, path: str) -> typing.Any:
    """A JSON value as Pydantic reads it."""
    try:
        return adapter.validate_json(json.dumps(value))
    except ValueError as error:
        if not hasattr(error, "errors"):
            raise
        problems = [
            ".".join([path, *map(str, problem["loc"])]) + ": " + problem["msg"]
            for problem in error.errors()
        ]
        raise Refused("argument " + "; ".join(problems)) from error


def output_of(hint: typing.Any) -> tuple[dict[str, typing.Any] | None, bool]:
    """The schema of what a tool returns, and whether the value is wrapped to be an object.

    Text, bytes and what is not said have none: their content says it all.
    """
    plain = (EMPTY, typing.Any, object, None, type(None), str, bytes, bytearray)
    if hint in plain or isinstance(hint, typing.TypeVar):
        return None, False
    try:
        adapter = adapter_of(hint)
        if adapter:
            schema = adapter.json_schema(mode="serialization")
            schema = inlined(schema, schema.get("$defs", {}))
        else:
            schema = schema_of(hint)
    except Refused:
        return None, False
    if not schema:
        return None, False
    if schema.get("type") == "object":
        return schema, False
    wrapper = {"type": "object", "properties": {"result": schema}, "required": ["result"]}
    return wrapper, True


def misfit(schema: dict[str, typing.Any], value: typing.Any, path: str) -> str | None:
    """What of a value is not as the schema has it, of the keywords that are made here."""
    if "anyOf" in schema:
        if all(misfit(choice, value, path) for choice in schema["anyOf"]):
            return f"{path} fits none of its types"
        return None
    kinds = {
        "boolean": bool,
        "integer": int,
        "number": (int, float),
        "string": str,
        "null": type(None),
        "array": list,
        "object": dict,
    }
    kind = schema.get("type")
    fits = isinstance(value, kinds.get(kind, object)) if isinstance(kind, str) else True
    if not fits or (isinstance(value, bool) and kind in ("integer", "number")):
        return f"{path} is {json.dumps(value, ensure_ascii=False)[:200]} and no {kind}"
    if "enum" in schema and value not in schema["enum"]:
        return f"{path} is {json.dumps(value, ensure_ascii=False)[:200]}, none of its values"
    if isinstance(value, list):
        items = schema.get("items")
        nested = enumerate(value) if isinstance(items, dict) else ()
        return next(
            filter(None, (misfit(items, item, f"{path}[{at}]") for at, item in nested)), None
        )
    if isinstance(value, dict):
        for name in schema.get("required", ()):
            if name not in value:
                return f"{path}.{name} is missing"
        known = schema.get("properties", {})
        others = schema.get("additionalProperties")
        for name, item in value.items():
            of_item = known.get(name, others)
            problem = misfit(of_item, item, f"{path}.{name}") if isinstance(of_item, dict) else None
            if problem:
                return problem
    return None


def convert_array(
    kind: typing.Any, args: tuple[typing.Any, ...], values: list[typing.Any], path: str
) -> typing.Any:
    """A list, set or tuple with its items converted."""
    if kind is tuple and args and args[-1] is not ...:
        hints = list(args)
    else:
        hints = [args[0] if args else EMPTY] * len(values)
    items = [
        convert(hint, item, f"{path}[{index}]")
        for index, (hint, item) in enumerate(zip(hints, values))
    ]
    return kind(items) if kind in (set, frozenset, tuple) else items


def convert_fields(hint: typing.Any, value: dict[str, typing.Any], path: str) -> typing.Any:
    """A dataclass or TypedDict."""
    fields = fields_of(hint) or {}
    for name in value:
        if name not in fields:
            raise Refused(f"unknown field {path}.{name}; {describe(hint)} has: {', '.join(fields)}")
    for name, (_, required) in fields.items():
        if required and name not in value:
            raise Refused(f"missing field {path}.{name}")
    return hint(
        **{name: convert(fields[name][0], item, f"{path}.{name}") for name, item in value.items()}
    )


def convert_scalar(
    hint: type, value: typing.Any, refuse: typing.Callable[[], Refused]
) -> typing.Any:
    """A number, string or boolean; `"5"` passes for 5, because models often quote numbers."""
    if hint is bool:
        if isinstance(value, str) and value.lower() in ("true", "false"):
            return value.lower() == "true"
    elif hint in (int, float) and not isinstance(value, bool):
        try:
            if isinstance(value, str):
                value = float(value) if hint is float else int(value)
            if hint is float and isinstance(value, int):
                return float(value)
            if hint is int and isinstance(value, float) and value.is_integer():
                return int(value)
        except (ValueError, OverflowError):
            raise refuse() from None
    if type(value) is hint:
        return value
    raise refuse()


def to_json(value: typing.Any) -> typing.Any:
    """A Python value as JSON data."""
    if isinstance(value, enum.Enum):
        return to_json(value.value)
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, collections.abc.Mapping):
        return {str(to_json(key)): to_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)) or inspect.isgenerator(value):
        return [to_json(item) for item in value]
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode("ascii")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: to_json(getattr(value, field.name)) for field in dataclasses.fields(value)
        }
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, (decimal.Decimal, uuid.UUID, pathlib.PurePath)):
        return str(value)
    raise Refused(
        f"a {type(value).__name__} has no JSON form; "
        "return text, numbers, lists, dicts, dataclasses or Pydantic models"
    )
