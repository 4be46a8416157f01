"""The server against its own OpenAPI description."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

pytest.importorskip("schemathesis", reason="needs the extra 'test'")

import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
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


@pytest.fixture(scope="module")
def described(demo_model: clover_edge.Model) -> Iterator[Any]:
    with running(demo_model, name="demo", max_tokens=8) as url:
        yield schemathesis.openapi.from_url(f"{url}/openapi.json")


schema = schemathesis.pytest.from_fixture("described")


@schema.parametrize()
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
def test_answers_are_as_described(case: schemathesis.Case) -> None:
    case.call_and_validate(checks=CHECKS)


def test_what_is_described(http: httpx.Client) -> None:
    description = http.get("/openapi.json").json()
    assert set(description["paths"]) == {
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/models",
        "/v1/models/{model}",
        "/health",
        "/metrics",
    }
    envelope = {"$ref": "#/components/schemas/ErrorEnvelope"}
    for operations in description["paths"].values():
        for operation in operations.values():
            for status, answer in operation["responses"].items():
                if status.startswith(("4", "5")) and operation["operationId"][:6] != "health":
                    assert answer["content"]["application/json"]["schema"] == envelope
            assert "422" not in operation["responses"]
