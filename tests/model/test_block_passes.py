"""Passes that do less than all rows or more than one thing: rows left out, a commit in front."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tiny_core import MASK, TinyFile, committed, same, tokens, write_tiny

from clover_edge import _core
from clover_edge.errors import ArgumentError, ContextLengthError

ISAS = _core.available_isas()
PROMPT, NINE, BLOCK = tokens(13, 1), tokens(9, 2), tokens(16, 3)
Open = Callable[..., Any]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> TinyFile:
    return write_tiny(tmp_path_factory.mktemp("core") / "weights.bin")


@pytest.fixture(scope="module")
def core(file: TinyFile) -> Any:
    return file.open()


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("coreset", [0, 3])
def test_a_commit_in_the_pass_of_a_preview(
    file: TinyFile, isa: str, threads: int, coreset: int
) -> None:
    """Bit for bit what two passes give, for long blocks and short ones, and again behind it."""
    core = file.open(isa=isa, threads=threads)
    two, one = committed(core, PROMPT), committed(core, PROMPT)
    for ids, block in ((NINE, BLOCK), (BLOCK, NINE[:1]), (NINE[:1], BLOCK)):
        core.commit(two, ids, logits="none")
        want = core.preview(two, block, coreset=coreset)
        found = core.preview(one, block, commit=ids, coreset=coreset)
        assert np.array_equal(found, want)
        same(one.arrays(), two.arrays())
    assert np.array_equal(core.commit(one, NINE), core.commit(two, NINE))


@pytest.mark.parametrize("name", ["sdar", "llada2"])
def test_a_commit_in_the_pass_of_a_preview_under_a_block_mask(
    tiny_blocks: Open, pack: Open, open_core: Open, name: str
) -> None:
    checkpoint = tiny_blocks(name, seed=3)
    core, width = open_core(pack(checkpoint, "f32")), checkpoint.config["block_size"]
    mask, ids = checkpoint.config["mask_token_id"], tokens(4 * width, 5)
    two, one = core.new_state(64), core.new_state(64)
    for state in (one, two):
        core.commit(state, ids[: width + 1])  # leaves a block open
    core.commit(two, ids[width + 1 : 2 * width], logits="none")
    want = core.preview(two, [mask] * width)
    found = core.preview(one, [mask] * width, commit=ids[width + 1 : 2 * width])
    assert np.array_equal(found, want)
    same(one.arrays(), two.arrays())
    with pytest.raises(ArgumentError, match="does not end a block"):
        core.preview(one, [mask] * width, commit=ids[:1])


def test_rows_that_nothing_has_changed_may_be_left_out(core: Any) -> None:
    """The same ids again: rows computed and rows kept are the same numbers."""
    state = committed(core, PROMPT)
    block = _core.Block()
    whole = core.preview(state, BLOCK, block=block)
    assert np.array_equal(whole, core.preview(state, BLOCK))
    core.preview(state, BLOCK, block=block)
    for rows in ([0], [15], [3, 4, 9], list(range(1, 16)), list(range(16))):
        assert np.array_equal(core.preview(state, BLOCK, block=block, compute=rows), whole[rows])
        one = core.preview(state, BLOCK, [rows[-1]], block=block, compute=rows)
        assert np.array_equal(one[0], whole[rows[-1]])


def test_a_kept_row_shows_what_it_computed_last(core: Any) -> None:
    state, block = committed(core, PROMPT), _core.Block()
    core.preview(state, BLOCK, block=block)
    changed = [*BLOCK[:5], MASK, *BLOCK[6:]]
    others = [row for row in range(16) if row != 5]
    kept = core.preview(state, changed, block=block, compute=others)  # without the changed row
    assert np.abs(kept - core.preview(state, BLOCK)[others]).max() < 1e-5
    assert np.abs(kept - core.preview(state, changed)[others]).max() > 1e-3


def test_a_coreset_stays_the_blocks_own(core: Any) -> None:
    """Fixed by the first preview; a new block chooses anew."""
    state, block = committed(core, PROMPT), _core.Block()
    first = core.preview(state, [MASK] * 16, block=block, coreset=3)
    assert np.array_equal(first, core.preview(state, [MASK] * 16, coreset=3))
    later = core.preview(state, BLOCK, block=block, coreset=3)
    assert not np.array_equal(later, core.preview(state, BLOCK, coreset=3))
    fresh = core.preview(state, BLOCK, block=_core.Block(), coreset=3)
    assert np.array_equal(fresh, core.preview(state, BLOCK, coreset=3))


@pytest.mark.parametrize("between", ["commit", "preview", "restore", "truncate", "growth"])
def test_rows_whose_memory_is_gone_are_refused(core: Any, between: str) -> None:
    """The working space belongs to the last pass: what came between has overwritten it."""
    state, block = committed(core, PROMPT), _core.Block()
    start = state.snapshot()
    core.preview(state, BLOCK, block=block)
    if between == "commit":
        core.commit(state, NINE)
    elif between == "preview":
        core.preview(state, NINE)
    elif between == "restore":
        state.restore(start)
    elif between == "truncate":
        state.truncate(0)
    else:
        with pytest.raises(ArgumentError, match="no preview of the same block"):
            core.preview(state, tokens(17, 4), block=block, compute=[1])
        return
    with pytest.raises(ArgumentError, match="no preview of the same block"):
        core.preview(state, BLOCK, block=block, compute=[1])


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"compute": []}, "no row to compute"),
    ({"compute": [3, 3]}, "row 3 does not ascend"),
    ({"compute": [16]}, "row 16 does not ascend, or is outside the block of 16"),
    ({"compute": [-1]}, "row -1"),
    ({"compute": [1], "rows": [2]}, "row 2 is not among those to compute"),
    ({"compute": [1], "commit": NINE}, "no preview of the same block|leaves no row out"),
    ({"commit": []}, "no token to commit"),
    ({"commit": [MASK]}, "mask token"),
]


@pytest.mark.parametrize(("arguments", "message"), REFUSED)
def test_refusals(core: Any, arguments: dict[str, Any], message: str) -> None:
    state, block = committed(core, PROMPT), _core.Block()
    core.preview(state, BLOCK, block=block)
    before = state.arrays()
    with pytest.raises(ArgumentError, match=message):
        core.preview(state, BLOCK, block=block, **arguments)
    same(state.arrays(), before)


def test_a_commit_beyond_the_capacity(core: Any) -> None:
    state = core.new_state(20)
    core.commit(state, PROMPT)
    with pytest.raises(ContextLengthError, match="9 tokens behind position 13"):
        core.preview(state, BLOCK, commit=NINE)
    assert state.position == 13


def test_rows_left_out_without_a_block_of_their_own(core: Any) -> None:
    with pytest.raises(ArgumentError, match="no preview of the same block"):
        core.preview(core.new_state(64), BLOCK, compute=[1])
