"""Texts that stand for values, read by the JSON schema of what they are for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_PYTHON_WORDS = {"True": True, "False": False, "None": None}  # as some templates print them


def typed(text: str, schema: Any) -> Any:
    """`text` as the schema's type; as it is where the type is string or the text does not fit.

    Without a type: JSON where it parses, else text. A union takes what the text parses as.
    """
    types = _types(schema)
    if types == {"string"}:
        return text
    try:
        value = _value(text)
    except (ValueError, RecursionError):
        return text
    if isinstance(value, float) and value.is_integer() and types and "number" not in types:
        value = int(value)
    return value if types is None or _type_of(value) & types else text


def _value(text: str) -> Any:
    word = text.strip()
    if word in _PYTHON_WORDS:
        return _PYTHON_WORDS[word]
    value = json.loads(text)
    json.dumps(value, allow_nan=False)  # NaN and infinity are no JSON, so they stay text
    return value


def _types(schema: Any) -> set[str] | None:
    """Names of the types that a schema allows; None where it does not say."""
    if not isinstance(schema, Mapping):
        return None
    named = schema.get("type")
    if isinstance(named, str):
        return {named.lower()}
    if isinstance(named, list):
        return {str(name).lower() for name in named}
    values = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if isinstance(values, list):
        return set().union(*map(_type_of, values))
    for union in ("anyOf", "oneOf"):
        if isinstance(schema.get(union), list):
            found = [_types(each) for each in schema[union]]
            return None if None in found else set().union(*(each for each in found if each))
    return None


def _type_of(value: Any) -> set[str]:
    if value is None:
        return {"null"}
    if isinstance(value, bool):
        return {"boolean"}
    if isinstance(value, int):
        return {"integer", "number"}
    for kind, name in ((float, "number"), (str, "string"), (list, "array"), (Mapping, "object")):
        if isinstance(value, kind):
            return {name}
    return set()
