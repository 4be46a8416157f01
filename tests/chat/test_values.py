"""Texts read by a schema's types."""

from __future__ import annotations

from typing import Any

import pytest

from clover_edge.chat.values import typed


@pytest.mark.parametrize(
    ("text", "schema", "value"),
    [
        ("5", {"type": "string"}, "5"),
        ('"5"', {"type": "string"}, '"5"'),
        ("5", {"type": "integer"}, 5),
        ("5.0", {"type": "integer"}, 5),
        ("5.0", {"type": "number"}, 5.0),
        ("5", {"type": "NUMBER"}, 5),
        ("5.5", {"type": "integer"}, "5.5"),
        ("five", {"type": "integer"}, "five"),
        ("True", {"type": "boolean"}, True),
        ("false", {"type": "boolean"}, False),
        ("1", {"type": "boolean"}, "1"),
        ("None", {"type": ["string", "null"]}, None),
        ("word", {"type": ["string", "null"]}, "word"),
        ("7", {"anyOf": [{"type": "string"}, {"type": "integer"}]}, 7),
        ("7", {"oneOf": [{"type": "string"}, {"type": "null"}]}, "7"),
        ("7", {"anyOf": [{"type": "string"}, {"$ref": "#/x"}]}, 7),
        ("7", {"enum": ["7", "8"]}, "7"),
        ("7", {"enum": [7, 8]}, 7),
        ("7", {"const": "7"}, "7"),
        ('{"a": [1]}', {"type": "object"}, {"a": [1]}),
        ("[1]", {"type": "object"}, "[1]"),
        ("[1]", None, [1]),
        ("007", None, "007"),
        ("a b", None, "a b"),
        ("NaN", None, "NaN"),
        ("1e999", {"type": "number"}, "1e999"),
        ("[" * 10**5, {"type": "array"}, "[" * 10**5),
        ("9" * 5000, {"type": "integer"}, "9" * 5000),
        ("7", {"type": 7}, 7),
    ],
)
def test_values(text: str, schema: Any, value: Any) -> None:
    found = typed(text, schema)
    assert (found, type(found)) == (value, type(value))
