"""Points that a state goes back to: where they lie, what they cost, that nothing differs behind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from checkpoints import packer
from tiny_core import TinyFile, committed, same, same_from_now, tokens, write_tiny
from tiny_hybrid import make_hybrid

from clover_edge.errors import ArgumentError, CloverError, ContextLengthError

IDS = tokens(61, 1)
ROOM = 1 << 30
Open = Callable[..., Any]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> TinyFile:
    return write_tiny(tmp_path_factory.mktemp("core") / "weights.bin")


@pytest.fixture(scope="module")
def core(file: TinyFile) -> Any:
    """DeltaNet and attention, causal."""
    return file.open()


def marked(core: Any, *pieces: list[int], every: int = 0, max_bytes: int = ROOM) -> Any:
    """A state behind the pieces with a mark behind each."""
    state = core.new_state(600)
    state.keep_marks(every=every, max_bytes=max_bytes)
    for piece in pieces:
        core.commit(state, piece, logits="none")
        state.mark()
    return state


def test_a_mark_is_the_shorter_text(core: Any) -> None:
    state = marked(core, IDS[:13], IDS[13:20], IDS[20:50])
    assert state.marks == [13, 20, 50]
    core.commit(state, [5] * 11)
    assert state.rewind(60) == 50
    assert state.marks == [13, 20, 50]
    assert state.rewind(49) == 20
    assert state.marks == [13, 20]
    assert state.decided
    same_from_now(core, state, committed(core, IDS[:20]), IDS[20:50])
    assert state.rewind(20) == 20
    assert state.rewind(12) == 0
    assert not state.marks
    same_from_now(core, state, core.new_state(600), IDS)


def test_going_nowhere(core: Any) -> None:
    state = marked(core, IDS[:13])
    core.commit(state, IDS[13:20])
    before = state.arrays()
    for position in (20, 99):
        assert state.rewind(position) == 20
    same(state.arrays(), before)
    with pytest.raises(ArgumentError, match="position -1 is negative"):
        state.rewind(-1)


def test_marks_copy_no_keys(core: Any) -> None:
    """However long the text, a mark takes what the recurrent layers carry."""
    state = marked(core)
    taken = []
    for _ in range(2):
        core.commit(state, tokens(250), logits="none")
        before = state.nbytes
        state.mark()
        taken.append(state.nbytes - before)
    assert taken[0] == taken[1] == 4 * (2 * (4 * 16 * 24 + 3 * 160) + 48)


def test_commits_leave_marks(core: Any) -> None:
    state = core.new_state(600)
    state.keep_marks(every=100, max_bytes=ROOM)
    core.commit(state, tokens(300, 4), logits="none")
    assert state.marks == [128, 256]  # passes have 128 rows
    for token in tokens(70, 5):
        core.commit(state, [token], logits="none")
    assert state.marks == [128, 256, 356]
    core.commit(state, tokens(100, 6), rollback=True, logits="none")
    assert state.marks == [128, 256, 356]  # what may be taken back is no place for one
    state.truncate(460)
    assert state.marks == [128, 256, 356, 460]
    state.truncate(459)
    assert state.marks == [128, 256, 356, 459]


def test_memory_is_kept_for_marks_that_matter(core: Any) -> None:
    one = 4 * (2 * (4 * 16 * 24 + 3 * 160) + 48)
    state = core.new_state(600)
    state.keep_marks(every=1, max_bytes=3 * one)
    for at in range(1, 41):
        core.commit(state, [at], logits="none")
        if at == 12:
            state.mark()
    assert len(state.marks) == 3
    assert 12 in state.marks  # asked for
    assert state.marks[-1] == 40  # the newest
    state.keep_marks(every=0, max_bytes=0)
    core.commit(state, [41], logits="none")
    state.mark()
    assert state.marks == [41]
    with pytest.raises(ArgumentError, match="negative"):
        state.keep_marks(every=-1, max_bytes=0)


def test_back_within_a_recorded_commit(core: Any) -> None:
    """To any of its rows, not just to a mark."""
    state = marked(core, IDS[:13])
    core.commit(state, IDS[13:30], rollback=True)
    assert state.rewind(22) == 22
    same_from_now(core, state, committed(core, IDS[:22]), IDS[22:30])
    core.commit(state, IDS[:5], rollback=True)
    assert state.rewind(15) == 13


def test_a_broken_state_is_mended(file: TinyFile) -> None:
    core = file.open(spec={"max_positions": 1000})
    state = marked(core, IDS[:13])
    core.commit(state, IDS[13:20])

    def stop(layer: int, half: str, arrays: dict[str, Any]) -> None:
        if layer == 1:
            raise RuntimeError("enough")

    core.observe(stop)
    with pytest.raises(RuntimeError, match="enough"):
        core.commit(state, IDS[20:30])
    core.observe(None)
    with pytest.raises(CloverError, match="half way"):
        core.commit(state, IDS[20:30])
    with pytest.raises(CloverError, match="half way"):
        state.save(lambda _: None)
    assert state.rewind(20) == 13
    same_from_now(core, state, committed(core, IDS[:13]), IDS[13:30])


def test_a_fork_leaves_the_other_alone(core: Any) -> None:
    state = marked(core, IDS[:13], IDS[13:20], IDS[20:50])
    before = state.arrays()
    fork = state.fork(33)
    assert (fork.position, fork.marks) == (20, [13, 20])
    core.commit(fork, [3] * 30, logits="none")
    assert fork.rewind(13) == 13
    same_from_now(core, fork, committed(core, IDS[:13]), IDS[13:])
    same(state.arrays(), before)
    same(state.fork(99).arrays(), before)
    assert state.fork(12).position == 0
    assert state.marks == [13, 20, 50]
    with pytest.raises(ArgumentError, match="negative"):
        state.fork(-1)


def test_copies_have_no_marks(core: Any) -> None:
    state = marked(core, IDS[:13])
    assert state.snapshot().marks == []
    state.restore(committed(core, IDS[:5]))
    assert state.marks == []
    state.mark()
    state.truncate(0)
    assert state.marks == []


def test_capacity(core: Any) -> None:
    state = core.new_state(13)
    core.commit(state, IDS[:13])
    with pytest.raises(ContextLengthError):
        core.commit(state, IDS[13:20])
    state.extend(20)
    assert state.capacity == 20
    core.commit(state, IDS[13:20])
    same(state.arrays(), committed(core, IDS[:20]).arrays())
    for wanted in (19, 1 << 21):
        with pytest.raises(ContextLengthError, match=f"a state for {wanted} tokens"):
            state.extend(wanted)


@pytest.mark.parametrize("family", ["llama", "qwen3_moe"])
def test_a_transformer_is_cut_anywhere(
    tiny_transformer: Open, pack: Open, open_core: Open, family: str
) -> None:
    core = open_core(pack(tiny_transformer(family, seed=3), "f32"))
    state = marked(core, IDS[:40], IDS[40:50], every=8)
    assert state.cuttable
    assert state.marks == []
    assert state.rewind(33) == 33
    assert not state.decided
    assert "logits" not in state.arrays()
    with pytest.raises(ArgumentError, match="needs a prompt"):
        core.generate(state, [], {"mode": "ar"})
    core.commit(state, IDS[33:37], rollback=True)
    assert state.decided
    state.truncate(33)
    assert not state.decided
    assert not state.snapshot().decided
    core.commit(state, IDS[33:37])
    same_from_now(core, state, committed(core, IDS[:37]), IDS[37:])


@pytest.mark.parametrize(("family", "width"), [("llada2", 8), ("sdar", 4), ("fast_dllm", 16)])
def test_a_block_mask_is_cut_at_blocks(
    tiny_blocks: Open, pack: Open, open_core: Open, family: str, width: int
) -> None:
    """And within the open block, whose ids are known, anywhere."""
    core = open_core(pack(tiny_blocks(family, seed=3), "f32"))
    ids = IDS[: 3 * width + 3]
    state = committed(core, ids)
    state.mark()
    assert state.marks == []
    assert state.rewind(len(ids) - 1) == len(ids) - 1
    fork = state.fork(99)
    assert not fork.decided
    core.commit(fork, [5])
    same_from_now(core, fork, committed(core, [*ids[:-1], 5]), IDS[:2])
    assert state.rewind(width + 3) == width
    core.commit(state, IDS[width : width + 3])
    same_from_now(core, state, committed(core, IDS[: width + 3]), IDS[width + 3 :])


def test_blocks_from_the_end_go_back_to_marks(
    tiny_blocks: Open, pack: Open, open_core: Open
) -> None:
    """What stands in front of such a block is not what a shorter prompt would have left."""
    core = open_core(pack(tiny_blocks("a2d", seed=3), "f32"))
    state = marked(core, IDS[:13], IDS[13:29])
    assert not state.cuttable
    assert state.rewind(28) == 13
    same_from_now(core, state, committed(core, IDS[:13]), IDS[13:29])


def test_a_hybrid_goes_back_to_marks(
    tmp_path_factory: pytest.TempPathFactory, open_core: Open
) -> None:
    """Its recurrent layers stop in front of an open block, so that one may be cut."""

    def write(folder: Path, family: str) -> None:
        make_hybrid(folder, family, seed=2)

    folder = packer(tmp_path_factory, write)("a2d_qwen3_5")
    core = open_core(folder, spec={"block_origin": "absolute"})
    state = marked(core, IDS[:13], IDS[13:30])
    core.commit(state, IDS[30:])
    assert state.rewind(27) == 27
    assert state.marks == [13, 27]
    assert not state.decided
    core.commit(state, IDS[27:30])
    same_from_now(core, state, committed(core, IDS[:30]), IDS[30:])
    assert state.rewind(27) == 27
    assert state.rewind(23) == 13
    same_from_now(core, state, committed(core, IDS[:13]), IDS[13:30])


def test_full_attention_keeps_ids_alone(
    tiny_full_attention: Open, pack: Open, open_core: Open
) -> None:
    core = open_core(pack(tiny_full_attention("llada", seed=3), "f32"))
    state = committed(core, IDS)
    assert state.rewind(33) == 33
    assert state.decided
    again = core.commit(state, IDS[33:40])
    assert (again == core.commit(core.new_state(60), IDS[:40])).all()


def test_prompts_leave_a_mark(core: Any) -> None:
    state = core.new_state(600)
    state.keep_marks(every=0, max_bytes=ROOM)
    options = {"mode": "ar", "max_new_tokens": 3, "mark": 7}
    want = core.generate(committed(core, IDS[:5]), IDS[5:13], {**options, "mark": 0})["ids"]
    assert core.generate(state, IDS[:13], options)["ids"] == want
    assert state.marks == [7]
    assert state.rewind(15) == 7
    core.generate(state, IDS[7:13], {**options, "mark": 13})
    assert state.marks == [7, 13]
    with pytest.raises(ArgumentError, match="mark"):
        core.generate(state, [1], {**options, "mark": 60})
