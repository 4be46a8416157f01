"""States as bytes: what comes back, and what damaged, lying or foreign bytes do."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from tiny_core import SPEC, TinyFile, committed, same, same_from_now, tokens, write_tiny

from clover_edge.errors import CloverError, ContextLengthError, ModelFormatError, OutOfMemoryError

IDS = tokens(61, 1)
Open = Callable[..., Any]
WORD = 8
# Words in front of the first point: magic, version, bytes, kv, layers, two of each of three layers.
POINT = 5 + 2 * 3


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> TinyFile:
    return write_tiny(tmp_path_factory.mktemp("core") / "weights.bin")


@pytest.fixture(scope="module")
def core(file: TinyFile) -> Any:
    return file.open()


def saved(state: Any) -> bytes:
    pieces: list[bytes] = []
    state.save(lambda piece: pieces.append(bytes(piece)))
    return b"".join(pieces)


def summed(data: bytes) -> bytes:
    """With a checksum that fits, written out a second time."""
    h = 0
    for at in range(0, len(data) - WORD, WORD):
        h = (h ^ int.from_bytes(data[at : at + WORD], "little")) * 0x9E3779B97F4A7C15 % 2**64
        h ^= h >> 32
    return data[:-WORD] + h.to_bytes(WORD, "little")


def changed(data: bytes, word: int, value: int) -> bytes:
    at = word * WORD
    return data[:at] + value.to_bytes(WORD, "little", signed=True) + data[at + WORD :]


def marked(core: Any) -> Any:
    state = core.new_state(600)
    state.keep_marks(every=0, max_bytes=1 << 30)
    for piece in (IDS[:13], IDS[13:20], IDS[20:30]):
        core.commit(state, piece)
        state.mark()
    core.commit(state, IDS[30:])
    return state


@pytest.mark.parametrize("kv", ["f32", "f16", "int8"])
def test_what_comes_back(file: TinyFile, kv: str) -> None:
    core = file.open(kv=kv)
    state = marked(core)
    data = saved(state)
    assert data == summed(data)
    for buffer in (data, bytearray(data), memoryview(data)):
        found = core.load_state(buffer, 200)
        assert (found.position, found.capacity, found.marks) == (61, 200, [13, 20, 30])
        same(found.arrays(), state.arrays())
    assert saved(found) == data
    assert found.rewind(25) == state.rewind(25) == 20
    same_from_now(core, found, state, IDS[20:])
    empty = core.load_state(saved(core.new_state(5)), 200)
    same_from_now(core, empty, core.new_state(600), IDS)


def test_what_is_saved_stays_as_it_is(core: Any) -> None:
    state = marked(core)
    core.commit(state, [1, 2, 3], rollback=True)
    before = saved(state)
    assert saved(state) == before
    state.truncate(62)  # the record is still there
    assert state.position == 62


@pytest.mark.parametrize("family", ["llada2", "a2d"])
def test_block_masks(tiny_blocks: Open, pack: Open, open_core: Open, family: str) -> None:
    core = open_core(pack(tiny_blocks(family, seed=3), "f32"))
    state = committed(core, IDS[:37])
    same_from_now(core, core.load_state(saved(state), 200), state, IDS[37:45])


def test_a_cut_state(tiny_transformer: Open, pack: Open, open_core: Open) -> None:
    core = open_core(pack(tiny_transformer("llama", seed=3), "f32"))
    state = committed(core, IDS)
    state.rewind(40)
    found = core.load_state(saved(state), 200)
    assert (found.position, found.decided) == (40, False)


def test_full_attention(tiny_full_attention: Open, pack: Open, open_core: Open) -> None:
    core = open_core(pack(tiny_full_attention("dream", seed=3), "f32"))
    state = core.load_state(saved(committed(core, IDS)), 100)
    again = core.commit(state, [5, 6])
    assert (again == core.commit(core.new_state(70), [*IDS, 5, 6])).all()


def test_a_sink_that_fails(core: Any) -> None:
    def fail(piece: memoryview) -> None:
        raise OSError("no space left")

    state = marked(core)
    with pytest.raises(OSError, match="no space"):
        state.save(fail)
    core.commit(state, [1])  # the model is free again


def test_another_shape(file: TinyFile, core: Any) -> None:
    data = saved(marked(core))
    with pytest.raises(ModelFormatError, match=r"state: kv: 0 is not the model's 2"):
        file.open(kv="int8").load_state(data, 100)
    with pytest.raises(ContextLengthError, match="position 61 does not fit into a capacity of 60"):
        core.load_state(data, 60)
    with pytest.raises(ContextLengthError, match="a state for 0"):
        core.load_state(data, 0)
    other = file.open(spec={"max_positions": 60})
    with pytest.raises(ModelFormatError, match=r"point\.position: 61 is outside \[0, 60\]"):
        other.load_state(data, 60)


def test_a_text_is_no_buffer(core: Any) -> None:
    with pytest.raises(TypeError):
        core.load_state("text", 10)


def test_damage_is_seen(core: Any) -> None:
    """Any flipped bit, and any length but the right one."""
    data, rng = saved(marked(core)), random.Random(1)
    for _ in range(300):
        at = rng.randrange(len(data))
        flipped = bytearray(data)
        flipped[at] ^= 1 << rng.randrange(8)
        with pytest.raises(ModelFormatError, match=r"state: (magic|version|bytes|checksum)"):
            core.load_state(flipped, 100)
    for length in [*range(0, 200), *(rng.randrange(len(data)) for _ in range(100))]:
        with pytest.raises(ModelFormatError, match="state: "):
            core.load_state(data[:length], 100)
    with pytest.raises(ModelFormatError, match="bytes"):
        core.load_state(data + bytes(8), 100)


@pytest.mark.parametrize(
    ("word", "value", "message"),
    [
        (0, 7, "magic"),
        (1, 2, r"version: 2 is not supported \(1 is\)"),
        (2, 0, "bytes: 0 is not"),
        (3, 1, "kv: 1 is not"),
        (4, 4, "layers: 4 is not"),
        (5, 1 << 60, r"layers\.0\.S: "),
        (6, -1, r"layers\.0\.ring: "),
        (8, 1 << 40, r"layers\.1\.row: "),
        (POINT, -1, r"point\.position: -1 is outside"),
        (POINT, 60, "bytes|ascend"),
        (POINT, 99, r"takes .* bytes, .* are left"),
        (POINT, SPEC["max_positions"], r"layers\.1\.k: takes"),
        (POINT, SPEC["max_positions"] + 1, r"point\.position"),
        (POINT + 1, 2, r"point\.flags"),
        (POINT + 2, 1 << 62, r"point\.hidden"),
        (POINT + 3, 1, r"point\.open: 1 is not the position's 0"),
        (POINT + 4, 1 << 50, "marks: .* is outside"),
        (POINT + 4, -1, "marks"),
        (POINT + 4, 2, "left over|takes|outside"),
        (POINT + 5, 0, r"marks\.0: at position 0 does not ascend"),
        (POINT + 9, 13, r"marks\.1: at position 13 does not ascend"),
        (POINT + 13, 62, r"marks\.2\.position: 62"),
    ],
)
def test_lies(core: Any, word: int, value: int, message: str) -> None:
    """With a checksum that fits."""
    data = summed(changed(saved(marked(core)), word, value))
    with pytest.raises((ModelFormatError, ContextLengthError, OutOfMemoryError), match=message):
        core.load_state(data, 1 << 20)


def test_lies_at_random(core: Any, tiny_blocks: Open, pack: Open, open_core: Open) -> None:
    """Each gives a typed error, now or when the state is used; none gives a crash."""
    blocks = open_core(pack(tiny_blocks("llada2", seed=3), "f32"))
    rng, refused = random.Random(2), 0
    for model, state in ((core, marked(core)), (blocks, committed(blocks, IDS))):
        data = saved(state)
        for _ in range(150):
            lie = bytearray(data)
            for _ in range(rng.randrange(1, 4)):
                at = rng.randrange(0, 40 * WORD) if rng.random() < 0.8 else rng.randrange(len(lie))
                lie[at] = rng.randrange(256)
            if rng.random() < 0.3:
                lie = lie[: rng.randrange(3, len(lie) // WORD) * WORD]
            lie[2 * WORD : 3 * WORD] = len(lie).to_bytes(WORD, "little")
            try:
                found = model.load_state(summed(bytes(lie)), 300)
                model.commit(found, [1, 2, 3])
                found.rewind(found.position // 2)
                model.commit(found, [1, 2, 3])
            except CloverError:
                refused += 1
    assert refused > 100
