"""What tests of the compiled core do with it, whatever the family: texts, the plain loop over it,
activations in int8, what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import ArrayLike
from oracle.compare import relative_error

from clover_edge import _core

Ids = list[int]


def generated(
    core: Any, state: Any, prompt: Ids, options: dict[str, Any]
) -> tuple[dict[str, Any], list[Ids]]:
    """(result, by step the accepted positions) of the core's generation."""
    steps: list[Ids] = []

    def listen(event: dict[str, Any]) -> None:
        if event["type"] == "step":
            steps.append(np.flatnonzero(event["accepted"]).tolist())

    return core.generate(state, prompt, options, listen), steps


def core_judge(
    core: Any, width: int, vocab: int, *, causal: bool = False
) -> Callable[[Ids, int], np.ndarray]:
    """The core itself as the judge of ``oracle.blocks``: all is computed anew for each call.

    The block that ends the text is a preview, since it may hold masks; what is in front of it is
    committed. ``causal``: ``origin`` is where that block starts.
    """

    def judge(ids: Ids, origin: int) -> np.ndarray:
        start = origin if causal else (len(ids) - 1 - origin) // width * width + origin
        state, rows = core.new_state(64), np.zeros((len(ids), vocab))
        if start > 0:
            rows[:start] = core.commit(state, ids[:start], logits="all")
        if start < len(ids):
            rows[start:] = core.preview(state, ids[start:])
        return rows

    return judge


def committed_logits(core: Any, ids: Ids) -> np.ndarray:
    """Of a whole text, from an empty state."""
    logits: np.ndarray = core.commit(core.new_state(len(ids)), ids, logits="all")
    return logits


def previewed_logits(core: Any, ids: Ids) -> np.ndarray:
    """Of a first block, on an empty state."""
    logits: np.ndarray = core.preview(core.new_state(len(ids)), ids)
    return logits


def assert_activations_as_defined(
    open_core: Callable[..., Any],
    folder: Path,
    oracle: Callable[[Ids], ArrayLike],
    *,
    logits: Callable[[Any, Ids], np.ndarray] = committed_logits,
    length: int = 2,
) -> None:
    """The packed folder's core is the ``oracle`` that rounds activations as the kernels do.

    Equal to float32 accuracy but for values that float32 and float64 round to different codes
    (test_oracle_schemes.py): hence the median, of nine short texts.
    """
    for isa in _core.available_isas():
        core, found = open_core(folder, isa=isa), []
        for seed in range(9):
            ids = np.random.default_rng(seed).integers(0, 250, length).tolist()
            found.append(relative_error(logits(core, ids), oracle(ids)))
        assert np.median(found) < 1e-6, isa


def second_turn(core: Any, ids: Ids, asked: dict[str, Any]) -> tuple[Any, Ids, Ids]:
    """(state, the text in front of it, answer) of a second turn, which goes on as if all had been
    one prompt: a prompt of ten ids, the 13 ``asked`` for, five more."""
    state = core.new_state(80)
    first = core.generate(state, ids[:10], asked)["ids"]
    assert len(first) == 13 and state.position == 23
    second = core.generate(state, ids[10:15], asked)["ids"]
    whole = [*ids[:10], *first, *ids[10:15]]
    assert second == core.generate(core.new_state(80), whole, asked)["ids"]
    return state, whole, second


def assert_refused(
    core: Any, prompt: Ids, asked: dict[str, Any], error: type[Exception], said: str
) -> None:
    """Options of a generation, before anything is computed."""
    state = core.new_state(64)
    with pytest.raises(error, match=said):
        core.generate(state, prompt, {"max_new_tokens": 8, **asked})
    assert state.position == 0
