"""What must not depend on threads, on how rows are grouped into passes, or on streaming."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from oracle.compare import relative_error
from tiny_core import committed, same

from clover_edge import _core

ISAS = _core.available_isas()
RNG = np.random.default_rng(12)
PROMPT, NINE, BLOCK = (RNG.integers(0, 250, n).tolist() for n in (21, 9, 32))


@pytest.fixture(scope="module")
def source(tiny: Callable[..., Any]) -> Any:
    return tiny(seed=9, layers=5, hidden=128)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("recipe", ["f32", "int8", "int4"])
def test_passes_do_not_depend_on_threads(
    source: Any, pack: Callable[..., Path], open_core: Callable[..., Any], recipe: str, isa: str
) -> None:
    """One, two and three threads: bitwise the same logits and state."""
    results = []
    for threads in (1, 2, 3):
        core = open_core(pack(source, recipe), threads=threads, isa=isa)
        assert core.threads == threads
        state = committed(core, PROMPT)
        preview, logits = core.preview(state, BLOCK), core.commit(state, NINE, logits="all")
        results.append({"preview": preview, "commit": logits, **state.arrays()})
    same(results[1], results[0])
    same(results[2], results[0])


@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize("mode", ["diffusion", "ar"])
@pytest.mark.parametrize("recipe", ["f32", "int4"])
def test_texts_do_not_depend_on_threads(
    source: Any,
    pack: Callable[..., Path],
    open_core: Callable[..., Any],
    recipe: str,
    mode: str,
    sampled: bool,
) -> None:
    """One and two threads: the same ids, the same state behind them."""
    options = {"mode": mode, "max_new_tokens": 64, "block_length": 32, "threshold": 0.5}
    if sampled:
        options |= {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "seed": 7}
    results = []
    for threads in (1, 2):
        core = open_core(pack(source, recipe), threads=threads)
        state = core.new_state(256)
        ids = core.generate(state, PROMPT, options, lambda event: True)["ids"]
        assert len(set(ids)) > 4
        results.append({"ids": np.array(ids), **state.arrays()})
    same(results[1], results[0])


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("recipe", ["f32", "bf16", "int8", "int4", "int4-all"])
def test_nine_at_once_is_nine_times_one(
    source: Any, pack: Callable[..., Path], open_core: Callable[..., Any], recipe: str, isa: str
) -> None:
    core = open_core(pack(source, recipe), isa=isa)
    whole = committed(core, PROMPT, NINE)
    singly = committed(core, PROMPT, *([token] for token in NINE))
    odd = committed(core, PROMPT, NINE[:2], NINE[2:7], NINE[7:])
    want = whole.arrays()
    for state in (singly, odd):
        assert state.position == whole.position == len(PROMPT) + 9
        for name, value in state.arrays().items():
            assert relative_error(value, want[name]) <= 1e-6, name


def test_a_seed_is_a_text(
    source: Any, pack: Callable[..., Path], open_core: Callable[..., Any]
) -> None:
    core = open_core(pack(source, "int4"))
    options = {"mode": "diffusion", "max_new_tokens": 64, "block_length": 32, "threshold": 0.5}

    def text(seed: int) -> list[int]:
        drawn = {**options, "temperature": 1.0, "seed": seed}
        return core.generate(core.new_state(256), PROMPT, drawn, lambda event: True)["ids"]

    assert text(1) == text(1)
    assert text(1) != text(2)
