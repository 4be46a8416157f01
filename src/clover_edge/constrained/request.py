"""`response_format`: what the text is to be, as OpenAI's API says it, and two forms more."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import ArgumentError

TYPES = ("text", "json_object", "json_schema", "regex", "lark")
_KEYS = {
    "text": (),
    "json_object": (),
    "json_schema": ("json_schema",),
    "regex": ("regex",),
    "lark": ("grammar",),
}
_SCHEMA_KEYS = ("name", "schema", "strict", "description")


@dataclass(frozen=True)
class ResponseFormat:
    """A checked response_format. `source`: the JSON schema, regular expression or grammar."""

    kind: str  # "json_schema", "regex", "lark"; or "llguidance", its own list of grammars
    source: str


def format_of(value: Any) -> ResponseFormat | None:
    """None for {"type": "text"}; ArgumentError naming the key that is missing, unknown or wrong."""
    if isinstance(value, ResponseFormat):
        return value
    if not isinstance(value, Mapping):
        raise ArgumentError(f"response_format: {type(value).__name__} is no mapping")
    kind = value.get("type")
    if kind not in TYPES:
        raise ArgumentError(
            f"response_format.type: {kind!r} is none of {', '.join(map(repr, TYPES))}"
        )
    _only("response_format", value, ("type", *_KEYS[kind]))
    if kind == "text":
        return None
    if kind == "json_object":
        return ResponseFormat("json_schema", '{"type": "object"}')
    if kind == "json_schema":
        return ResponseFormat(kind, _schema(value.get("json_schema")))
    name = _KEYS[kind][0]
    source = value.get(name)
    if not isinstance(source, str) or not source:
        raise ArgumentError(f"response_format.{name}: {source!r} is no text")
    return ResponseFormat(kind, source)


def _schema(value: Any) -> str:
    """JSON text of the schema, keys in their order: properties are written in it."""
    where = "response_format.json_schema"
    if not isinstance(value, Mapping):
        raise ArgumentError(f"{where}: {type(value).__name__} is no mapping")
    _only(where, value, _SCHEMA_KEYS)
    if not isinstance(value.get("name", ""), str):
        raise ArgumentError(f"{where}.name: {value['name']!r} is no text")
    if value.get("strict") not in (None, True, False):
        raise ArgumentError(f"{where}.strict: {value['strict']!r} is neither True nor False")
    schema = value.get("schema")
    if not isinstance(schema, Mapping):
        raise ArgumentError(f"{where}.schema: {type(schema).__name__} is no mapping")
    return schema_text(schema, f"{where}.schema")


def schema_text(schema: Mapping[str, Any], where: str) -> str:
    """JSON text of a schema; ArgumentError where it is not JSON."""
    try:
        return json.dumps(schema, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ArgumentError(f"{where}: is not JSON: {error}") from None


def _only(where: str, value: Mapping[str, Any], known: tuple[str, ...]) -> None:
    unknown = [key for key in value if key not in known]
    if unknown:
        raise ArgumentError(f"{where}: {unknown[0]!r} is none of {', '.join(map(repr, known))}")
