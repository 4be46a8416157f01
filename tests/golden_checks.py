"""What tests over golden files have in common: bounds, whole texts, the judge of today."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from golden_files import checksum
from numpy.typing import ArrayLike
from oracle.compare import relative_error

TOLERANCE = 1e-3  # of float32 against float64, the bound that the project states
AGAIN = 1e-4  # of float32 against float32: a later `transformers`, another machine
Golden = dict[str, np.ndarray]


def assert_drawn(golden: Golden, case: str, tensors: dict[str, np.ndarray]) -> None:
    """The weights are those that the golden file is of."""
    drawn = checksum(tensors)
    assert drawn == str(golden[f"{case}: checksum"]), "the maker draws other weights now"


def assert_logits(
    golden: Golden, case: str, found: ArrayLike, bound: float = TOLERANCE, what: str = "logits"
) -> None:
    """They are the golden ones, but for rounding."""
    assert relative_error(found, golden[f"{case}: {what}"]) < bound, (case, what)


def assert_told_apart(golden: Golden, case: str, wrong: ArrayLike, what: str = "logits") -> None:
    """A detail got wrong moves the logits by far more than the tolerance."""
    assert relative_error(wrong, golden[f"{case}: {what}"]) > 10 * TOLERANCE, (case, what)


def steps_of(golden: Golden, case: str, name: str = "changed") -> list[list[int]]:
    """By step of the golden text, the positions that it accepted."""
    steps: list[list[int]] = json.loads(str(golden[f"{case}: {name}"]))
    return steps


def assert_text(golden: Golden, case: str, ids: list[int], steps: list[list[int]]) -> None:
    """Every id and every accepted position."""
    assert ids == golden[f"{case}: ids"].tolist()
    assert steps == steps_of(golden, case)


def generated(
    core: Any, state: Any, prompt: list[int], options: dict[str, Any]
) -> tuple[dict[str, Any], list[list[int]]]:
    """(result, by step the accepted positions) of the core's generation."""
    steps: list[list[int]] = []

    def listen(event: dict[str, Any]) -> None:
        if event["type"] == "step":
            steps.append(np.flatnonzero(event["accepted"]).tolist())

    return core.generate(state, prompt, options, listen), steps


def core_judge(
    core: Any, width: int, vocab: int, *, causal: bool = False
) -> Callable[[list[int], int], np.ndarray]:
    """The core itself as the judge of ``oracle.blocks``: all is computed anew for each call.

    The block that ends the text is a preview, since it may hold masks; what is in front of it is
    committed. ``causal``: ``origin`` is where that block starts.
    """

    def judge(ids: list[int], origin: int) -> np.ndarray:
        start = origin if causal else (len(ids) - 1 - origin) // width * width + origin
        state, rows = core.new_state(64), np.zeros((len(ids), vocab))
        if start > 0:
            rows[:start] = core.commit(state, ids[:start], logits="all")
        if start < len(ids):
            rows[start:] = core.preview(state, ids[start:])
        return rows

    return judge


def need_judge() -> None:
    """Skips a test where `transformers` cannot run."""
    for package in ("torch", "transformers"):
        pytest.importorskip(package, reason=f"{package} comes with the `judge` extra")
