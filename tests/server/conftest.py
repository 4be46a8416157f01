"""Live servers on free ports, and clients of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="needs the extra 'server'")
pytest.importorskip("openai", reason="needs the extra 'test'")

import httpx
from openai import OpenAI

import clover_edge
from clover_edge import demo
from clover_edge.server.live import running


@pytest.fixture(scope="session")
def demo_folder() -> Iterator[Path]:
    with demo.pack() as handle:
        yield Path(handle) / "model"


@pytest.fixture(scope="session")
def demo_model(demo_folder: Path) -> Iterator[clover_edge.Model]:
    with clover_edge.load(demo_folder, threads=1) as model:
        yield model


@pytest.fixture(scope="session")
def url(demo_model: clover_edge.Model) -> Iterator[str]:
    """A server with default settings, shared by the tests that leave it as it is."""
    with running(demo_model, name="demo") as address:
        yield address


@pytest.fixture
def serving(demo_model: clover_edge.Model) -> Iterator[Callable[..., str]]:
    """Starts a server with settings of its own; they end with the test."""
    with ExitStack() as stack:

        def start(**settings: Any) -> str:
            return stack.enter_context(running(demo_model, **{"name": "demo", **settings}))

        yield start


@pytest.fixture(scope="session")
def client(url: str) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as opened:
        yield opened


@pytest.fixture(scope="session")
def http(url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=url, timeout=60) as opened:
        yield opened
