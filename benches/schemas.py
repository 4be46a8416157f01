"""Random JSON schemas of the kinds that people write."""

from __future__ import annotations

import random
from typing import Any

WORDS = ("name", "city", "age", "total", "items", "état", "due date", "ok", "id", "tags", "note")
PATTERNS = ("^[A-Z]{2}[0-9]{3,5}$", "^(red|green|blue)-[a-f]+$", "^[0-9]{4}-[0-9]{2}$", "^a.*z$")

Schema = dict[str, Any]


def random_schema(rng: random.Random, depth: int = 3) -> Schema:
    """An object with definitions that its properties may refer to, one of them recursive."""
    schema = _object(rng, depth)
    either = {"anyOf": [{"$ref": "#/$defs/tree"}, {"type": "null"}]}
    tree: Schema = {
        "type": "object",
        "properties": {"value": {"type": "integer"}, "next": either},
        "required": ["value", "next"],
        "additionalProperties": False,
    }
    return {**schema, "$defs": {"leaf": _leaf(rng), "tree": tree}}


def _any(rng: random.Random, depth: int) -> Schema:
    kind = rng.random()
    if depth > 0 and kind < 0.2:
        return _object(rng, depth - 1)
    if depth > 0 and kind < 0.35:
        return _array(rng, depth - 1)
    if kind < 0.45:
        return {"anyOf": [_any(rng, depth - 1), _leaf(rng)]}
    if kind < 0.55:
        return {"$ref": rng.choice(("#/$defs/leaf", "#/$defs/tree"))}
    return _leaf(rng)


def _object(rng: random.Random, depth: int) -> Schema:
    names = rng.sample(WORDS, rng.randint(0 if depth < 3 else 1, 4))
    schema: Schema = {
        "type": "object",
        "properties": {name: _any(rng, depth) for name in names},
        "required": [name for name in names if rng.random() < 0.7],
    }
    if rng.random() < 0.8:
        schema["additionalProperties"] = False
    elif rng.random() < 0.5:
        schema["additionalProperties"] = _leaf(rng)
    return schema


def _array(rng: random.Random, depth: int) -> Schema:
    least = rng.randint(0, 2)
    schema: Schema = {"type": "array", "items": _any(rng, depth), "minItems": least}
    if rng.random() < 0.8:
        schema["maxItems"] = least + rng.randint(0, 3)
    return schema


def _leaf(rng: random.Random) -> Schema:
    kind = rng.randrange(8)
    if kind == 0:
        return {"enum": rng.sample(["a", "beta", 3, 4.5, None, True, "two words", '"quoted"'], 3)}
    if kind == 1:
        return {"const": rng.choice(["fixed", 7, False])}
    if kind == 2:
        low = rng.randint(-1000, 1000)
        return {"type": "integer", "minimum": low, "maximum": low + rng.randint(0, 500)}
    if kind == 3:
        low = round(rng.uniform(-10, 10), 2)
        bound = rng.choice(("minimum", "exclusiveMinimum"))
        return {"type": "number", bound: low, "maximum": low + round(rng.uniform(0.5, 20), 2)}
    if kind == 4:
        return {"type": "string", "pattern": rng.choice(PATTERNS)}
    if kind == 5:
        least = rng.randint(0, 6)
        return {"type": "string", "minLength": least, "maxLength": least + rng.randint(0, 12)}
    if kind == 6:
        return {"type": rng.choice(("boolean", "null", "integer", "number"))}
    return {"type": rng.choice((["string", "null"], ["integer", "boolean"]))}


def response_format(schema: Schema) -> dict[str, Any]:
    """As generate() takes it."""
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
