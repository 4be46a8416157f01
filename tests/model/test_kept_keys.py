"""Keys and values kept in fewer bits: how near, how small, and the promises that still hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tiny_core import TinyFile, same, tokens, write_tiny

from clover_edge import _core
from clover_edge.errors import ArgumentError

PROMPT, NINE, BLOCK = tokens(90, 1), tokens(9, 2), tokens(16, 3)
NARROW = {"f16": 3e-3, "int8": 5e-2}  # largest relative error of a preview's logits against f32


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> TinyFile:
    return write_tiny(tmp_path_factory.mktemp("kept") / "weights.bin")


def after_prompt(core: Any) -> Any:
    state = core.new_state(200)
    core.commit(state, PROMPT, logits="none")
    return state


@pytest.mark.parametrize("isa", _core.available_isas())
@pytest.mark.parametrize("kv", NARROW)
def test_logits_stay_near(file: TinyFile, kv: str, isa: str) -> None:
    full, narrow = file.open(isa=isa), file.open(isa=isa, kv=kv)
    want = full.preview(after_prompt(full), BLOCK)
    got = narrow.preview(after_prompt(narrow), BLOCK)
    error = np.abs(got - want).max() / np.abs(want).max()
    assert 0 < error < NARROW[kv]


@pytest.mark.parametrize("kv", NARROW)
def test_a_narrow_state_is_smaller(file: TinyFile, kv: str) -> None:
    sizes = {}
    for name in ("f32", kv):
        core = file.open(kv=name)
        state = core.new_state(1000)
        core.commit(state, PROMPT, logits="none")
        before = state.nbytes
        core.commit(state, tokens(600, 4), logits="none")
        sizes[name] = state.nbytes - before  # of keys and values alone
    assert sizes[kv] < (0.51 if kv == "f16" else 0.32) * sizes["f32"]


@pytest.mark.parametrize("kv", NARROW)
def test_splits_snapshots_and_roll_back_change_no_bit(file: TinyFile, kv: str) -> None:
    core = file.open(kv=kv)
    whole, pieces = after_prompt(core), core.new_state(200)
    for start in range(0, len(PROMPT), 7):
        core.commit(pieces, PROMPT[start : start + 7], logits="none")
    same(pieces.arrays(), whole.arrays())
    kept = whole.snapshot()
    core.commit(whole, NINE, logits="none", rollback=True)
    whole.truncate(len(PROMPT) + 4)
    core.commit(pieces, NINE[:4], logits="none")
    same(whole.arrays(), pieces.arrays())
    whole.restore(kept)
    same(whole.arrays(), after_prompt(core).arrays())


def test_reading_ahead_changes_no_bit(file: TinyFile) -> None:
    plain, ahead = file.open(), file.open(read_ahead=True)
    assert ahead.read_ahead and not plain.read_ahead  # memory holds this file
    want, got = (core.preview(after_prompt(core), BLOCK) for core in (plain, ahead))
    np.testing.assert_array_equal(got, want)


def test_unknown_format(file: TinyFile) -> None:
    with pytest.raises(ArgumentError, match="kv"):
        file.open(kv="int4")
