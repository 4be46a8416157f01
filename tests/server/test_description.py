"""The server against its own OpenAPI description."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

pytest.importorskip("schemathesis", reason="needs the extra 'test'")

import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

import clover_edge
from clover_edge.server.live import running

PATHS = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/models",
    "/v1/models/{model}",
    "/health",
    "/metrics",
)
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    negative_data_rejection,
    unsupported_method,
]
EXAMPLES = int(os.environ.get("CLOVER_TEST_EXAMPLES", "15"))  # requests of each route


CASES = [(path, GenerationMode.POSITIVE) for path in PATHS]
CASES += [(path, GenerationMode.NEGATIVE) for path in PATHS[:2]]  # the others have no body


@pytest.fixture(scope="module")
def described(demo_model: clover_edge.Model) -> Iterator[Any]:
    with running(demo_model, name="demo", max_tokens=8) as url:
        yield schemathesis.openapi.from_url(f"{url}/openapi.json")


@pytest.mark.parametrize(("path", "mode"), CASES)
def test_answers_are_as_described(described: Any, path: str, mode: GenerationMode) -> None:
    """Requests that fit the description, and requests that do not."""
    (operation,) = [each.ok() for each in described.get_all_operations() if each.ok().path == path]

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(mode))
    def ask(case: schemathesis.Case) -> None:
        case.call_and_validate(checks=CHECKS)

    ask()


def test_what_is_described(http: httpx.Client) -> None:
    description = http.get("/openapi.json").json()
    assert set(description["paths"]) == set(PATHS)
    envelope = {"$ref": "#/components/schemas/ErrorEnvelope"}
    for operations in description["paths"].values():
        for operation in operations.values():
            for status, answer in operation["responses"].items():
                if status.startswith(("4", "5")) and operation["operationId"][:6] != "health":
                    assert answer["content"]["application/json"]["schema"] == envelope
            assert "422" not in operation["responses"]
