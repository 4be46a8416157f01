"""What a state carries, bit for bit: passes of any size, roll-back, snapshots, refusals."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_core import MASK, SPEC, TinyFile, committed, same, tokens, write_tiny

from clover_edge import _core
from clover_edge.errors import (
    ArgumentError,
    CloverError,
    ContextLengthError,
    ModelFormatError,
    OutOfMemoryError,
)

ISAS = _core.available_isas()
PROMPT, NINE, BLOCK = tokens(13, 1), tokens(9, 2), tokens(16, 3)
FORMS = ("sequential", "closed")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> TinyFile:
    return write_tiny(tmp_path_factory.mktemp("core") / "weights.bin")


@pytest.fixture(scope="module")
def core(file: TinyFile) -> Any:
    return file.open()


def near(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> None:
    for name, value in b.items():
        assert np.abs(a[name] - value).max() < 1e-5 * np.abs(value).max(), name


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("threads", [1, 2])
def test_how_rows_are_split_changes_no_bit(file: TinyFile, isa: str, threads: int) -> None:
    """A long prompt, which runs in chunks, at once, in odd pieces and token by token."""
    core = file.open(isa=isa, threads=threads)
    ids = tokens(300, 4)
    whole, odd, singly = (core.new_state(300) for _ in range(3))
    logits = core.commit(whole, ids, logits="all")
    pieces = [ids[:1], ids[1:100], ids[100:102], ids[102:]]
    assert np.array_equal(
        np.concatenate([core.commit(odd, p, logits="all") for p in pieces]), logits
    )
    assert np.array_equal(np.concatenate([core.commit(singly, [i]) for i in ids]), logits)
    same(odd.arrays(), whole.arrays())
    same(singly.arrays(), whole.arrays())


@pytest.mark.parametrize("isa", ISAS)
def test_threads_change_no_bit(file: TinyFile, isa: str) -> None:
    one, three = file.open(isa=isa, threads=1), file.open(isa=isa, threads=3)
    for core in (one, three):
        assert core.isa == isa
    states = [committed(core, PROMPT) for core in (one, three)]
    same(states[0].arrays(), states[1].arrays())
    for coreset in (0, 3):
        previews = [
            core.preview(state, BLOCK, coreset=coreset)
            for core, state in zip((one, three), states, strict=True)
        ]
        assert np.array_equal(*previews)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kept", range(len(NINE) + 1))
def test_truncate_is_the_shorter_commit(file: TinyFile, form: str, kept: int) -> None:
    """To any row, fewer than the convolution's taps included, and from there to fewer still."""
    core = file.open(delta_form=form)
    state = committed(core, PROMPT)
    core.commit(state, NINE, rollback=True)
    for rows in (kept, kept // 2):
        state.truncate(len(PROMPT) + rows)
        want = committed(core, PROMPT, *([NINE[:rows]] if rows else []))
        if (form, rows) == ("closed", 1):  # a commit of one row is sequential
            near(state.arrays(), want.arrays())
        else:
            same(state.arrays(), want.arrays())
            assert np.array_equal(core.preview(state, BLOCK), core.preview(want, BLOCK))


def test_truncate_from_an_empty_state(core: Any) -> None:
    state = core.new_state(64)
    core.commit(state, NINE, rollback=True)
    state.truncate(2)  # fewer than the ring holds: part of it is from before the first token
    same(state.arrays(), committed(core, NINE[:2]).arrays())
    state.truncate(0)
    assert state.position == 0
    assert "logits" not in state.arrays()


def test_where_truncate_cannot_go(core: Any) -> None:
    state = committed(core, PROMPT)
    with pytest.raises(ArgumentError, match="position 12 is neither 0 nor"):
        state.truncate(12)
    core.commit(state, NINE, rollback=True)
    for position in (12, 23, -1):
        with pytest.raises(ArgumentError, match=f"position {position} "):
            state.truncate(position)
    core.commit(state, [1], logits="none")  # without rollback: the record is gone
    with pytest.raises(ArgumentError, match="position 22 "):
        state.truncate(22)
    assert state.position == 23
    with pytest.raises(ArgumentError, match="rollback takes at most 128"):
        core.commit(core.new_state(200), tokens(129), rollback=True)


def test_a_preview_writes_nothing(core: Any) -> None:
    """Also where it makes the caches grow, and with a record to roll back to."""
    state = committed(core, tokens(250, 5))
    core.commit(state, [7, 8], rollback=True)
    before = state.arrays()
    first = core.preview(state, BLOCK)
    assert not np.array_equal(core.preview(state, BLOCK[:3]), first[:3])
    assert np.array_equal(core.preview(state, BLOCK), first)
    same(state.arrays(), before)
    state.truncate(251)
    same(state.arrays(), committed(core, tokens(250, 5), [7]).arrays())


def test_a_preview_may_reach_behind_the_capacity(core: Any) -> None:
    """The last block runs at full width; what does not fit is cut from its text."""
    tight, roomy = core.new_state(len(PROMPT) + 1), core.new_state(100)
    for state in (tight, roomy):
        core.commit(state, PROMPT)
    assert np.array_equal(core.preview(tight, BLOCK), core.preview(roomy, BLOCK))


def test_a_snapshot_is_independent(core: Any) -> None:
    state = committed(core, PROMPT)
    saved, before = state.snapshot(), state.arrays()
    logits = core.commit(state, NINE, logits="all")
    same(saved.arrays(), before)
    assert np.array_equal(core.commit(saved, NINE, logits="all"), logits)
    same(saved.arrays(), state.arrays())
    state.restore(committed(core, PROMPT))
    same(state.arrays(), before)
    with pytest.raises(ArgumentError, match="position 5 "):
        state.truncate(5)


def test_restore_refuses_what_does_not_fit(file: TinyFile, core: Any) -> None:
    with pytest.raises(ContextLengthError, match=r"position 13 .* capacity of 12 "):
        core.new_state(12).restore(committed(core, PROMPT))
    other = file.open()
    for call in (
        lambda: core.new_state(12).restore(other.new_state(12)),
        lambda: core.commit(other.new_state(12), [1]),
        lambda: core.preview(other.new_state(12), [1]),
        lambda: core.generate(other.new_state(12), [1], {}),
    ):
        with pytest.raises(ArgumentError, match="belongs to another model"):
            call()


def test_the_closed_form_is_the_same_rule(file: TinyFile) -> None:
    closed, sequential = file.open(delta_form="closed"), file.open()
    ids = tokens(40, 6)
    for split in (1, 2, 17, 40):
        a = committed(closed, PROMPT, ids[:split], *([ids[split:]] if split < 40 else []))
        near(a.arrays(), committed(sequential, PROMPT, ids).arrays())


def test_a_state_outlives_its_model(file: TinyFile) -> None:
    core = file.open()
    state, want = committed(core, PROMPT), committed(core, PROMPT).arrays()
    del core
    same(state.arrays(), want)


def test_arrays(core: Any) -> None:
    state = core.new_state(40)
    assert (state.position, state.capacity) == (0, 40)
    empty = state.arrays()
    assert all(value.size == 0 or not value.any() for value in empty.values())
    logits = core.commit(state, PROMPT)
    arrays = state.arrays()
    assert {name: value.shape for name, value in arrays.items()} == {
        "layers.0.S": (4, 16, 24),
        "layers.0.ring": (3, 160),
        "layers.1.k": (13, 2, 16),
        "layers.1.v": (13, 2, 16),
        "layers.2.S": (4, 16, 24),
        "layers.2.ring": (3, 160),
        "logits": (160,),
    }
    assert all(value.dtype == np.float32 for value in arrays.values())
    assert np.array_equal(arrays["logits"], logits[0])
    arrays["layers.0.S"][:] = 0  # a copy
    assert state.arrays()["layers.0.S"].any()


def test_memory_grows_with_the_tokens(core: Any) -> None:
    state = core.new_state(100_000)
    sizes = [state.nbytes]
    for _ in range(4):
        core.commit(state, tokens(200), logits="none")
        sizes.append(state.nbytes)
    fixed = 4 * (2 * (4 * 16 * 24 + 3 * 160) + 48)
    assert sizes[0] == fixed
    assert fixed < sizes[1] < sizes[-1] < fixed + 2 * 1600 * 2 * 2 * 16 * 4
    core.commit(state, [1], rollback=True)
    assert state.nbytes > sizes[-1]


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([], "no token"),
        ([1, MASK], r"token 1 \(id 150\) is the mask token"),
        ([-1], "token 0 .* outside the vocabulary"),
        ([3, 160], "token 1 .* outside the vocabulary of 160"),
        ([2**40], "no token id"),
        ([1.5], "integers"),
        (["a"], "integers"),
        ([[1, 2]], "integers"),
    ],
)
def test_ids_that_cannot_be_committed(core: Any, ids: list[Any], message: str) -> None:
    state = committed(core, PROMPT)
    with pytest.raises(ArgumentError, match=message):
        core.commit(state, ids)
    assert state.position == 13


