"""Rows of constrained output: always valid, and closed or reported when the budget runs out."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

from checks.row import Context, Row, Skipped, at_least, at_most
from schemas import random_schema, response_format

import clover_edge
from clover_edge.constrained.grammar import Grammar, grammar_of
from clover_edge.constrained.request import format_of

SCHEMAS = 200
SEED = "schemas"
BUDGET = 256
# One after the other, so that every mode meets every kind of schema.
WAYS: tuple[dict[str, Any], ...] = (
    {},
    {"block_length": 32},
    {"temperature": 1.0, "seed": 1},
    {"mode": "ar"},
    {"mode": "speculative"},
    {"temperature": 1.5, "top_p": 0.9, "seed": 2, "mode": "ar"},
)
REQUEST = [{"role": "user", "content": "set the bedroom to 19 degrees"}]


def _schemas(context: Context) -> list[dict[str, Any]]:
    """Fixed ones; Skipped where a package is missing."""
    try:
        import jsonschema  # noqa: F401
        import llguidance  # noqa: F401
    except ImportError as error:
        raise Skipped(f"needs extra test ({error.name})") from None
    rng = random.Random(SEED)
    return [random_schema(rng) for _ in range(min(context.limit or SCHEMAS, SCHEMAS))]


def _grammar(model: clover_edge.Model, schema: dict[str, Any]) -> Grammar:
    request = format_of(response_format(schema))
    assert request is not None
    stops = model.generation["eos_token_id"]
    return grammar_of(request, model.codec, model.spec["vocab_size"], stops)


def valid(text: str, schema: dict[str, Any]) -> bool:
    """By a validator that shares nothing with the grammar."""
    from jsonschema import Draft202012Validator

    try:
        value = json.loads(text)
    except ValueError:
        return False
    return bool(Draft202012Validator(schema).is_valid(value))


def json_schema_mode(context: Context) -> Iterator[Row]:
    schemas = _schemas(context)
    right = closed = tokens = forwards = 0
    with clover_edge.load(context.demo_model("int4"), threads=1) as model:
        for i, schema in enumerate(schemas):
            result = model.generate(
                REQUEST,
                response_format=response_format(schema),
                max_new_tokens=BUDGET,
                **WAYS[i % len(WAYS)],
            )
            shortest = _grammar(model, schema).shortest
            fits = shortest is not None and len(shortest) <= BUDGET
            right += valid(result.text, schema) if result.finish_reason == "stop" else not fits
            closed += result.finish_reason == "stop"
            tokens += result.counters.tokens
            forwards += result.counters.forward_passes
    note = f"{closed} of {len(schemas)} ended with a stop token"
    share = 100 * right / len(schemas)
    yield at_least(f"valid output, {len(schemas)} random schemas", share, 100, "{:.1f}", " %", note)
    yield at_most("forwards per token over these", forwards / tokens, 1.0, "{:.2f}")


def a_budget_that_runs_out(context: Context) -> Iterator[Row]:
    """The completion of the fewest bytes has just room, a little more than that, or not quite: a
    text of other words may then still have."""
    right = cases = closed = 0
    with clover_edge.load(context.demo_model("int4"), threads=1) as model:
        for i, schema in enumerate(_schemas(context)[:100]):
            shortest = _grammar(model, schema).shortest
            if shortest is None:
                continue
            for room in (-1, 0, 1, 5, 20):
                budget = len(shortest) + room
                result = model.generate(
                    REQUEST,
                    response_format=response_format(schema),
                    max_new_tokens=max(1, budget),
                    **WAYS[(i + room) % len(WAYS)],
                )
                stopped = result.finish_reason == "stop"
                cases += 1
                closed += stopped
                right += valid(result.text, schema) if stopped else room < 0
    note = f"{closed} closed"
    share = 100 * right / max(cases, 1)
    yield at_least(f"budgets that run out, {cases} cases", share, 100, "{:.1f}", " %", note)


CHECKS = (json_schema_mode, a_budget_that_runs_out)
