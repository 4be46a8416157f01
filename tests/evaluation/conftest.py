"""Tiny packed models, random, uniform and quantised, and a text for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import clover_edge

TEXT = (
    "The meadow lies behind the mill, and in June the clover is full of bees: 43, counted. Grüße!\n"
)


@pytest.fixture(scope="session")
def source(tiny: Callable[..., Any]) -> Any:
    return tiny(seed=5, overrides={"max_position_embeddings": 512, "block_size": 16})


@pytest.fixture(scope="session")
def plain(source: Any, pack: Callable[..., Path]) -> Iterator[clover_edge.Model]:
    with clover_edge.load(pack(source, "f32"), threads=1) as model:
        yield model


@pytest.fixture(scope="session")
def packed(source: Any, pack: Callable[..., Path]) -> Iterator[clover_edge.Model]:
    with clover_edge.load(pack(source, "int4-all"), threads=1) as model:
        yield model


@pytest.fixture(scope="session")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "meadow.txt"
    path.write_text(TEXT * 3, encoding="utf-8")
    return path