def test_preview_arguments(core: Any) -> None:
    state = committed(core, PROMPT)
    assert core.preview(state, [MASK] * 4, rows=[]).shape == (0, 160)
    bad: list[tuple[list[int], dict[str, Any], str]] = [
        ([], {}, "block of 0"),
        ([1] * 1025, {}, "block of 1025"),
        ([1, 2], {"rows": [2]}, "row 2 is outside"),
        ([1, 2], {"rows": [-1]}, "row -1 is outside"),
        ([1, 2], {"rows": [0, 1, 1]}, "more rows"),
        ([1, 2], {"width": 0}, "width 0"),
        ([1, 2], {"coreset": 1}, "coreset 1"),
        ([1, 2], {"coreset": 9}, "coreset 9"),
    ]
    for ids, options, message in bad:
        with pytest.raises(ArgumentError, match=message):
            core.preview(state, ids, **options)


def test_context_length(core: Any) -> None:
    state = core.new_state(20)
    core.commit(state, PROMPT)
    with pytest.raises(ContextLengthError, match=r"8 tokens behind position 13 .* 20"):
        core.commit(state, tokens(8))
    core.commit(state, tokens(7))
    for wanted in (0, -1, SPEC["max_positions"] + 1):
        with pytest.raises(ContextLengthError, match=f"state for {wanted} tokens"):
            core.new_state(wanted)


