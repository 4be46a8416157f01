"""One tiny packed model for the tests of the face."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import clover_edge


@pytest.fixture(scope="session")
def packed(tiny: Callable[..., Any], pack: Callable[..., Path]) -> Path:
    """A packed folder of random weights: its text is noise, cut code points included."""
    return pack(tiny(seed=21, overrides={"max_position_embeddings": 512}), "int4")


@pytest.fixture(scope="session")
def model(packed: Path) -> Iterator[clover_edge.Model]:
    with clover_edge.load(packed, threads=2) as opened:
        yield opened