def test_memory_that_is_not_there(file: TinyFile) -> None:
    core = file.open(spec={"max_positions": 1 << 30})
    with pytest.raises(OutOfMemoryError, match="a state for 1073741824 tokens") as caught:
        core.new_state(1 << 30)
    assert caught.value.needed > 2**30 * 2 * 2 * 16 * 4
    assert 0 < caught.value.available < caught.value.needed


def test_an_error_half_way_leaves_no_half_state(tmp_path: Path) -> None:
    """A weight that is not a number is found in use; the error names the layer."""
    file = write_tiny(tmp_path / "weights.bin")
    file.write("layers.1.attn.out", np.array([np.nan]))
    core = file.open()
    state = core.new_state(20)
    with pytest.raises(CloverError, match="layer 1: the mixer's output is not finite"):
        core.commit(state, [1, 2])
    for call in (
        lambda: core.commit(state, [1]),
        lambda: core.preview(state, [1]),
        lambda: core.generate(state, [1], {"max_new_tokens": 1}),
    ):
        with pytest.raises(CloverError, match="half way"):
            call()
    state.truncate(0)
    assert not state.arrays()["layers.0.S"].any()
    with pytest.raises(CloverError, match="layer 1"):
        core.preview(state, [1])
    assert not state.arrays()["layers.0.S"].any()


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        ("layers.0.experts.down", "layer 0: the feed-forward's"),
        ("layers.2.delta.in", "layer 2: the mixer's"),
        ("embed", "embedding"),
        ("head", "head: a logit"),
    ],
)
def test_what_is_not_finite(tmp_path: Path, tensor: str, message: str) -> None:
    file = write_tiny(tmp_path / "weights.bin")
    row = file.row(tensor)
    file.write(tensor, np.full(row["bytes"] // 4, np.inf))
    core = file.open()
    for options in ({"mode": "ar"}, {}, {"temperature": 1.0}):
        with pytest.raises(CloverError, match=message):
            core.generate(core.new_state(64), [1], {"max_new_tokens": 4, **options})


def test_two_threads_take_turns(core: Any) -> None:
    want = committed(core, tokens(200, 8), NINE).arrays()
    states: list[Any] = []

    def work() -> None:
        states.append(committed(core, tokens(200, 8), NINE))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(states) == 4
    for state in states:
        same(state.arrays(), want)


def test_options_of_a_model(file: TinyFile) -> None:
    assert file.open().weight_bytes == sum(
        row["bytes"] * (row["shape"][0] if row["stride"] else 1) for row in file.table
    )
    for options in ({"threads": -1}, {"threads": 2000}, {"delta_form": "fast"}):
        with pytest.raises(ArgumentError):
            file.open(**options)
    with pytest.raises(CloverError, match="avx9"):
        file.open(isa="avx9")
    with pytest.raises(ModelFormatError, match=r"nowhere\.bin"):
        _core.Model(SPEC, ["nowhere.bin"], file.table)
